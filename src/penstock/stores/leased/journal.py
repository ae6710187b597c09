"""Journal: what happens to the leases of a store, counted for `stats` and told to its hooks.

Everything here happens in the thread of the renewal, or in whoever gives leases back, never in
a decision. Events are made only if somebody listens.
"""

from __future__ import annotations

from penstock.durations import SECOND
from penstock.events import (
    Hooks,
    LeaseExpired,
    LeaseGranted,
    LeaseReturned,
    LeasesCutOff,
    LeasesRestored,
)
from penstock.stores.leased.lease import Lease


class Journal:
    """Of one `LeasedStore`, whose ``name`` the events have."""

    def __init__(self, name: str) -> None:
        self.hooks = Hooks()
        self.granted = 0
        self.returned = 0
        self.lapsed = 0
        self.messages = 0
        self.failures = 0
        self._name = name
        self._cut_off_at = -1  # since when there was no answer; -1 if there was one

    def grant(self, lease: Lease, units: int) -> None:
        """The bank has granted units."""
        self.granted += units
        if units == lease.granted and self.hooks:  # the first
            self.hooks.emit(LeaseGranted(self._name, lease.counters.limit, lease.key, units))

    def give_up(self, units: int) -> None:
        """So many go back with the next message."""
        self.returned += units

    def end(self, lease: Lease) -> None:
        """All of it has gone back, and the bank knows. One that was never granted is no lease."""
        if lease.granted > 0 and self.hooks:
            units = lease.returned
            self.hooks.emit(LeaseReturned(self._name, lease.counters.limit, lease.key, units))

    def lapse(self, lease: Lease, units: int) -> None:
        """So many were not spent in time."""
        self.lapsed += units
        if units > 0 and self.hooks:
            self.hooks.emit(LeaseExpired(self._name, lease.counters.limit, lease.key, units))

    def fail(self, reason: str, now: int) -> None:
        """A call was not answered."""
        self.failures += 1
        if self._cut_off_at < 0:
            self._cut_off_at = now
            if self.hooks:
                self.hooks.emit(LeasesCutOff(self._name, reason))

    def answer(self, now: int) -> None:
        """A call was answered."""
        if self._cut_off_at >= 0:
            since, self._cut_off_at = self._cut_off_at, -1
            if self.hooks:
                self.hooks.emit(LeasesRestored(self._name, (now - since) / SECOND))
