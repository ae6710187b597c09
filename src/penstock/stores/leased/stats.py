"""LeaseStats: the figures of a `LeasedStore`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseStats:
    """What a `LeasedStore` has done so far, and what it holds now."""

    leases: int  # keys that are leased now
    held: int  # units in hand now
    decided_here: int
    decided_directly: int  # by a call to Redis, of limits that can be leased
    calls: int  # to the bank, for any number of keys
    messages: int  # one a key in each call
    failures: int  # calls that were not answered
    granted: int  # units in all
    returned: int  # of them, given back unspent
    lapsed: int  # of them, not spent in time
    stretched: int  # leases are so many times as long as usual, because there are many

    @property
    def local_share(self) -> float:
        """The part of all decisions that needed no call of their own."""
        decided = self.decided_here + self.decided_directly
        return self.decided_here / decided if decided else 0.0

    @property
    def unused_share(self) -> float:
        """The part of the granted units that nobody could spend, because they lapsed."""
        return self.lapsed / self.granted if self.granted else 0.0

    @property
    def calls_saved(self) -> int:
        """Calls that direct decisions would have taken in addition."""
        return max(0, self.decided_here - self.calls)
