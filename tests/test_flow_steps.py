"""Steps of a flow: how a task pauses until it is woken or its time is up."""

from __future__ import annotations

import asyncio

import pytest

from penstock.clock import MonotonicClock
from penstock.flow_steps import Pause
from penstock.testing import FakeClock
from penstock.waiters import TaskWaiter


async def _passes() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_pause_that_was_woken_does_not_end_the_next_one() -> None:
    clock, waiter = FakeClock(autojump=False), TaskWaiter("k")
    first = asyncio.create_task(Pause(clock, 10**9, waiter).run_async())
    await _passes()
    waiter.wake()
    assert await first
    second = asyncio.create_task(Pause(clock, 10**9, waiter).run_async())
    await _passes()
    assert not second.done(), "the timer of the first one was cancelled, not run out"
    clock.advance(1)
    assert not await second


@pytest.mark.parametrize("order", [("wake", "time_out"), ("time_out", "wake")])
async def test_a_waiter_that_is_woken_when_its_time_is_up_was_woken(order: tuple[str, str]) -> None:
    waiter = TaskWaiter("k")
    pause = asyncio.create_task(Pause(MonotonicClock(), 10**12, waiter).run_async())
    await _passes()
    for verb in order:
        getattr(waiter, verb)()
    assert await pause
