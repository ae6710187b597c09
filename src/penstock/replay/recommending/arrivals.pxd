cimport cython
from libc.stdint cimport int32_t, int64_t

cdef int64_t HOUR

@cython.locals(i=int64_t, at=int64_t)
cpdef group_by_key(
    int32_t[::1] keys, int64_t[::1] times, int64_t n, int64_t count, int64_t[::1] starts,
    int64_t[::1] out,
)

@cython.locals(k=int64_t, i=int64_t, j=int64_t, best=int64_t)
cpdef most_in_window(int64_t[::1] starts, int64_t[::1] times, int64_t window, int64_t[::1] out)

@cython.locals(k=int64_t, i=int64_t, best=int64_t, count=int64_t, cell=int64_t)
cpdef most_in_aligned(int64_t[::1] starts, int64_t[::1] times, int64_t window, int64_t[::1] out)

@cython.locals(k=int64_t, i=int64_t, backlog=int64_t, most=int64_t, last=int64_t)
cpdef bursts_at(int64_t[::1] starts, int64_t[::1] times, int64_t interval, int64_t[::1] out)

@cython.locals(k=int64_t, i=int64_t, tat=int64_t, refused=int64_t, now=int64_t, capacity=int64_t)
cpdef refused_by_bucket(
    int64_t[::1] starts, int64_t[::1] times, int64_t interval, int64_t burst, int64_t[::1] out
)

@cython.locals(
    k=int64_t, i=int64_t, first=int64_t, end=int64_t, oldest=int64_t, refused=int64_t, now=int64_t
)
cpdef refused_by_log(
    int64_t[::1] starts, int64_t[::1] times, int64_t window, int64_t limit,
    int64_t[::1] admitted, int64_t[::1] out,
)

@cython.locals(
    k=int64_t, i=int64_t, tat=int64_t, now=int64_t, capacity=int64_t, count=int64_t
)
cpdef int64_t refused_times(
    int64_t[::1] starts, int64_t[::1] times, int64_t interval, int64_t burst, int64_t[::1] out
)

@cython.locals(i=int64_t, hour=int64_t)
cpdef count_hours(int64_t[::1] times, int64_t n, int64_t[::1] out)

@cython.locals(i=int64_t, left=int64_t)
cpdef int64_t keep_sampled(
    int32_t[::1] keys, int64_t[::1] times, int64_t n, int32_t[::1] kept
)

@cython.locals(i=int64_t, out=list)
cpdef list rows_from(int64_t[::1] needs, int64_t least)
