cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.base cimport Algorithm
from penstock.decision cimport Decision

cdef int REFUSED, ALLOWED
cdef int64_t NO_MARK, MOST_USED


cdef class FixedWindow(Algorithm):
    cdef int64_t amount, period, end, next_end
    cdef bint from_first_hit
    cdef object zone

    cpdef refresh(self, int64_t now)
    @cython.locals(end=int64_t, used=int64_t)
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    @cython.locals(latest=int64_t)
    cdef int64_t open_until(self, int64_t* state, int64_t now) noexcept nogil
    @cython.locals(used=int64_t)
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    cdef bint sound(self, int64_t* state) noexcept nogil
