cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.base cimport Algorithm
from penstock.decision cimport Decision

cdef int REFUSED, ALLOWED
cdef int64_t NO_MARK, MOST_UNITS, UNFILLED, MICROSECOND, LATEST


cdef class Stock(Algorithm):
    @cython.locals(opened=int64_t, left=int64_t, spent=int64_t)
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    cdef bint sound(self, int64_t* state) noexcept nogil
