"""MemoryStore: state in this process, bounded, nothing to install."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._mode import COMPILED
from penstock.clock import Clock
from penstock.decision import Decision
from penstock.limit import Limit
from penstock.stores.base import Counters, Store, check_clock

if COMPILED and not TYPE_CHECKING:
    from penstock.stores._memory import MemoryCounters, hit_each
    from penstock.stores._table import Bound
else:
    from penstock.stores._dict import Bound
    from penstock.stores._dict import DictCounters as MemoryCounters
    from penstock.stores._pure import hit_each

DEFAULT_MAX_KEYS = 1_000_000
MOST_KEYS = 2**40


class MemoryStore(Store):
    """The embedded default.

    Holds at most ``max_keys`` keys, over all limits. A key whose state has run
    out (its bucket is full again, its window has passed) is forgotten by itself.
    When the store is full of keys that still matter, the one whose loss gives away
    least, of some neighbours, gives way and is counted in ``evictions``: for that key
    the limit starts afresh. A key that is locked out is the last to go.

    ``clock`` is used for every limit; by default buckets and sliding windows use
    the monotonic clock, and windows aligned to the epoch or the calendar the
    wall clock.
    """

    name = "memory"

    def __init__(self, max_keys: int = DEFAULT_MAX_KEYS, clock: Clock | None = None) -> None:
        if type(max_keys) is not int or not 1 <= max_keys <= MOST_KEYS:
            raise ValueError(f"max_keys is a whole number from 1 to 2**40, not {max_keys!r}")
        super().__init__()
        self._clock = check_clock(clock)
        self._bound = Bound(max_keys)

    def make_counters(self, limit: Limit) -> Counters:
        return MemoryCounters(limit, self._clock, self._bound)

    def release(self, limit: Limit) -> bool:
        with self._making:
            counters = self._counters.get(limit)
            if counters is None:
                return True
            assert isinstance(counters, MemoryCounters)
            if counters.retire():
                del self._counters[limit]
                return True
        return False

    def hit_each(self, wanted: list[tuple[Any, str, int]], attempt: bool = False) -> list[Decision]:
        decisions: list[Decision] = hit_each(wanted, attempt)
        return decisions

    def sweep(self, segments: int = 64) -> int:
        """Give back memory of expired keys without waiting for traffic to do it.

        Looks through at most ``segments`` segments of each limit's table (some
        microseconds each) and returns how many keys were dropped.
        """
        if type(segments) is not int or not 1 <= segments < 2**31:
            raise ValueError(f"segments is a whole number of at least 1, not {segments!r}")
        swept = 0
        for counters in list(self._counters.values()):
            assert isinstance(counters, MemoryCounters)
            swept += counters.sweep(segments)
        return swept

    @property
    def max_keys(self) -> int:
        return self._bound.max_keys

    @property
    def keys(self) -> int:
        """Keys held now, some of which may have expired without being swept yet."""
        return self._bound.keys

    @property
    def evictions(self) -> int:
        """How many keys with live state had to give way so far."""
        return self._bound.evictions

    def __repr__(self) -> str:
        return f"<MemoryStore {self.keys} of {self.max_keys} keys>"
