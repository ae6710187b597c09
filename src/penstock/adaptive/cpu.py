"""CPU load, of the whole machine or of this process.

Each reader is called repeatedly and returns the load since its last call, from 0 to 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from penstock.clock import MONOTONIC, Clock

STAT = Path("/proc/stat")
QUOTA = Path("/sys/fs/cgroup/cpu.max")


class _LoadReader:
    """``read`` returns the busy and the total time so far; ``cores`` may be busy at once."""

    def __init__(self, read: Callable[[], tuple[int, int]], cores: float = 1) -> None:
        self._read = read
        self._parallel = cores
        self._busy, self._total = read()

    def __call__(self) -> float:
        busy, total = self._read()
        available = (total - self._total) * self._parallel
        load = (busy - self._busy) / available if available > 0 else 0.0
        self._busy, self._total = busy, total
        return min(1.0, max(0.0, load))


class SystemCPU(_LoadReader):
    """The load of all CPUs of the machine. Linux only: reads ``/proc/stat``.

    In a container, this is the load of the host. If the container may use only a part of the
    host, use `ProcessCPU`.
    """

    def __init__(self, path: Path = STAT) -> None:
        self._path = path
        super().__init__(self._read_ticks)

    def _read_ticks(self) -> tuple[int, int]:
        with self._path.open() as file:
            label, *fields = file.readline().split() or [""]
        if label != "cpu" or len(fields) < 5:
            raise OSError(f"{self._path} does not begin with the line of all processors")
        # user nice system idle iowait irq softirq steal; user already includes guests.
        ticks = [int(field) for field in fields[:8]]
        idle = ticks[3] + ticks[4]
        return sum(ticks) - idle, sum(ticks)


class ProcessCPU(_LoadReader):
    """The load of this process, relative to the CPUs that it may use.

    ``cores`` is their number; by default the quota of the container, or else the CPUs that the
    process may run on.
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
        super().__init__(lambda: (used_ns(), clock.now()), self.cores)


def usable_cores(quota: Path = QUOTA) -> float:
    """The container's CPU quota, if it has one; else the CPUs this process may run on."""
    try:
        allowed, period = quota.read_text().split()
        return int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or no quota ("max")
        pass
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_reader() -> Callable[[], float]:
    return SystemCPU() if STAT.exists() else ProcessCPU()
