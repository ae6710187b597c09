"""A thousand tasks that are cancelled, run out of time and fail, at random.

In every step the queue does as the second implementation says, no more are inside than may
be, and at the end of each round nobody holds or awaits anything. ``PENSTOCK_ROUNDS=10000``
is the long form.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from concurrency.naive import Options, watched_queues
from penstock import errors
from penstock.concurrency import AsyncConcurrencyLimiter, local_slots
from penstock.testing import FakeClock

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "8"))
TASKS = 1000
SECOND = 10**9
KINDS = [
    Options(waiting=60, patience=SECOND),
    Options(waiting=60, patience=SECOND, fair=True),
    Options(waiting=40, patience=SECOND // 10, shares={-1: 0.4, 0: 0.8}),
    Options(waiting=40, patience=SECOND // 10, fair=True, shares={-1: 0.4, 0: 0.8}),
]


class Restless:
    """A size that changes with every run, up and down."""

    def __init__(self, chance: random.Random) -> None:
        self.limit = 8
        self.records: list[tuple[int, int, bool]] = []
        self._chance = chance

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        self.records.append((duration_ns, running, dropped))
        self.limit = min(12, max(0, self.limit + self._chance.choice((-1, 0, 1))))


class Chaos:
    """One round: so many tasks at one limiter, on a clock of their own."""

    def __init__(self, seed: int, options: Options) -> None:
        self.chance = random.Random(seed)
        self.clock = FakeClock()
        self.size = Restless(self.chance)
        self.limiter = AsyncConcurrencyLimiter(
            8 if seed % 2 else self.size, waiting=options.waiting,
            patience=options.patience / SECOND, fair=options.fair, shares=options.shares,
            clock=self.clock,
        )  # fmt: skip
        self.inside = {"a": 0, "b": 0}
        self.counts: dict[str, int] = {}
        self.busy: dict[asyncio.Task[Any] | None, None] = {}

    async def run(self) -> None:
        tasks = [asyncio.ensure_future(self.work()) for _ in range(TASKS)]
        await asyncio.gather(self.cancel_some(), *tasks, return_exceptions=True)
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise error
        assert self.inside == {"a": 0, "b": 0}
        assert self.limiter._slots.queues == {}, "somebody who has gone is remembered"

    async def work(self) -> None:
        chance = self.chance
        await self.clock.sleep_async(chance.random() * 0.4)
        key = chance.choice("ab")
        self.busy[asyncio.current_task()] = None
        try:
            async with self.limiter.slot(
                key,
                priority=chance.choice((-1, 0, 0, 1)),
                by=chance.choice("xyzzz"),
                timeout=chance.choice((None, None, 0, 0.05, 0.2, 1)),
            ) as hold:
                await self.run_inside(key)
                if chance.random() < 0.05:
                    hold.drop()
            self.count("ran")
        except (errors.NoSlot, TimeoutError, ZeroDivisionError) as error:
            self.count(type(error).__name__)
        except asyncio.CancelledError:
            self.count("cancelled")
            raise
        finally:
            del self.busy[asyncio.current_task()]

    async def run_inside(self, key: str) -> None:
        chance = self.chance
        self.inside[key] += 1
        try:
            if chance.random() < 0.8:
                await self.clock.sleep_async(chance.random() * 0.05)
            if chance.random() < 0.1:
                raise chance.choice((ZeroDivisionError, TimeoutError))("in the body")
        finally:
            self.inside[key] -= 1

    async def cancel_some(self) -> None:
        """Those in the queue or inside, at any time; also just as a slot is handed on."""
        for _ in range(TASKS // 4):
            if self.chance.random() < 0.5:
                await self.clock.sleep_async(self.chance.random() * 0.01)
            else:
                for _ in range(self.chance.randrange(4)):
                    await asyncio.sleep(0)
            task = self.chance.choice([*self.busy, None])
            if task is not None:
                task.cancel()

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_chaos(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    counts: dict[str, int] = {}
    monkeypatch.setattr(local_slots, "WaitingQueue", watched_queues(KINDS[kind], seen))
    for number in range(kind, max(ROUNDS, len(KINDS)), len(KINDS)):
        chaos = Chaos(number, KINDS[kind])
        asyncio.run(chaos.run())
        for what, times in chaos.counts.items():
            counts[what] = counts.get(what, 0) + times
    print(f"\n{counts}")
    assert counts.keys() == {
        "ran", "cancelled", "LineFull", "WaitedTooLong", "TimeoutError", "ZeroDivisionError"
    }, "not everything happened"  # fmt: skip
    assert {"from the queue", "pushed out", "full"} == set(seen)


async def test_the_size_hears_of_every_run_that_says_something_about_load() -> None:
    """Those that ended well or were dropped; an error of the body's own says nothing."""
    clock, size = FakeClock(), Restless(random.Random(1))
    limiter = AsyncConcurrencyLimiter(size, waiting=10, clock=clock)

    async def run(seconds: float, error: Any = None, drop: bool = False) -> None:
        async with limiter.slot() as hold:
            await clock.sleep_async(seconds)
            if drop:
                hold.drop()
            if error:
                raise error

    runs = [run(1), run(2, TimeoutError()), run(3, ValueError()), run(4, drop=True)]
    runs += [run(5, ValueError(), drop=True), run(6, asyncio.CancelledError())]
    await asyncio.gather(*runs, return_exceptions=True)
    assert [(took / SECOND, *rest) for took, *rest in size.records] == [
        (1, 1, False), (2, 2, True), (4, 4, True), (5, 5, True)
    ]  # fmt: skip
