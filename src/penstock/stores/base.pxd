from libc.stdint cimport int64_t

from penstock.algorithms.base cimport Algorithm
from penstock.decision cimport Decision


cdef class Counters:
    cdef public object limit
    cdef public Algorithm algorithm
    cdef public object clock

    cpdef int64_t now(self) except? -1
    cpdef Decision hit(self, key, cost)
    cpdef Decision peek(self, key, cost)


cpdef str check_key(key)
cpdef check_cost(cost)
cpdef Decision pick(Decision best, Decision decision)
