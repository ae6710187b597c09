cimport cython

from penstock.decision cimport Decision
from penstock.rules.deciding.plan cimport PlainRule, Plan, PlanCache, Planner
from penstock.service.rls_request cimport RequestedDescriptor, RateLimitRequest, read_request
from penstock.service.rls_response cimport CurrentLimit, Row, new_row, row_of, write_row
from penstock.stores.base cimport pick

cdef int OK, OVER_LIMIT


cdef class MessagePlans:
    cdef object gate
    cdef readonly PlanCache cache
    cdef Planner planner
    cdef dict limits

    @cython.locals(plan=Plan, request=RateLimitRequest, planner=Planner)
    cpdef object plan(self, bytes message)
    @cython.locals(plan=Plan, descriptor=RequestedDescriptor, descriptors=list, attachment=list)
    cdef Plan make(self, RateLimitRequest request, Planner planner)
    @cython.locals(limits=list)
    cdef list limits_of(self, PlainRule rule)


@cython.locals(code=int)
cpdef bytes answer_one(Plan plan, Decision decision, clock)
@cython.locals(
    rows=list, at=Py_ssize_t, count=Py_ssize_t, index=Py_ssize_t, best=Decision, code=int,
    chosen=Decision, limit=CurrentLimit, limits=list,
)
cpdef list rows_of(Plan plan, list decisions, clock)
cpdef check(RateLimitRequest request)
