cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.around cimport Around
from penstock.decision cimport Decision

cdef int REFUSED, ALLOWED, NO_ROOM, HIT
cdef int64_t ENDS, ANEW, INNER


cdef class Soft(Around):
    cdef int64_t overrun, grace

    @cython.locals(
        ends=int64_t, anew=int64_t, hard_wait=int64_t, soft_wait=int64_t, answer=int,
    )
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    @cython.locals(latest=int64_t)
    cdef int64_t anew(self, int64_t* state, int64_t now) noexcept nogil
    cdef int64_t ends(self, int64_t* state, int64_t anew) noexcept nogil
    cdef void keep_reset(self, Decision out, int64_t memory) noexcept nogil
    cdef void remember(self, int64_t* state, int64_t ends, int64_t anew) noexcept nogil
    @cython.locals(answer=int, anew=int64_t, ends=int64_t)
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
