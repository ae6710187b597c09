cimport cython
from libc.stdint cimport int64_t

from penstock.decision cimport Decision, decided
from penstock.stores.base cimport Counters
from penstock.stores.leased.boottime cimport boot_now
from penstock.stores.leased.lease cimport Lease

cdef int TAKEN
cdef int UNKNOWN


cdef class LeasedCounters(Counters):
    cdef readonly Counters direct
    cdef readonly int64_t asked_horizon
    cdef readonly object asked_ttl
    cdef readonly double asked_share
    cdef readonly object usual_terms
    cdef readonly object terms
    cdef readonly int stretched
    cdef readonly dict leases
    cdef readonly int64_t decided_here
    cdef readonly int64_t decided_directly
    cdef object _renewal
    cdef object _boot
    cdef bint _system
    cdef bint _refills
    cdef bint _paced
    cdef int64_t _horizon
    cdef int64_t _burst
    cdef int64_t _unit
    cdef int64_t _capacity
    cdef dict _heat
    cdef int64_t _heat_since

    @cython.locals(units=int64_t, now=int64_t, outcome=int, lease=Lease)
    cpdef Decision here(self, key, cost)
    @cython.locals(lease=Lease, now=int64_t, units=int64_t)
    cpdef Decision look(self, key, cost)
    @cython.locals(unit=int64_t, room=int64_t, reset=int64_t, retry=int64_t, delay=int64_t)
    cpdef Decision decision(self, Lease lease, bint allowed, int64_t now, int64_t taken)
    @cython.locals(now=int64_t, count=int64_t)
    cpdef watch(self, str key, int64_t cost)
    @cython.locals(lease=Lease)
    cpdef bint put_back(self, key, cost, int64_t mark=*) except -1
