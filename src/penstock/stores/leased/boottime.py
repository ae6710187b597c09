"""The clock of leases: monotonic, and it goes on while the machine is suspended.

CLOCK_MONOTONIC stands still then: after an hour of sleep, a lease would seem fresh. The ``.pxd``
beside this has the same function in C.
"""

from __future__ import annotations

import time

from penstock.clock import MonotonicClock


def boot_now() -> int:
    """Nanoseconds since the machine was started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class BootClock(MonotonicClock):
    def now(self) -> int:
        return boot_now()


BOOT = BootClock()
