cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.base cimport Algorithm
from penstock.decision cimport Decision

cdef int REFUSED, ALLOWED
cdef int64_t NO_MARK, SUM, NEWEST, FIRST


cdef class SlidingWindow(Algorithm):
    cdef int64_t amount, cells, most_used, shift, ticks, width, memory, round_by

    @cython.locals(
        begin=int64_t, age=int64_t, full=int64_t, oldest=int64_t, step=int64_t, left=int64_t,
        used=int64_t,
    )
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    @cython.locals(spare=int64_t, left=int64_t)
    cdef int64_t retry(
        self, int64_t* state, int64_t begin, int64_t age, int64_t full, int64_t oldest,
        int64_t cost, int64_t now, int64_t extra,
    ) noexcept nogil
    cdef int64_t ticks_left(self, int64_t spare, int64_t oldest) noexcept nogil
    @cython.locals(end=int64_t, age=int64_t)
    cdef int64_t reset(self, int64_t* state, int64_t begin, int64_t now) noexcept nogil
    @cython.locals(begin=int64_t)
    cdef int64_t begin(self, int64_t* state, int64_t now) noexcept nogil
    cdef int64_t place(self, int64_t index) noexcept nogil
    @cython.locals(index=int64_t, begin=int64_t)
    cdef void roll(self, int64_t* state, int64_t now) noexcept nogil
    @cython.locals(over=int64_t, age=int64_t, cell=int64_t, back=int64_t)
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    @cython.locals(begin=int64_t, age=int64_t, cell=int64_t, back=int64_t)
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    cdef bint sound(self, int64_t* state) noexcept nogil
