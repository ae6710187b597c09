"""The uncompiled counters of `MemoryStore`: a dict and a lock.

The same decisions as the compiled table, for machines without a compiler and to
test the compiled table against. One lock guards all limits of a store; every
operation under it is short.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from penstock.algorithms.words import NO_MARK, NO_ROOM, Words
from penstock.clock import Clock
from penstock.decision import Decision, new_decision
from penstock.limit import Limit
from penstock.stores.base import Counters, check_cost, check_key, pick

_SAMPLE = 16
_SWEEP_EVERY = 64
_Slot = tuple["DictCounters", str]


class Bound:
    """How many keys a store may hold, over all its limits, and the lock of all of them."""

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.evictions = 0
        self.lock = threading.RLock()
        # Of all limits in order of arrival, so that a few of them can be looked at in turn.
        self.rows: dict[_Slot, list[int]] = {}
        self.inserted = 0

    @property
    def keys(self) -> int:
        return len(self.rows)


class DictCounters(Counters):
    """The counters of one limit, in this process."""

    def __init__(self, limit: Limit, clock: Clock | None, bound: Bound) -> None:
        Counters.__init__(self, limit, clock)
        self.bound = bound
        self.blank = self._new_row()
        self.algorithm.start(self.now())

    def hit(self, key: str, cost: int) -> Decision:
        cost, key = check_cost(cost), check_key(key)
        with self.bound.lock:
            return self.take(key, cost, self.ready())

    def peek(self, key: str, cost: int) -> Decision:
        cost, key = check_cost(cost), check_key(key)
        with self.bound.lock:
            return self.look(key, cost, self.ready())

    def charge(self, key: str, cost: int) -> None:
        cost, key = check_cost(cost), check_key(key)
        with self.bound.lock:
            now = self.ready()
            row = self._row(key)
            while self.algorithm.charge(Words(row), cost, now) == NO_ROOM:
                self._grow(row)

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        cost, key = check_cost(cost), check_key(key)
        with self.bound.lock:
            row = self.bound.rows.get((self, key))
            if row is not None:
                self.algorithm.refund(Words(row), cost, self.ready(), mark, kept)

    def reset(self, key: str) -> None:
        with self.bound.lock:
            self.bound.rows.pop((self, check_key(key)), None)

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        cost, names = check_cost(cost), [check_key(key) for key in keys]
        with self.bound.lock:
            now = self.ready()
            return [self.take(key, cost, now) for key in names]

    def sweep(self, segments: int) -> int:
        """Look through the oldest keys for expired ones; how many were dropped."""
        with self.bound.lock:
            return self._sweep(segments * _SWEEP_EVERY)

    @property
    def keys(self) -> int:
        with self.bound.lock:
            return sum(1 for counters, _ in self.bound.rows if counters is self)

    # Under the lock ----------------------------------------------------------

    def ready(self) -> int:
        """The time, with the algorithm prepared for it."""
        now = self.now()
        if not self.algorithm.valid_from <= now < self.algorithm.valid_until:
            self.algorithm.refresh(now)
        return now

    def take(self, key: str, cost: int, now: int) -> Decision:
        if cost > self.algorithm.most:
            return self.look(key, cost, now)
        out = new_decision(self.limit)
        row = self._row(key)
        while self.algorithm.decide(Words(row), cost, now, 0, True, out) == NO_ROOM:
            self._grow(row)
        return out

    def look(self, key: str, cost: int, now: int) -> Decision:
        out = new_decision(self.limit)
        row = self.bound.rows.get((self, key), self.blank)
        most = self.algorithm.most
        self.algorithm.decide(Words(row), min(cost, most + 1), now, 0, False, out)
        if cost > most:
            out._allowed = False
            out._retry = -1
        return out

    def _row(self, key: str) -> list[int]:
        row = self.bound.rows.get((self, key))
        if row is None:
            self.bound.inserted += 1
            if self.bound.inserted % _SWEEP_EVERY == 0:
                self._sweep(2 * _SWEEP_EVERY)
            if len(self.bound.rows) >= self.bound.max_keys and not self._sweep(_SAMPLE):
                self._evict()
            row = self.bound.rows[self, key] = self._new_row()
        return row

    def _new_row(self) -> list[int]:
        row = [0] * self.algorithm.words
        self._set_length(row)
        return row

    def _grow(self, row: list[int]) -> None:
        larger = [0] * min(2 * len(row), self.algorithm.most_words)
        self._set_length(larger)
        self.algorithm.carry(Words(row), Words(larger))
        row[:] = larger

    def _set_length(self, row: list[int]) -> None:
        at = self.algorithm.length_at
        if at >= 0:
            row[at] = len(row) - (at - 1)

    def _evict(self) -> None:
        """Of the keys that came first, the one that would be forgotten soonest gives way."""
        rows = self.bound.rows
        soonest = min(self._oldest(_SAMPLE), key=lambda slot: rows[slot][0] - slot[0].now())
        if rows.pop(soonest)[0] > soonest[0].now():
            self.bound.evictions += 1

    def _sweep(self, count: int) -> int:
        """Drop what has expired of the keys that came first; the others go to the back."""
        rows, dropped = self.bound.rows, 0
        for slot in self._oldest(count):
            row = rows.pop(slot)
            if row[0] > slot[0].now():
                rows[slot] = row
            else:
                dropped += 1
        return dropped

    def _oldest(self, count: int) -> list[_Slot]:
        return [slot for slot, _ in zip(self.bound.rows, range(count), strict=False)]


def hit_all(wanted: list[tuple[DictCounters, str, int]]) -> Decision | None:
    """See `Store.hit_all`; every item's counters are `DictCounters` of one store."""
    items = [(counters, check_key(key), check_cost(cost)) for counters, key, cost in wanted]
    best: Decision | None = None
    with items[0][0].bound.lock:
        moments = [counters.ready() for counters, _, _ in items]
        looked = [
            counters.look(key, cost, now)
            for (counters, key, cost), now in zip(items, moments, strict=True)
        ]
        refused = not all(looked)
        for (counters, key, cost), now, seen in zip(items, moments, looked, strict=True):
            # A limit that refuses takes nothing, but it may want to know (lockout).
            if not refused or not seen:
                best = pick(best, counters.take(key, cost, now))
    return best
