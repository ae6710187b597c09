from libc.stdint cimport int64_t

cdef int REFUSED
cdef int TAKEN
cdef int UNKNOWN


cdef class Lease:
    cdef readonly object counters
    cdef readonly str key
    cdef public object terms
    cdef public bytes holder
    cdef public int64_t available
    cdef public int64_t deadline
    cdef public int64_t low
    cdef public int64_t trip
    cdef public int64_t closed_until
    cdef public int64_t retry_at
    cdef public int64_t usual
    cdef public int64_t room
    cdef public int64_t mark
    cdef public int64_t window_end
    cdef public int64_t granted
    cdef public int64_t returned
    cdef public int64_t reported
    cdef public int64_t offered
    cdef public int64_t measured
    cdef public int64_t measured_at
    cdef public int64_t demand
    cdef public bint asking
    cdef public int64_t due
    cdef public int64_t lapsed
    cdef public object latest
    cdef public tuple places

    cpdef int spend(self, int64_t cost, int64_t now) except -1
    cpdef bint put_back(self, int64_t cost, int64_t now) except -1
    cpdef int64_t give_up(self, int64_t keep=*) except -1
