"""Stretch: how much longer leases are, because this process has too many to renew them in time.

Each lease is renewed about once a horizon. With very many hot keys, that is more than one thread
can do, or more than it should take from the threads that decide. Then all leases of the process
get longer, in steps of two: half as many messages, and twice as many units in hand. When there is
less to do, they get shorter again.

There is no clock in here.
"""

from __future__ import annotations

from penstock.durations import MILLISECOND

# The load is computed over so long.
_PERIOD = 500 * MILLISECOND
# The thread may take this part of a core,
_CPU = 0.25
# and have more than one trip's messages to send for this part of the time.
_QUEUED = 0.5
# Above 1 / 2, so that one step back does not lead to the next step forward.
_CALM = 0.4
# So many calm periods, one after the other, make leases shorter.
_CALM_PERIODS = 4
MOST = 16


class Stretch:
    """Of one `Renewal`."""

    def __init__(self, now: int) -> None:
        self.factor = 1
        self._since = now
        self._cpu = 0
        self._queued = 0
        self._calm = 0

    def worked(self, now: int, cpu: int, queued: int) -> None:
        """The thread has done something, until ``now``: it took ``cpu`` nanoseconds of a core,
        and for ``queued`` nanoseconds there were messages that had to wait for others."""
        self._cpu += cpu
        self._queued += queued
        elapsed = now - self._since
        if elapsed < _PERIOD:
            return
        load = max(self._cpu / elapsed / _CPU, self._queued / elapsed / _QUEUED)
        self._since, self._cpu, self._queued = now, 0, 0
        self._calm = self._calm + 1 if load < _CALM else 0
        if load > 1 and self.factor < MOST:
            self.factor *= 2
        elif self._calm >= _CALM_PERIODS and self.factor > 1:
            self.factor //= 2
            self._calm = 0
