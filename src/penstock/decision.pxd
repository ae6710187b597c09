cimport cython
from libc.stdint cimport int64_t


cdef class Decision:
    cdef object _limit
    cdef bint _allowed
    cdef bint _overrun
    cdef bint _degraded
    cdef readonly int64_t _room     # what is left, in steps of _unit
    cdef readonly int64_t _unit
    cdef readonly int64_t _retry    # nanoseconds; -1: never
    cdef readonly int64_t _reset
    cdef readonly int64_t _delay
    cdef readonly int64_t _mark     # where the hit was booked, so that a refund finds it

    cpdef int64_t shown_remaining(self)
    cpdef int64_t shown_reset(self)


@cython.locals(out=Decision)
cdef Decision new_decision(object limit)


@cython.locals(out=Decision)
cpdef Decision decided(
    object limit, bint allowed, int64_t room, int64_t unit, int64_t retry, int64_t reset,
    int64_t delay, bint overrun, int64_t mark, bint degraded=*,
)
