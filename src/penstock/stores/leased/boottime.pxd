from libc.stdint cimport int64_t
from posix.time cimport clock_gettime, clockid_t, timespec


cdef extern from "time.h":
    const clockid_t CLOCK_BOOTTIME


cdef inline int64_t boot_now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_BOOTTIME, &time)
    return <int64_t> time.tv_sec * 1_000_000_000 + time.tv_nsec
