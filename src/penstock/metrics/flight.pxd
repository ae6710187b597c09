cimport cython

from penstock.rules.deciding.plan cimport Plan


cdef class FlightRecorder:
    cdef readonly Py_ssize_t capacity, most_requests, place, look_again
    cdef readonly long long count
    cdef readonly long epoch
    cdef object now
    cdef long long[::1] times
    cdef unsigned int[::1] entries
    cdef dict numbers
    cdef list requests, free

    cpdef planned(self, Plan plan, bint refused)
    @cython.locals(place=Py_ssize_t)
    cpdef add(self, unsigned int number, bint refused)
    cpdef number_of(self, tuple request)
    @cython.locals(
        used=bytearray, marks='unsigned char[::1]', place=Py_ssize_t, size=Py_ssize_t
    )
    cpdef free_unused(self)
