"""Arrivals: when each key asked, in bounded memory.

If there are too many requests, whole keys are left out by a hash of their number: the sequences
of the others stay intact, and quantiles over keys unbiased. The heaviest keys are never left out.
"""

from __future__ import annotations

from array import array
from typing import Any

from penstock.errors import PenstockError
from penstock.replay.recommending import arrivals

_HEAVIEST = 1000
_LEAST_ARRIVALS = 100_000
# As it came, and by key: all of them, the first 70 %, and the rest.
_ARRIVAL_BYTES = 12 + 3 * 8


class Arrivals:
    """The time and the key of each request, in bounded memory."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self.keys: array[int] = array("i")
        self.times: array[int] = array("q")
        self._most = 0
        self._halvings = 0
        self._heavy: set[int] = set()

    @property
    def bytes(self) -> int:
        return _ARRIVAL_BYTES * len(self.keys)

    def has_room(self, tables: int) -> bool:
        """Set how much there is beside tables of that size; whether that is enough."""
        self._most = (self._memory - tables) // _ARRIVAL_BYTES
        return self._most >= _LEAST_ARRIVALS

    def add(self, rows: array[int], times: array[int], n: int, replay: Any) -> None:
        if self._halvings:
            # A key that has become one of the heaviest is taken in again.
            tally = next(iter(replay.outcome().rules)).tally
            self._heavy.update(tally.top(_HEAVIEST, False))
            kept = array("i", [self._is_kept(row) for row in range(tally.keys)])
            rows, times = rows[:n], times[:n]
            n = arrivals.keep_sampled(rows, times, n, kept)
        self.keys.extend(rows[:n])
        self.times.extend(times[:n])
        while len(self.keys) > self._most:
            self._halve(replay)

    def _halve(self, replay: Any) -> None:
        """Keep half of the keys, by a hash of their number, and the heaviest."""
        self._halvings += 1
        tally = next(iter(replay.outcome().rules)).tally
        self._heavy.update(tally.top(_HEAVIEST, False))
        kept = array("i", [self._is_kept(row) for row in range(tally.keys)])
        left = arrivals.keep_sampled(self.keys, self.times, len(self.keys), kept)
        del self.keys[left:], self.times[left:]
        if left > self._most * 0.9 and self._halvings > 40:
            raise PenstockError("the heaviest keys alone need more memory: give --memory more")

    def _is_kept(self, row: int) -> bool:
        mixed = (row * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> (64 - max(1, self._halvings))
        return self._halvings == 0 or mixed == 0 or row in self._heavy

    def share(self, keys: int) -> float:
        """Which part of the keys is there."""
        if not self._halvings:
            return 1.0
        return sum(1 for row in range(keys) if self._is_kept(row)) / max(1, keys)

    def part(self, start: int, end: int, keys: int) -> tuple[array[int], array[int]]:
        """The requests from ``start`` until before ``end``, by key."""
        low, high = first_from(self.times, start), first_from(self.times, end)
        starts: array[int] = array("q", bytes(8 * (keys + 1)))
        out: array[int] = array("q", bytes(8 * max(1, high - low)))
        arrivals.group_by_key(
            self.keys[low:high], self.times[low:high], high - low, keys, starts, out
        )
        return starts, out


def first_from(times: array[int], time: int) -> int:
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low
