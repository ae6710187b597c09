"""Pace: whether bytes move fast enough, in either direction."""

from __future__ import annotations


class Pace:
    """A least rate, in bytes a second, that has to be kept in every period.

    Only how much moves in a whole period counts: somebody who sends in bursts is not cut off,
    and somebody who was quick at first cannot be slow for ever after. With a rate of 0, one byte
    in each period is enough.
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
        """Asked now and then. A period that went well is followed by the next one."""
        if now < self.deadline:
            return False
        if self._moved < self._least:
            return True
        self.start(now, self._period)
        return False
