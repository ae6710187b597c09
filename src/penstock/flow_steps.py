"""The steps of the limiter's flows, and how they are run.

A flow (see flows.py) yields steps and is sent what they return. Each step can be run in both
ways: ``run`` blocks the thread, ``run_async`` is awaited by a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock import flows
from penstock.clock import Clock, MonotonicClock, WallClock
from penstock.stores.base import Counters, Store
from penstock.waiters import TaskWaiter, ThreadWaiter, Waiter

Result = TypeVar("Result")

# How often, in seconds, a thread looks at a clock that cannot wake it.
_LOOK_EVERY = 0.001


class Step(Protocol):
    def run(self) -> Any: ...

    def run_async(self) -> Awaitable[Any]: ...


def drive(flow: Generator[Step, Any, Result]) -> Result:
    """Run a flow to its end, blocking."""
    return flows.run(flow, lambda step: step.run())


async def drive_async(flow: Generator[Step, Any, Result]) -> Result:
    """Run a flow to its end, suspending."""
    return await flows.run_async(flow, lambda step: step.run_async())


@dataclass(frozen=True, slots=True)
class CallCounters:
    """Call ``verb`` of the counters; returns what that returns."""

    counters: Counters
    verb: str
    args: tuple[Any, ...]

    def run(self) -> Any:
        return getattr(self.counters, self.verb)(*self.args)

    def run_async(self) -> Awaitable[Any]:
        return self.counters.submit(self.verb, *self.args)


@dataclass(frozen=True, slots=True)
class CallEach:
    """Call ``verb`` of several counters, each with its arguments; a list of what they return."""

    store: Store
    verb: str
    calls: list[tuple[Counters, tuple[Any, ...]]]

    def run(self) -> Any:
        return self.store.call_each(self.verb, self.calls)

    def run_async(self) -> Awaitable[Any]:
        return asyncio.gather(*[c.submit(self.verb, *args) for c, args in self.calls])


@dataclass(frozen=True, slots=True)
class HitAll:
    """Take from all of several keys, or from none; with ``attempt``, a refusal is no violation."""

    store: Store
    items: list[tuple[Counters, str, int]]
    attempt: bool = False

    def run(self) -> Any:
        return self.store.hit_each(self.items, self.attempt)

    def run_async(self) -> Awaitable[Any]:
        return self.store.hit_each_async(self.items, self.attempt)


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until the time is up (``None``: never) or ``waiter`` is woken; whether it was woken."""

    clock: Clock
    nanoseconds: int | None
    waiter: Waiter | None = None

    def run(self) -> bool:
        waiter, clock, nanoseconds = self.waiter, self.clock, self.nanoseconds
        # A waiter with a place in a leaky bucket is never woken in a thread: only tasks, which
        # can be cancelled, give their places up.
        if not isinstance(waiter, ThreadWaiter) or waiter.width:
            assert nanoseconds is not None
            clock.sleep(nanoseconds / 1e9)
            return False
        if nanoseconds is None:
            return waiter.wait(None)
        if isinstance(clock, (MonotonicClock, WallClock)):
            return waiter.wait(nanoseconds / 1e9)
        due = clock.now() + nanoseconds
        while clock.now() < due:
            if waiter.wait(_LOOK_EVERY):
                return True
        return False

    async def run_async(self) -> bool:
        waiter, clock = self.waiter, self.clock
        if self.nanoseconds is None:
            assert isinstance(waiter, TaskWaiter)
            return await waiter.wait()
        seconds = self.nanoseconds / 1e9
        if not isinstance(waiter, TaskWaiter):
            await clock.sleep_async(seconds)
            return False
        timer: asyncio.TimerHandle | asyncio.Task[None]
        if isinstance(clock, (MonotonicClock, WallClock)):
            # Cheaper than a task.
            timer = asyncio.get_running_loop().call_later(seconds, waiter.time_out)
        else:
            timer = asyncio.ensure_future(clock.sleep_async(seconds))
            timer.add_done_callback(lambda sleep: None if sleep.cancelled() else waiter.time_out())
        try:
            return await waiter.wait()
        finally:
            timer.cancel()
