"""The uncompiled counters of `MemoryStore`: a dict and a lock.

One lock guards all limits of a store; every operation under it is short.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager, nullcontext

from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import Words
from penstock.clock import Clock
from penstock.decision import Decision
from penstock.limits import Limit
from penstock.stores._pure import PureCounters
from penstock.stores.base import Counters, check_key
from penstock.stores.levels import LITTLE, LOCKED, REFUSED, RUN_OUT, half_of, level_after

_SAMPLE = 16
_SAMPLE_MORE = 64
_SAMPLE_LOCKED = 4096
_SWEEP_EVERY = 64
_Slot = tuple["DictCounters", str]


_bounds: weakref.WeakSet[Bound] = weakref.WeakSet()


def _new_locks() -> None:
    """A forked child must not inherit a lock that another thread held."""
    for bound in list(_bounds):
        bound.lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_new_locks)


class Row(list[int]):
    """The words of a key, and its level."""

    __slots__ = ("level",)

    def __init__(self, words: int) -> None:
        super().__init__([0] * words)
        self.level = LITTLE


class Bound:
    """How many keys a store may hold, over all its limits, and the lock of all of them."""

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.evictions = 0
        self.lock = threading.RLock()
        # Of all limits, in order of arrival: the oldest are looked at first.
        self.rows: dict[_Slot, Row] = {}
        self.inserted = 0
        _bounds.add(self)

    @property
    def keys(self) -> int:
        return len(self.rows)


class DictCounters(PureCounters):
    """The counters of one limit, in this process."""

    def __init__(self, limit: Limit, clock: Clock | None, bound: Bound) -> None:
        Counters.__init__(self, limit, clock)
        self.bound = bound
        self._half = half_of(limit)
        self.blank = Words(self._new_row())
        self.algorithm.start(self.now())

    def place(self, key: str) -> _Slot:
        return self, check_key(key)

    def locked(self) -> AbstractContextManager[bool]:
        return self.bound.lock

    def find(self, place: _Slot) -> Words | None:
        row = self.bound.rows.get(place)
        return None if row is None else Words(row)

    def change(self, place: _Slot) -> AbstractContextManager[Words]:
        row = self.bound.rows.get(place)
        if row is None:
            self._make_room()
            row = self.bound.rows[place] = self._new_row()
        elif row.level and row[0] <= self.now():
            row.level = LITTLE  # it starts afresh
        return nullcontext(Words(row))

    def rise(self, place: _Slot, decision: Decision, most: int = LOCKED) -> None:
        row = self.bound.rows[place]
        earned = min(most, level_after(decision, self._half, bool(self.limit.lockout_ns)))
        row.level = max(row.level, earned)

    def grow(self, row: Words) -> None:
        larger = Words([0] * min(2 * len(row.cells), self.algorithm.most_words))
        self.set_length(larger, len(larger.cells))
        self.algorithm.carry(row, larger)
        row.cells[:] = larger.cells

    def remove(self, place: _Slot) -> None:
        self.bound.rows.pop(place, None)

    def sweep(self, segments: int) -> int:
        """Drop expired keys among the oldest; returns how many were dropped."""
        with self.bound.lock:
            return self._sweep(segments * _SWEEP_EVERY)

    def clear(self) -> None:
        """Forget every key."""
        with self.bound.lock:
            for slot in [slot for slot in self.bound.rows if slot[0] is self]:
                del self.bound.rows[slot]

    def close(self, clock: Clock) -> None:
        """Forget every key. From now on the clock, which raises, is asked first."""
        with self.bound.lock:
            self.clear()
            self.clock = clock

    def restart(self, clock: Clock, algorithm: Algorithm) -> None:
        """Forget every key, and go on by another clock and algorithm, as tests want it.

        A row of the algorithm must not be longer than one of the limit's own.
        """
        with self.bound.lock:
            self.clear()
            self.clock = clock
            self.algorithm = algorithm
            algorithm.start(self.now())

    def retire(self) -> bool:
        """Drop all keys, unless a live one is left; returns whether none is."""
        with self.bound.lock:
            now, rows = self.now(), self.bound.rows
            slots = [slot for slot in rows if slot[0] is self]
            for slot in slots:
                if rows[slot][0] <= now:
                    del rows[slot]
            return not any(slot in rows for slot in slots)

    @property
    def keys(self) -> int:
        with self.bound.lock:
            return sum(1 for counters, _ in self.bound.rows if counters is self)

    # Under the lock ----------------------------------------------------------

    def _new_row(self) -> Row:
        row = Row(self.algorithm.words)
        self.set_length(Words(row), len(row))
        return row

    def _make_room(self) -> None:
        self.bound.inserted += 1
        if self.bound.inserted % _SWEEP_EVERY == 0:
            self._sweep(2 * _SWEEP_EVERY)
        if len(self.bound.rows) >= self.bound.max_keys and not self._sweep(_SAMPLE):
            self._evict()

    def _evict(self) -> None:
        """Evict the key with the lowest rank among the oldest."""
        for count, enough in ((_SAMPLE, LITTLE), (_SAMPLE_MORE, REFUSED), (_SAMPLE_LOCKED, LOCKED)):
            least = min(self._oldest(count), key=self._rank)
            if self._rank(least)[0] <= enough:
                break  # else look at more of them: all are in use
        if self._rank(least)[0] != RUN_OUT:
            self.bound.evictions += 1
        del self.bound.rows[least]

    def _rank(self, slot: _Slot) -> tuple[int, int]:
        """The key with the lowest rank is evicted."""
        row, now = self.bound.rows[slot], slot[0].now()
        if row[0] <= now:
            return RUN_OUT, 0
        # The second word of a lockout is the time at which it ends.
        level = REFUSED if row.level == LOCKED and row[1] <= now else row.level
        return level, row[0] - now

    def _sweep(self, count: int) -> int:
        """Drop expired keys among the oldest; the others go to the back."""
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
