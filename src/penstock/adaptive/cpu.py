"""How busy the processor is: of the whole machine, or with this process.

Each is a function to be called again and again; it returns the part that was busy since the
last call, from 0 to 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from penstock.clock import MONOTONIC, Clock

STAT = Path("/proc/stat")
QUOTA = Path("/sys/fs/cgroup/cpu.max")


class SystemCPU:
    """All processors of the machine, whoever uses them. Linux: reads ``/proc/stat``.

    In a container that is the host. Where the container may use only a part of it, take
    `ProcessCPU`.
    """

    def __init__(self, path: Path = STAT) -> None:
        self._path = path
        self._busy, self._total = self._read()

    def __call__(self) -> float:
        busy, total = self._read()
        passed = total - self._total
        part = (busy - self._busy) / passed if passed > 0 else 0.0
        self._busy, self._total = busy, total
        return min(1.0, max(0.0, part))

    def _read(self) -> tuple[int, int]:
        with self._path.open() as file:
            words = file.readline().split()
        if not words or words[0] != "cpu" or len(words) < 6:
            raise OSError(f"{self._path} does not begin with the line of all processors")
        # user nice system idle iowait irq softirq steal; guests are counted in user already.
        ticks = [int(word) for word in words[1:9]]
        idle = ticks[3] + ticks[4]
        return sum(ticks) - idle, sum(ticks)


class ProcessCPU:
    """This process, as a part of the processors it may use.

    ``cores`` is how many these are; by default what the container is allowed, or else the
    process.
    """

    def __init__(
        self,
        cores: float | None = None,
        *,
        clock: Clock = MONOTONIC,
        used_ns: Callable[[], int] = time.process_time_ns,
    ) -> None:
        if cores is not None and not cores > 0:
            raise ValueError(f"cores is a number above 0, such as 2 or 0.5, not {cores!r}")
        self.cores = usable_cores() if cores is None else cores
        self._clock = clock
        self._used_ns = used_ns
        self._at, self._used = clock.now(), used_ns()

    def __call__(self) -> float:
        at, used = self._clock.now(), self._used_ns()
        passed = (at - self._at) * self.cores
        part = (used - self._used) / passed if passed > 0 else 0.0
        self._at, self._used = at, used
        return min(1.0, max(0.0, part))


def usable_cores(quota: Path = QUOTA) -> float:
    """By the container's quota if it has one, else by what the scheduler lets us run on."""
    try:
        allowed, period = quota.read_text().split()
        return int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or it says "max"
        pass
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_reader() -> Callable[[], float]:
    return SystemCPU() if STAT.exists() else ProcessCPU()
