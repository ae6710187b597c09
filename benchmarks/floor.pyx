# cython: language_level=3, binding=False
"""What no limiter can go below: a C method that takes a key and does nothing with it."""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef class Floor:
    cdef int64_t now

    def nothing(self, key):
        """An empty call."""

    def clock(self, key):
        """An empty call that reads the monotonic clock."""
        cdef timespec time
        clock_gettime(CLOCK_MONOTONIC, &time)
        self.now = <int64_t> time.tv_sec * 1_000_000_000 + time.tv_nsec
