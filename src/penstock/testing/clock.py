"""FakeClock: time that passes when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading

from penstock.clock import SECOND
from penstock.waiters import call_in

# The beginning of 2024, so that calendar windows have a realistic date.
DEFAULT_START = 1_704_067_200 * SECOND
# Passes of the event loop without a new sleeper after which all tasks count as idle.
_QUIET_PASSES = 20


class FakeClock:
    """A clock that stands still until it is moved.

    ``clock.advance(1.5)`` moves it by seconds; ``clock.set(ns)`` sets it to any time, also back.
    With ``autojump`` (the default), ``sleep`` advances the clock and returns at once. When all
    tasks of an event loop sleep on this clock, it jumps to the first that is due. Without
    ``autojump``, sleepers wait until another task or thread advances the clock.
    """

    def __init__(self, start: int = DEFAULT_START, *, autojump: bool = True) -> None:
        self._now = _checked(start)
        self._autojump = autojump
        self._moved = threading.Condition()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ids = itertools.count()
        self._watching = False

    def now(self) -> int:
        """Nanoseconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number is a step back."""
        self.set(self._now + round(seconds * SECOND))

    def advance_ns(self, nanoseconds: int) -> None:
        """The same in nanoseconds, for exact times."""
        self.set(self._now + nanoseconds)

    def set(self, now: int) -> None:
        """Set the clock to a time in nanoseconds, and wake sleepers that are due."""
        with self._moved:
            self._now = _checked(now)
            self._moved.notify_all()
        while self._sleepers and self._sleepers[0][0] <= self._now:
            sleeper = heapq.heappop(self._sleepers)[2]
            loop = sleeper.get_loop()
            if not loop.is_closed():
                call_in(loop, _finish, sleeper)

    def sleep(self, seconds: float) -> None:
        if self._autojump:
            self.advance(max(0.0, seconds))
            return
        with self._moved:
            due = self._now + round(seconds * SECOND)
            self._moved.wait_for(lambda: self._now >= due)

    async def sleep_async(self, seconds: float) -> None:
        due = self._now + round(max(0.0, seconds) * SECOND)
        loop = asyncio.get_running_loop()
        if due <= self._now:
            await asyncio.sleep(0)
            return
        future = loop.create_future()
        heapq.heappush(self._sleepers, (due, next(self._ids), future))
        if self._autojump and not self._watching:
            self._watching = True
            loop.call_soon(self._watch, loop, 0, next(self._ids))
        await future

    def _watch(self, loop: asyncio.AbstractEventLoop, quiet: int, seen: int) -> None:
        """Jump when no new task has gone to sleep for some passes of the loop."""
        newest = next(self._ids)
        quiet = quiet + 1 if newest == seen + 1 else 0
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if not self._sleepers:
            self._watching = False
            return
        if quiet >= _QUIET_PASSES:
            self.set(max(self._now, self._sleepers[0][0]))
            quiet = 0
        loop.call_soon(self._watch, loop, quiet, newest)

    def __repr__(self) -> str:
        return f"<FakeClock at {self._now} ns>"


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _checked(now: int) -> int:
    if type(now) is not int or now < 0:
        raise ValueError(f"a time is a whole number of nanoseconds of at least 0, not {now!r}")
    return now
