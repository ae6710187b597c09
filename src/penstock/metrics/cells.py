"""Counters: plain whole numbers in small objects, which cost a decision next to nothing.

A `Table` finds them by key and holds at most so many. What comes when it is full is counted
together, in ``other``: a client that makes up names cannot fill the memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from penstock.metrics.families import BOUNDS

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")

MOST_LABELS = 1_000


class RuleCell:
    """What one rule said, by outcome; and of these, how many without the shared store."""

    __slots__ = (
        "allowed", "degraded", "domain", "near_limit", "overrun", "refused", "rule", "shadowed",
        "shown", "uncounted", "values",
    )  # fmt: skip

    def __init__(self, domain: str, rule: str, values: str = "") -> None:
        self.domain = domain
        self.rule = rule
        self.values = values
        self.shown: Shown | None = None  # what is special about its keys
        self.allowed = self.near_limit = self.overrun = 0
        self.refused = self.shadowed = self.uncounted = self.degraded = 0


class DomainCell:
    """Requests of one domain: how long they took, and how many were refused."""

    __slots__ = ("domain", "latency", "reasons", "refused", "seconds", "unmatched")

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.latency = [0] * (len(BOUNDS) + 1)  # the last is above all bounds
        self.seconds = 0.0
        self.refused = 0
        self.unmatched = 0
        self.reasons: dict[str, int] = {}  # of other descriptors without a rule


class Shown:
    """How the pairs of a rule are told: which are worth a label, and which stand for more."""

    __slots__ = ("counted", "indexes")

    def __init__(
        self, indexes: tuple[int, ...] | None, counted: tuple[Callable[[str], str] | None, ...]
    ) -> None:
        self.indexes = indexes  # of the pairs in the label; None: the rule has no such label
        self.counted = counted  # by pair: what is counted in place of its value

    def pairs(self, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """As they are counted: a network in place of an address, a pattern of a value."""
        if not any(self.counted):
            return pairs
        return tuple(
            [
                (key, value if change is None else change(value))
                for (key, value), change in zip(pairs, self.counted, strict=False)
            ]
        )


class Table(Generic[K, C]):
    """Cells by key. ``found`` is looked into without a lock; only `cell` adds to it."""

    __slots__ = ("_lock", "_make", "_most", "folded", "found", "other")

    def __init__(self, most: int, make: Callable[[K], C], other: C) -> None:
        self._most = most
        self._make = make
        self._lock = threading.Lock()
        self.found: dict[K, C] = {}
        self.other = other
        self.folded = 0

    def cell(self, key: K, admitted: bool = True) -> C:
        """The cell of a key that was not found; ``other`` if there is no room for it."""
        with self._lock:
            cell = self.found.get(key)
            if cell is None:
                if not admitted or len(self.found) >= self._most:
                    self.folded += 1
                    return self.other
                cell = self.found[key] = self._make(key)
            return cell

    def keep(self, wanted: Callable[[K], bool]) -> None:
        """Forget the others, in one step."""
        with self._lock:
            self.found = {key: cell for key, cell in self.found.items() if wanted(key)}

    def cells(self) -> list[C]:
        """All of them, with ``other`` if it was needed."""
        cells = list(self.found.values())
        return [*cells, self.other] if self.folded else cells
