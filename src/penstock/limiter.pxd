cimport cython

from penstock.decision cimport Decision
from penstock.stores.base cimport Counters


cdef class Limiter:
    cdef readonly object store
    cdef readonly object name
    cdef readonly object chance
    cdef readonly Counters default
    cdef readonly object thread_waiters
    cdef readonly object task_waiters
    cdef dict known
    cdef dict __dict__  # so that tests can replace a verb of one limiter
    cdef object __weakref__

    @cython.locals(counters=Counters)
    cpdef Counters counters(self, limit)
