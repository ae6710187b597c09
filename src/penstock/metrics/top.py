"""Top: the most frequent keys, in bounded memory, by the space-saving sketch.

::

    the key has a counter:       count += 1
    a counter is free:           count = 1, error = 0
    otherwise:                   it replaces the smallest: error = count, count += 1

After n additions to k counters, the smallest count is at most n/k. So for every key::

    count - error <= true count <= count
    error <= n/k
    true count > n/k  =>  the key is here

The smallest is found through a heap whose entries are updated only when they reach its top: a
hit on a known key only touches the dictionary.

Sketches can be summed (`merge`) with the same guarantees. If a sketch lacks a key, the key may have
been counted there up to the smallest count of that sketch.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

CAPACITY = 1_000


@dataclass(frozen=True, slots=True)
class Counted(Generic[K]):
    """A key, counted between ``count - error`` and ``count`` times."""

    key: K
    count: int
    error: int


class Top(Generic[K]):
    """Counts at most ``capacity`` keys; ``total`` is the number of all additions."""

    __slots__ = ("_counters", "_heap", "_turn", "capacity", "total")

    def __init__(self, capacity: int = CAPACITY) -> None:
        if type(capacity) is not int or capacity < 1:
            raise ValueError(f"capacity must be a whole number of at least 1, not {capacity!r:.99}")
        self.capacity = capacity
        self.total = 0
        self._counters: dict[K, list[int]] = {}  # count, error
        # Count when it was pushed, a number that breaks ties, key. Every key is in it once.
        self._heap: list[tuple[int, int, K]] = []
        self._turn = 0

    def add(self, key: K) -> None:
        self.total += 1
        counter = self._counters.get(key)
        if counter is not None:
            counter[0] += 1
            return
        self._turn += 1
        if len(self._counters) < self.capacity:
            self._counters[key] = [1, 0]
            heapq.heappush(self._heap, (1, self._turn, key))
            return
        heap, counters = self._heap, self._counters
        while True:
            count, turn, smallest = heap[0]
            counter = counters[smallest]
            if counter[0] == count:
                break
            heapq.heapreplace(heap, (counter[0], turn, smallest))
        del counters[smallest]
        counters[key] = [count + 1, count]
        heapq.heapreplace(heap, (count + 1, self._turn, key))

    def most(self, n: int | None = None) -> list[Counted[K]]:
        """The first ``n`` by count; in a tie, the one with the smaller error goes first."""
        ranked = [Counted(key, count, error) for key, (count, error) in [*self._counters.items()]]
        ranked.sort(key=lambda each: (-each.count, each.error))
        return ranked if n is None else ranked[:n]

    @property
    def least(self) -> int:
        """The most that a key without a counter may have been counted."""
        if len(self._counters) < self.capacity:
            return 0
        return min(count for count, _ in list(self._counters.values()))

    def __len__(self) -> int:
        return len(self._counters)

    def dump(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        rows = [[each.key, each.count, each.error] for each in self.most()]
        return {"capacity": self.capacity, "total": self.total, "rows": rows}


def load(dumped: dict[str, Any]) -> Top[tuple[str, ...]]:
    """The `Top` of a `Top.dump`, with tuples of strings as keys."""
    top: Top[tuple[str, ...]] = Top(dumped["capacity"])
    top.total = int(dumped["total"])
    for key, count, error in dumped["rows"][: top.capacity]:
        _put(top, tuple(map(str, key)), int(count), int(error))
    return top


def merge(tops: Iterable[Top[K]]) -> Top[K]:
    """The sum, as a new `Top` with the smallest capacity of all."""
    tops = list(tops)
    # The capacity of an empty one does not matter, unless all are empty.
    capacities = [top.capacity for top in tops if top.total] or [top.capacity for top in tops]
    most = min(capacities, default=CAPACITY)
    out: Top[K] = Top(most)
    out.total = sum(top.total for top in tops)
    floor = sum(top.least for top in tops)
    sums: dict[K, list[int]] = {}
    for top in tops:
        least = top.least
        for each in top.most():
            counter = sums.setdefault(each.key, [floor, floor])
            # Replace what it might have been counted there by what it was.
            counter[0] += each.count - least
            counter[1] += each.error - least
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0], item[1][1]))
    for key, (count, error) in ranked[:most]:
        _put(out, key, count, error)
    return out


def _put(top: Top[K], key: K, count: int, error: int) -> None:
    top._turn += 1
    top._counters[key] = [count, error]
    heapq.heappush(top._heap, (count, top._turn, key))
