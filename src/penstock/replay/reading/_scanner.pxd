cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t


@cython.final
cdef class Interner:
    cdef uint64_t* hashes
    cdef int32_t* ids
    cdef int64_t mask, used, capacity
    cdef char* arena
    cdef int64_t arena_used, arena_size
    cdef int64_t* offsets
    cdef int32_t* lengths
    cdef bint failed

    cdef int32_t get(self, const char* text, int64_t length) noexcept nogil
    cdef int32_t add(
        self, uint64_t h, int64_t at, const char* text, int64_t length
    ) noexcept nogil
    cdef void grow(self) noexcept nogil
