"""Clocks: they tell the time and they can wait for it.

Time is a whole number of nanoseconds. Nothing in Penstock reads the system's
clock by itself: a store is given a clock, or uses these two. Which one depends
on the limit: a bucket cares only how much time has passed (`MonotonicClock`),
a window that starts at midnight must know what day it is (`WallClock`).
A clock that is handed to a store is used for every limit in it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, runtime_checkable

SECOND = 1_000_000_000


@runtime_checkable
class Clock(Protocol):
    """Tells the time in nanoseconds, never below zero, and sleeps."""

    def now(self) -> int:
        """Nanoseconds since some fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Return once that much time has passed."""

    async def sleep_async(self, seconds: float) -> None:
        """The same for a coroutine."""


class _RealSleep:
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class MonotonicClock(_RealSleep):
    """Monotonic: never steps back, starts anywhere, means nothing on another machine."""

    def now(self) -> int:
        return time.monotonic_ns()


class WallClock(_RealSleep):
    """Wall: nanoseconds since 1970-01-01 UTC. May be stepped, forwards and back."""

    def now(self) -> int:
        return time.time_ns()


MONOTONIC = MonotonicClock()
WALL = WallClock()
