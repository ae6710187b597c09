"""MemoryStore: state in this process, bounded, nothing to install."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from penstock._mode import COMPILED
from penstock.clock import Clock
from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.limits import Limit
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

# For tests, which change all stores of a process: those that exist, and a function that gets the
# counters that a store makes. See `penstock.testing.in_process`.
STORES: WeakSet[MemoryStore] = WeakSet()
on_new_counters: Callable[[MemoryStore, MemoryCounters], None] | None = None


class ClosedClock(Clock):
    """The clock of a store that was closed: every decision asks for the time first.

    So an open store pays nothing for it.
    """

    def now(self) -> int:
        raise StoreError("the store is closed")

    def sleep(self, seconds: float) -> None:
        raise StoreError("the store is closed")

    async def sleep_async(self, seconds: float) -> None:
        raise StoreError("the store is closed")


CLOSED_CLOCK = ClosedClock()


class MemoryStore(Store):
    """The default store, embedded in the process.

    Holds at most ``max_keys`` keys, over all limits. Expired keys (the bucket is full again, the
    window has passed) are dropped. When the store is full of live keys, it evicts the one of
    some neighbours that has used least of its limit, and counts it in ``evictions``: the limit
    starts afresh for that key. Keys that are locked out are evicted last.

    ``clock`` is used for every limit. By default, buckets and sliding windows use the monotonic
    clock, and windows aligned to the epoch or the calendar use the wall clock.
    """

    name = "memory"

    def __init__(self, max_keys: int = DEFAULT_MAX_KEYS, clock: Clock | None = None) -> None:
        if type(max_keys) is not int or not 1 <= max_keys <= MOST_KEYS:
            raise ValueError(f"max_keys is a whole number from 1 to 2**40, not {max_keys!r}")
        super().__init__()
        self._clock = check_clock(clock)
        self._bound = Bound(max_keys)
        self.closed = False
        STORES.add(self)

    def make_counters(self, limit: Limit, name: str | None = None) -> Counters:
        if self.closed:
            raise StoreError("the store is closed")
        counters = MemoryCounters(limit, self._clock, self._bound)
        if on_new_counters is not None:
            on_new_counters(self, counters)
        return counters

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

    def clear(self) -> None:
        """Forget every key of every limit, as between tests."""
        for counters in self.all_counters():
            counters.clear()

    def close(self) -> None:
        """Forget everything, for good: from now on the store raises `StoreError`."""
        with self._making:
            self.closed = True
            STORES.discard(self)
            for counters in self.all_counters():
                counters.close(CLOSED_CLOCK)

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sweep(self, segments: int = 64) -> int:
        """Free the memory of expired keys without waiting for traffic to do it.

        Looks through at most ``segments`` segments of each limit's table, some microseconds
        each, and returns how many keys were dropped.
        """
        if type(segments) is not int or not 1 <= segments < 2**31:
            raise ValueError(f"segments is a whole number of at least 1, not {segments!r}")
        swept = 0
        for counters in self.all_counters():
            swept += counters.sweep(segments)
        return swept

    def all_counters(self) -> list[MemoryCounters]:
        """The counters of all its limits."""
        counters = list(self._counters.values())
        return [each for each in counters if isinstance(each, MemoryCounters)]

    @property
    def clock(self) -> Clock | None:
        """The clock that it was given."""
        return self._clock

    @property
    def max_keys(self) -> int:
        return self._bound.max_keys

    @property
    def keys(self) -> int:
        """How many keys are held, including expired ones that were not swept yet."""
        return self._bound.keys

    @property
    def evictions(self) -> int:
        """How many live keys have been evicted."""
        return self._bound.evictions

    def __repr__(self) -> str:
        return f"<MemoryStore {self.keys} of {self.max_keys} keys>"
