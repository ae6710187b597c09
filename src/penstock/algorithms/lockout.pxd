cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.around cimport Around
from penstock.decision cimport Decision

cdef int REFUSED, NO_ROOM, HIT
cdef int64_t UNTIL, INNER


cdef class Lockout(Around):
    cdef int64_t length

    @cython.locals(until=int64_t, answer=int)
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    cdef int64_t locked_until(self, int64_t* state, int64_t now) noexcept nogil
    cdef void remember(self, int64_t* state, int64_t until) noexcept nogil
    @cython.locals(answer=int)
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
