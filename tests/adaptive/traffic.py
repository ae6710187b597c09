"""Runs recorded by hand, and admissions that use the real limiters."""

from __future__ import annotations

from typing import Any

from penstock import Limiter, MemoryStore
from penstock.adaptive import AdaptiveLimit, AdaptiveRate
from penstock.clock import SECOND
from penstock.concurrency import ConcurrencyLimiter
from penstock.errors import NoSlot
from penstock.testing import FakeClock


class Teller:
    """Tells a strategy of windows full of runs, all of one duration."""

    def __init__(self, strategy: AdaptiveLimit, start: int = 1_000 * SECOND) -> None:
        self.strategy = strategy
        self.now = start

    def window(self, seconds: float, running: int | None = None) -> int:
        """One window of twenty runs that took so long and began in it; the limit then."""
        duration = round(seconds * SECOND)
        self.now += duration
        for number in range(20):
            if number:
                self.now += -(-self.strategy._window // 19)
            at_once = self.strategy.limit if running is None else running
            self.strategy.record(duration, at_once, False, self.now)
        self.now += 1
        return self.strategy.limit

    def drop(self, seconds: float = 0.0) -> int:
        self.strategy.record(round(seconds * SECOND), self.strategy.limit, True, self.now)
        return self.strategy.limit


class SlotAdmission:
    """The real concurrency limiter; ``of`` says each request's priority."""

    def __init__(self, limiter: ConcurrencyLimiter, clock: FakeClock, of: Any = None) -> None:
        self._limiter, self._clock, self._of = limiter, clock, of
        self._slots: dict[int, Any] = {}

    @property
    def limit(self) -> float:
        return self._limiter.state().limit

    def enter(self, number: int, now: int) -> bool:
        self._clock.set(now)
        slot = self._limiter.slot(priority=0 if self._of is None else self._of(number), timeout=0)
        try:
            slot.__enter__()
        except NoSlot:
            return False
        self._slots[number] = slot
        return True

    def leave(self, number: int, duration_ns: int, now: int) -> None:
        self._clock.set(now)
        self._slots.pop(number).__exit__(None, None, None)


class RateAdmission:
    """The real rate limiter, at the price of an `AdaptiveRate`."""

    def __init__(self, rate: AdaptiveRate, clock: FakeClock) -> None:
        self._rate, self._clock = rate, clock
        self._limiter = Limiter(store=MemoryStore(clock=clock))

    @property
    def limit(self) -> float:
        return self._rate.current

    def enter(self, number: int, now: int) -> bool:
        self._clock.set(now)
        return self._limiter.hit("all", self._rate.limit, cost=self._rate.cost).allowed

    def leave(self, number: int, duration_ns: int, now: int) -> None:
        self._clock.set(now)
        self._rate.record(duration_ns / SECOND)
