"""Reservoir: a fair sample of a stream, in memory that does not grow with it.

The first ``size`` values are kept. The n-th after that takes the place of a kept one with a
chance of ``size / n``; then every value so far was as likely to be kept as any other
(Vitter's algorithm R).
"""

from __future__ import annotations

import math
from collections.abc import Callable


class Reservoir:
    """``chance`` is a function that returns a number from 0 to below 1."""

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
        place = int(self._chance() * self.seen)
        if place < self._size:
            self._kept[place] = value

    def quantile(self, part: float) -> int:
        """The smallest kept value that at least ``part`` of those kept do not exceed."""
        ordered = sorted(self._kept)
        # Less a hair: 0.07 * 100 comes out just above 7.
        return ordered[max(1, math.ceil(part * len(ordered) - 1e-9)) - 1]

    def clear(self) -> None:
        self._kept.clear()
        self.seen = 0
