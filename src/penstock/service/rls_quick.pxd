cimport cython

from penstock.decision cimport Decision
from penstock.service.rls_request cimport Asked, Request, read_request
from penstock.service.rls_response cimport CurrentLimit, Row, new_row, row_of, write_row
from penstock.stores.base cimport Counters, pick

cdef int OK, OVER_LIMIT
cdef Py_ssize_t SEEN, MOST_PLANS, LONGEST_KEPT


cdef class Ready:
    cdef readonly object rule
    cdef readonly tuple counted
    cdef readonly object cost
    cdef readonly list counters, limits
    cdef readonly bint envoy


cdef class Plan:
    cdef readonly Request request
    cdef readonly list items, readies
    cdef readonly bint single
    cdef list _told

    cpdef list told(self)
    @cython.locals(counters=Counters)
    cpdef Decision hit(self)
    @cython.locals(ready=Ready, code=int)
    cpdef bytes answer(self, Decision decision, clock)
    @cython.locals(
        rows=list, at=Py_ssize_t, count=Py_ssize_t, index=Py_ssize_t, best=Decision, code=int,
        chosen=Decision, limit=CurrentLimit, ready=Ready,
    )
    cpdef list rows(self, list decisions, clock)


cdef class Planner:
    cdef object gate, compiled, switches
    cdef readonly dict plans
    cdef dict readies
    cdef list seen

    @cython.locals(plan=Plan, request=Request, calm=bint)
    cpdef object plan(self, bytes message)
    cdef forget(self, compiled)
    @cython.locals(known=Py_ssize_t, place=Py_ssize_t)
    cdef keep(self, bytes message, Plan plan)
    @cython.locals(plan=Plan, asked=Asked, ready=Ready, items=list)
    cdef Plan make(self, Request request)
    cdef Ready ready(self, match)


cpdef check(Request request)
