cimport cython

from penstock.decision cimport Decision
from penstock.stores.base cimport pick


cdef class PlainRule:
    cdef readonly object rule
    cdef readonly tuple counted
    cdef readonly object cost
    cdef readonly list counters
    cdef readonly bint envoy


cdef class Plan:
    cdef readonly Planner planner
    cdef readonly str domain
    cdef readonly list descriptors, rules, items
    cdef readonly bint single
    cdef public object attachment
    cdef public object hits
    cdef public unsigned int flight
    cdef public long flight_epoch

    @cython.locals(items=list)
    cpdef list hit(self)
    @cython.locals(best=Decision, chosen=Decision, speaker=PlainRule, rule=PlainRule, at=Py_ssize_t)
    cpdef object verdict(self, list decisions)


cdef class Planner:
    cdef readonly object compiled, store
    cdef object modes, overrides
    cdef dict plain_rules
    cdef dict domains
    cdef str only_domain

    @cython.locals(plain=list, pairs=tuple)
    cpdef Plan plan(self, domain, descriptors)
    @cython.locals(
        known=tuple, listed=frozenset, names=tuple, plan=Plan, rule=PlainRule, items=list,
        pairs=tuple,
    )
    cpdef Plan make(self, domain, list descriptors, hits)
    cdef bint is_switched(self, tuple pairs, frozenset listed) except -1
    @cython.locals(own=bint, other=bint, pairs=tuple, pair=tuple, key=str)
    cdef bint has_both(self, list descriptors, tuple names) except -1
    cdef PlainRule plain_rule(self, match)


cdef class PlanCache:
    cdef readonly Py_ssize_t most, longest, mask
    cdef list seen
    cdef dict plans
    cdef Planner planner

    cpdef Plan get(self, bytes message, Planner planner)
    @cython.locals(mark=Py_ssize_t, place=Py_ssize_t)
    cpdef bint wants(self, bytes message) except -1
    cpdef put(self, bytes message, Plan plan)
