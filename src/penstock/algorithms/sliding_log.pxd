cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.base cimport Algorithm
from penstock.decision cimport Decision

cdef int REFUSED, ALLOWED, NO_ROOM, HIT
cdef int64_t NO_MARK, LENGTH, OLDEST, COUNT, UNITS, FIRST


cdef class SlidingLog(Algorithm):
    cdef int64_t amount, period, most_used
    cdef bint count_rejected

    @cython.locals(
        skip=int64_t, gone=int64_t, behind=int64_t, units=int64_t, over=int64_t,
    )
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    @cython.locals(slots=int64_t)
    cdef int64_t place(self, int64_t* state, int64_t index) noexcept nogil
    cdef int64_t time(self, int64_t* state, int64_t index) noexcept nogil
    @cython.locals(newest=int64_t)
    cdef int64_t behind(self, int64_t* state, int64_t now) noexcept nogil
    @cython.locals(behind=int64_t, index=int64_t)
    cdef void drop(self, int64_t* state, int64_t now) noexcept nogil
    cdef void forget_oldest(self, int64_t* state) noexcept nogil
    @cython.locals(place=int64_t)
    cdef bint append(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    @cython.locals(place=int64_t, over=int64_t)
    cdef void trim(self, int64_t* state, int64_t most) noexcept nogil
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    @cython.locals(index=int64_t, place=int64_t, back=int64_t)
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    @cython.locals(to=int64_t, start=int64_t)
    cdef void delete(self, int64_t* state, int64_t index) noexcept nogil
    @cython.locals(index=int64_t, place=int64_t)
    cdef void carry(self, int64_t* old, int64_t* new) noexcept nogil
    @cython.locals(slots=int64_t)
    cdef bint sound(self, int64_t* state) noexcept nogil
    @cython.locals(used=int64_t)
    cdef int64_t extent(self, int64_t* state) noexcept nogil
