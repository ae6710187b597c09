cimport cython

from penstock.stores.base cimport Counters


cdef class Pending:
    cdef bint _is_hit
    cdef object _coroutine
    cdef Counters _counters
    cdef object _key
    cdef object _cost
    cdef bint _waits

    cdef steps(self)
    cdef start(self)
    cdef str verb(self)
    cdef not_awaited(self, str lack)


@cython.locals(pending=Pending)
cpdef pending_hit(Counters counters, key, cost, bint waits)


@cython.locals(pending=Pending)
cpdef pending(coroutine)
