"""Pace: whether bytes move fast enough, in either direction."""

from __future__ import annotations


class Pace:
    """A minimum rate, in bytes a second, that must be kept in every period.

    Only the sum over a whole period counts: a peer that sends in bursts is not closed, and one
    that was fast at first cannot be slow for ever after. With a rate of 0, one byte in each
    period is enough.
    """

    __slots__ = ("_least", "_moved", "_period", "_rate", "deadline")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._period = self._least = self.deadline = 0.0
        self._moved = 0

    def start(self, now: float, period: float) -> None:
        self._period = period
        self._least = max(1.0, self._rate * period)
        self._moved = 0
        self.deadline = now + period

    def moved(self, count: int) -> None:
        self._moved += count

    def is_late(self, now: float) -> bool:
        """Whether the rate was kept; called now and then. A kept period is followed by the next."""
        if now < self.deadline:
            return False
        if self._moved < self._least:
            return True
        self.start(now, self._period)
        return False
