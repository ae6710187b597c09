"""Reservoir: a uniform sample of a stream, in constant memory (Vitter's algorithm R).

The first ``size`` values are kept. Each later one, the n-th, replaces a kept value with
probability ``size / n``. So every value has the same probability of being in the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable


class Reservoir:
    """``chance`` returns a random number from 0 (inclusive) to 1 (exclusive)."""

    def __init__(self, size: int, chance: Callable[[], float]) -> None:
        self._size = size
        self._chance = chance
        self._kept: list[int] = []
        self.seen = 0

    def add(self, value: int) -> None:
        self.seen += 1
        if len(self._kept) < self._size:
            self._kept.append(value)
            return
        index = int(self._chance() * self.seen)
        if index < self._size:
            self._kept[index] = value

    def quantile(self, fraction: float) -> int:
        """The smallest value in the sample that is at least as large as ``fraction`` of it."""
        ordered = sorted(self._kept)
        # The subtraction corrects rounding: 0.07 * 100 is slightly above 7.
        return ordered[max(1, math.ceil(fraction * len(ordered) - 1e-9)) - 1]

    def clear(self) -> None:
        self._kept.clear()
        self.seen = 0
