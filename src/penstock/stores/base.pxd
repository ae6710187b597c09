from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t

from penstock.algorithms.base cimport Algorithm
from penstock.decision cimport Decision


cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object key)


cdef class Counters:
    cdef public object limit
    cdef public object name
    cdef public Algorithm algorithm
    cdef public object clock

    cpdef int64_t now(self) except? -1
    cpdef Decision hit(self, key, cost)
    cpdef Decision peek(self, key, cost)


cpdef str check_key(key)


cdef inline bint is_plain(key) noexcept:
    """Whether it is an ordinary key: then nothing is left to check."""
    return PyUnicode_CheckExact(key) and PyUnicode_GET_LENGTH(key) > 0


cpdef check_cost(cost)
cpdef Decision pick(Decision best, Decision decision)
