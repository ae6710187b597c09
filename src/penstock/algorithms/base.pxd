from libc.stdint cimport int64_t

from penstock.decision cimport Decision

cdef int REFUSED

# What `decide` is asked to do, as in words.py: constants for the stores' inner loops.
cdef enum:
    LOOK = 0
    HIT = 1
    ATTEMPT = 2


cdef class Algorithm:
    cdef public object limit
    cdef public int64_t words        # length of a new row
    cdef public int64_t most_words   # length that a row may grow to
    cdef public int64_t length_at    # index of the word that holds the row's length, or -1
    cdef public int64_t most         # the largest cost that can ever be allowed
    cdef public bint wall            # needs to know what day it is
    cdef public int64_t valid_from
    cdef public int64_t valid_until

    cpdef start(self, int64_t now)
    cpdef refresh(self, int64_t now)
    cdef int decide(
        self, int64_t* state, int64_t cost, int64_t now, int64_t extra, int take, Decision out
    ) noexcept nogil
    cdef int charge(self, int64_t* state, int64_t cost, int64_t now) noexcept nogil
    cdef void refund(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    cdef int reserve(
        self, int64_t* state, int64_t cost, int64_t now, int64_t patience, Decision out
    ) noexcept nogil
    cdef void cancel(
        self, int64_t* state, int64_t cost, int64_t now, int64_t mark, int64_t kept
    ) noexcept nogil
    cdef bint sound(self, int64_t* state) noexcept nogil
    cdef int64_t extent(self, int64_t* state) noexcept nogil
    cdef void carry(self, int64_t* old, int64_t* new) noexcept nogil
