cimport cython
from libc.stdint cimport int64_t

from penstock.algorithms.base cimport Algorithm


cdef class Around(Algorithm):
    cdef Algorithm inner
    cdef int64_t own

    cpdef start(self, int64_t now)
    cpdef refresh(self, int64_t now)
    cdef bint sound(self, int64_t* state) noexcept nogil
    cdef int64_t extent(self, int64_t* state) noexcept nogil
    @cython.locals(index=int64_t)
    cdef void carry(self, int64_t* old, int64_t* new) noexcept nogil
