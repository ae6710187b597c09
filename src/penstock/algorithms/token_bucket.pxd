cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.base cimport Algorithm
from penstock.decision cimport Decision

cdef int REFUSED, ALLOWED, LOOK
cdef int64_t NO_MARK, COLD, RAMP_STEPS


cdef class TokenBucket(Algorithm):
    cdef int64_t interval, capacity, debt, ceiling
    cdef int64_t ramp_step, ramp_start, ramp_end
    cdef bint paced

    cpdef start(self, int64_t now)
    @cython.locals(
        interval=int64_t, capacity=int64_t, tat=int64_t, room=int64_t, need=int64_t,
    )
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    cdef int64_t need(self, int64_t cost) noexcept nogil
    @cython.locals(interval=int64_t, tat=int64_t, highest=int64_t)
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    @cython.locals(interval=int64_t, tat=int64_t, late=int64_t, back=int64_t)
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    @cython.locals(width=int64_t, wait=int64_t, early=int64_t)
    cdef int reserve(
        self, int64_t* state, int64_t cost, int64_t now, int64_t patience, Decision out
    ) noexcept nogil
    @cython.locals(interval=int64_t, reach=int64_t, tat=int64_t, end=int64_t, due=int64_t)
    cdef void cancel(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    cdef int64_t full_at(self, int64_t* state) noexcept nogil
    @cython.locals(step=int64_t, share=int64_t)
    cdef int64_t ramped(self, int64_t now) noexcept nogil
    @cython.locals(
        low=int64_t, high=int64_t, need=int64_t, middle=int64_t, interval=int64_t,
        capacity=int64_t, behind=int64_t,
    )
    cdef int64_t ramped_retry(
        self, int64_t tat, int64_t cost, int64_t now, int64_t extra
    ) noexcept nogil
