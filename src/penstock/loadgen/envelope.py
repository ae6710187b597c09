"""How many requests a limit may allow, and how many it did.

At most, for one key, in t seconds::

    buckets             burst + t * amount / period
    fixed windows       amount in each window that t touches: floor(t / period) + 2
    sliding windows     amount in each period that t holds:   floor(t / period) + 1

A limit that allows far fewer evenly spaced requests is also wrong: ``used`` is the part of
min(sent, at most) that was allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.durations import SECOND
from penstock.limits import Limit

_BUCKETS = ("token_bucket", "leaky_bucket")
_FIXED = "fixed_window"


@dataclass(frozen=True, slots=True)
class Accuracy:
    """``most``: what one key may have got. ``over``: how many keys got more, and the worst."""

    limit: Limit
    most: int
    over: int
    worst_key: int
    worst: int
    possible: int
    allowed: int

    @property
    def used(self) -> float:
        """The part of what was possible that was allowed."""
        return self.allowed / self.possible if self.possible else 1.0


def most_allowed(limit: Limit, seconds: float) -> int:
    period = limit.period_ns / SECOND
    if limit.algorithm in _BUCKETS:
        return int(limit.burst + seconds * limit.amount / period)
    windows = int(seconds / period) + (2 if limit.algorithm == _FIXED else 1)
    return limit.amount * windows


def accuracy(
    limit: Limit, seconds: float, asked: Sequence[int], allowed: Sequence[int]
) -> Accuracy:
    """``seconds``: from the first request to the last answer."""
    most = most_allowed(limit, seconds)
    worst_key = max(range(len(allowed)), key=allowed.__getitem__)
    return Accuracy(
        limit=limit,
        most=most,
        over=sum(1 for count in allowed if count > most),
        worst_key=worst_key,
        worst=allowed[worst_key],
        possible=sum(min(count, most) for count in asked),
        allowed=sum(allowed),
    )
