"""QueuePolicy and Size: how many may run at once, who goes first, and which part priorities get.

::

    rank = arrived - priority * patience       the smallest goes first, ties by arrival
    capacity = ceil(share of its priority * limit)   a priority runs while fewer run

One step of priority is worth ``patience`` seconds of waiting. A rank never changes
during the wait, and the ranks of new waiters grow with time, so nobody starves: a waiter
that arrives more than ``patience`` later never overtakes one that is one step lower.

A size is a fixed number or adapts. A limiter reads its ``limit`` before each admission, and calls
``record`` for every run that says something about load.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Protocol, runtime_checkable

from penstock.durations import Duration, parse_duration
from penstock.limit_options import check_share

HIGH = 1
NORMAL = 0
LOW = -1


@runtime_checkable
class Size(Protocol):
    """How many may run at once, as an object that computes it.

    Both are called under the limiter's lock: they must be quick, and must not call the
    limiter. A ``limit`` below 1 counts as 1: without any run the size could never grow
    again.
    """

    @property
    def limit(self) -> int:
        """The current size."""

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        """Record a run that ended.

        Its duration, how many ran when it began (itself included), and whether it was
        dropped: by a ``TimeoutError`` in its body, or by ``drop()`` of its hold.
        """


class Fixed:
    """A size that does not change."""

    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        """There is nothing to learn."""


def as_size(limit: int | Size) -> Size:
    """``limit`` as a `Size`; raises if it is neither a number nor a size."""
    if isinstance(limit, int) and not isinstance(limit, bool):
        if limit < 1:
            raise ValueError(f"limit is how many may run at once, at least 1, not {limit!r}")
        return Fixed(limit)
    if not isinstance(limit, Size):
        raise TypeError(
            "limit is how many may run at once: a whole number such as 4, or a Size with limit"
            f" and record, not {limit!r}"
        )
    return limit


class QueuePolicy:
    """The options of a limiter, checked."""

    __slots__ = ("_named", "_shares", "classes", "fair", "patience", "size", "waiting")

    def __init__(
        self,
        limit: int | Size,
        waiting: int = 0,
        patience: Duration = 10.0,
        fair: bool = False,
        shares: Mapping[int, float] | None = None,
    ) -> None:
        if type(waiting) is not int or waiting < 0:
            raise ValueError(
                f"waiting is how many may wait in the queue, a whole number such as 100,"
                f" not {waiting!r}"
            )
        if not isinstance(fair, bool):
            raise TypeError(f"fair is True or False, not {fair!r}")
        self.size = as_size(limit)
        self.waiting = waiting
        self.patience = parse_duration(patience, "patience")
        self.fair = fair
        self._named, self._shares = _checked_shares(shares or {})
        self.classes = len(self._shares)

    @property
    def limit(self) -> int:
        """How many may run at once, now."""
        return max(1, self.size.limit)

    def rank(self, arrived: int, priority: int) -> int:
        return arrived - priority * self.patience

    def class_of(self, priority: int) -> int:
        """The class of a priority; a higher class may use more of the slots."""
        return bisect_left(self._named, priority)

    def capacity(self, number: int, limit: int) -> int:
        """How many of ``limit`` slots a class may use."""
        share = self._shares[number]
        return -(-limit * share.numerator // share.denominator)

    def lowest(self, inside: int, limit: int) -> int:
        """The lowest class that may still be admitted; ``classes`` if none."""
        for number in range(self.classes):
            if inside < self.capacity(number, limit):
                return number
        return self.classes


def check_priority(priority: object) -> int:
    if type(priority) is not int:
        raise TypeError(f"priority is a whole number such as HIGH, NORMAL or LOW, not {priority!r}")
    return priority


def _checked_shares(shares: Mapping[int, float]) -> tuple[list[int], list[Fraction]]:
    """The priorities with a share, in order, and the shares; the last is for all above."""
    if not isinstance(shares, Mapping):
        raise TypeError(f"shares is a dict such as {{LOW: 0.5, NORMAL: 0.9}}, not {shares!r}")
    named = sorted(check_priority(priority) for priority in shares)
    # From its decimal digits: 0.1 means a tenth, not the nearest double.
    parts = [Fraction(str(check_share(shares[priority]))) for priority in named]
    for below, above in pairwise(parts):
        if below > above:
            raise ValueError(f"shares must not fall as priority rises: {dict(shares)!r}")
    return named, [*parts, Fraction(1)]
