"""Pace: whether bytes move fast enough, in either direction."""

from __future__ import annotations

import asyncio


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
        """Whether the rate was not kept; called now and then. Each period is judged by itself."""
        if now < self.deadline:
            return False
        if self._moved < self._least:
            return True
        self.start(now, self._period)
        return False


class ReadingPace:
    """The pace at which a peer reads, by what remains in the write buffer of a transport."""

    __slots__ = ("_left", "pace")

    def __init__(self, rate: float) -> None:
        self.pace = Pace(rate)
        self._left = 0

    def start(self, transport: asyncio.WriteTransport, now: float, period: float) -> None:
        self._left = transport.get_write_buffer_size()
        self.pace.start(now, period)

    def is_late(self, transport: asyncio.WriteTransport, now: float) -> bool:
        left = transport.get_write_buffer_size()
        self.pace.moved(max(0, self._left - left))
        self._left = left
        return self.pace.is_late(now)
