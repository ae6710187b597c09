cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.token_bucket cimport TokenBucket
from penstock.decision cimport Decision

cdef int REFUSED, ALLOWED
cdef int64_t NO_MARK


cdef class InitialBucket(TokenBucket):
    cdef int64_t missing, memory

    @cython.locals(tat=int64_t)
    cdef int64_t arrival(self, int64_t* state, int64_t now) noexcept nogil
    @cython.locals(interval=int64_t, tat=int64_t, room=int64_t, need=int64_t)
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    @cython.locals(tat=int64_t, highest=int64_t)
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    @cython.locals(tat=int64_t, late=int64_t, back=int64_t)
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    @cython.locals(answer=cython.int)
    cdef int reserve(
        self, int64_t* state, int64_t cost, int64_t now, int64_t patience, Decision out
    ) noexcept nogil
    cdef int64_t full_at(self, int64_t* state) noexcept nogil
