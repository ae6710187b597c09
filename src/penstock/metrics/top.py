"""Top: the keys that are counted most, in bounded memory. The space-saving sketch.

::

    a key that has a counter:    count += 1
    there is a counter free:     count = 1, error = 0
    else, of the smallest one:   the key is replaced, error = count, count += 1

With n counted by k counters, the smallest count is at most n/k. So for every key::

    count - error <= true count <= count
    error <= n/k
    true count > n/k  =>  the key is here

The smallest is found through a heap whose entries are brought up to date only when they
come to its top: a hit on a known key touches the dictionary alone.

Two sketches add up (`merge`) with the same promises: a key that only one of them has may
have been counted in the other up to that one's smallest count.
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
    """At most ``capacity`` keys; ``total`` is all that was counted."""

    __slots__ = ("_cells", "_heap", "_turn", "capacity", "total")

    def __init__(self, capacity: int = CAPACITY) -> None:
        if type(capacity) is not int or capacity < 1:
            raise ValueError(f"capacity is a whole number of at least 1, not {capacity!r:.100}")
        self.capacity = capacity
        self.total = 0
        self._cells: dict[K, list[int]] = {}  # count, error
        # Count when it was pushed, a number that breaks ties, key. Every key is in it once.
        self._heap: list[tuple[int, int, K]] = []
        self._turn = 0

    def add(self, key: K) -> None:
        self.total += 1
        cell = self._cells.get(key)
        if cell is not None:
            cell[0] += 1
            return
        self._turn += 1
        if len(self._cells) < self.capacity:
            self._cells[key] = [1, 0]
            heapq.heappush(self._heap, (1, self._turn, key))
            return
        heap, cells = self._heap, self._cells
        while True:
            count, turn, smallest = heap[0]
            cell = cells[smallest]
            if cell[0] == count:
                break
            heapq.heapreplace(heap, (cell[0], turn, smallest))
        del cells[smallest]
        cells[key] = [count + 1, count]
        heapq.heapreplace(heap, (count + 1, self._turn, key))

    def most(self, n: int | None = None) -> list[Counted[K]]:
        """The first ``n``, by count; a tie goes to the one that is surer."""
        found = [Counted(key, count, error) for key, (count, error) in list(self._cells.items())]
        found.sort(key=lambda each: (-each.count, each.error))
        return found if n is None else found[:n]

    @property
    def least(self) -> int:
        """What a key that is not here may have been counted, at most."""
        if len(self._cells) < self.capacity:
            return 0
        return min(count for count, _ in list(self._cells.values()))

    def __len__(self) -> int:
        return len(self._cells)

    def dump(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        rows = [[each.key, each.count, each.error] for each in self.most()]
        return {"capacity": self.capacity, "total": self.total, "rows": rows}


def load(dumped: dict[str, Any]) -> Top[tuple[str, ...]]:
    """What `Top.dump` gave, of keys that are tuples of texts."""
    top: Top[tuple[str, ...]] = Top(dumped["capacity"])
    top.total = int(dumped["total"])
    for key, count, error in dumped["rows"][: top.capacity]:
        _put(top, tuple(map(str, key)), int(count), int(error))
    return top


def merge(tops: Iterable[Top[K]]) -> Top[K]:
    """The sum of several, in a new one. Of different capacities, the smallest is kept to."""
    given = list(tops)
    # One that is empty has nothing to say about it, unless all are.
    told = [top.capacity for top in given if top.total] or [top.capacity for top in given]
    most = min(told, default=CAPACITY)
    out: Top[K] = Top(most)
    out.total = sum(top.total for top in given)
    floor = sum(top.least for top in given)
    sums: dict[K, list[int]] = {}
    for top in given:
        least = top.least
        for each in top.most():
            cell = sums.setdefault(each.key, [floor, floor])
            # In place of what it might have been counted there, what it was.
            cell[0] += each.count - least
            cell[1] += each.error - least
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0], item[1][1]))
    for key, (count, error) in ranked[:most]:
        _put(out, key, count, error)
    return out


def _put(top: Top[K], key: K, count: int, error: int) -> None:
    top._turn += 1
    top._cells[key] = [count, error]
    heapq.heappush(top._heap, (count, top._turn, key))
