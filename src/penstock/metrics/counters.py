"""Counters: plain integers in small objects, which add almost no cost to a decision.

A `Table` finds them by key and is bounded. Keys that arrive when it is full are counted
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


class RuleCounters:
    """The decisions of one rule, by outcome, and how many were made without the store."""

    __slots__ = (
        "allowed", "degraded", "domain", "key_labels", "near_limit", "overrun", "refused", "rule",
        "shadowed", "uncounted", "values",
    )  # fmt: skip

    def __init__(self, domain: str, rule: str, values: str = "") -> None:
        self.domain = domain
        self.rule = rule
        self.values = values
        self.key_labels: KeyLabels | None = None  # how its keys are shown, if not as they are
        self.allowed = self.near_limit = self.overrun = 0
        self.refused = self.shadowed = self.uncounted = self.degraded = 0


class DomainCounters:
    """The requests of one domain: how long they took, and how many were refused."""

    __slots__ = ("domain", "latency", "reasons", "refused", "seconds", "unmatched")

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.latency = [0] * (len(BOUNDS) + 1)  # the last bucket is above all bounds
        self.seconds = 0.0
        self.refused = 0
        self.unmatched = 0
        self.reasons: dict[str, int] = {}  # other descriptors without a rule


class KeyLabels:
    """How the pairs of a rule are shown: which become labels, and how values are grouped."""

    __slots__ = ("counted", "indexes")

    def __init__(
        self, indexes: tuple[int, ...] | None, counted: tuple[Callable[[str], str] | None, ...]
    ) -> None:
        self.indexes = indexes  # of the pairs in the label; None: the rule has no label
        self.counted = counted  # by pair: maps its value to the one that is counted

    def pairs(self, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """The pairs as counted: the network of an address, the pattern of a value."""
        if not any(self.counted):
            return pairs
        return tuple(
            [
                (key, value if change is None else change(value))
                for (key, value), change in zip(pairs, self.counted, strict=False)
            ]
        )


class Table(Generic[K, C]):
    """Counters by key. ``by_key`` is read without a lock; only `add` changes it."""

    __slots__ = ("_lock", "_make", "_most", "by_key", "folded", "other")

    def __init__(self, most: int, make: Callable[[K], C], other: C) -> None:
        self._most = most
        self._make = make
        self._lock = threading.Lock()
        self.by_key: dict[K, C] = {}
        self.other = other
        self.folded = 0

    def add(self, key: K, admitted: bool = True) -> C:
        """The counters of a new key; ``other`` if there is no room for it."""
        with self._lock:
            counters = self.by_key.get(key)
            if counters is None:
                if not admitted or len(self.by_key) >= self._most:
                    self.folded += 1
                    return self.other
                counters = self.by_key[key] = self._make(key)
            return counters

    def keep(self, wanted: Callable[[K], bool]) -> None:
        """Drop all other keys, in one step."""
        with self._lock:
            self.by_key = {key: each for key, each in self.by_key.items() if wanted(key)}

    def all(self) -> list[C]:
        """The counters of all keys, with ``other`` if it was used."""
        counters = list(self.by_key.values())
        return [*counters, self.other] if self.folded else counters
