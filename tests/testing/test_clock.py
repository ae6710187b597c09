"""FakeClock: stands still, is moved, and jumps to whoever sleeps."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock import Clock, MonotonicClock, WallClock
from penstock.testing import FakeClock

SECOND = 10**9


def test_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(5 * SECOND)
    assert [clock.now(), clock.now()] == [5 * SECOND, 5 * SECOND]
    clock.advance(1.5)
    clock.advance_ns(1)
    assert clock.now() == 6_500_000_001
    clock.set(7)
    assert clock.now() == 7
    assert repr(clock) == "<FakeClock at 7 ns>"


def test_steps_back_as_well() -> None:
    clock = FakeClock(5 * SECOND)
    clock.advance(-2)
    assert clock.now() == 3 * SECOND


def test_starts_at_a_midnight_in_utc() -> None:
    assert FakeClock().now() % (86_400 * SECOND) == 0


def test_seconds_are_rounded_to_nanoseconds() -> None:
    clock = FakeClock()
    start = clock.now()
    for _ in range(10):
        clock.advance(0.1)
    assert clock.now() - start == SECOND


@pytest.mark.parametrize("now", [-1, 1.5, "0", None, True])
def test_a_time_is_a_whole_number_of_nanoseconds(now: Any) -> None:
    with pytest.raises(ValueError, match=r"^a time is a whole number of nanoseconds"):
        FakeClock(now)
    with pytest.raises(ValueError, match=r"^a time is a whole number of nanoseconds"):
        FakeClock().set(now)


def test_all_clocks_are_clocks() -> None:
    for clock in (FakeClock(), MonotonicClock(), WallClock()):
        assert isinstance(clock, Clock)
        assert clock.now() > 0


def test_sleeping_lets_time_pass_by_itself() -> None:
    clock = FakeClock(0)
    clock.sleep(2.5)
    clock.sleep(0)
    clock.sleep(-1)
    assert clock.now() == 2_500_000_000


def test_without_autojump_a_thread_sleeps_until_somebody_moves_the_clock() -> None:
    clock, woken = FakeClock(0, autojump=False), []

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        woken.append((seconds, clock.now()))

    sleepers = [threading.Thread(target=sleep, args=(seconds,), daemon=True) for seconds in (1, 3)]
    for sleeper in sleepers:
        sleeper.start()
    clock.advance(2)
    # Whoever went to sleep late sleeps from then on: move until both are up.
    while any(sleeper.is_alive() for sleeper in sleepers):
        sleepers[0].join(0.001)
        clock.advance(1)
    assert len(woken) == 2
    assert all(now >= seconds * SECOND for seconds, now in woken)


async def test_tasks_wake_in_order_and_time_jumps_to_each() -> None:
    clock, woken = FakeClock(0), []

    async def sleep(name: str, *naps: float) -> None:
        for nap in naps:
            await clock.sleep_async(nap)
            woken.append((name, clock.now() / SECOND))

    await asyncio.gather(sleep("a", 3, 1), sleep("b", 1, 1, 1.5), sleep("c", 3))
    assert woken == [("b", 1.0), ("b", 2.0), ("a", 3.0), ("c", 3.0), ("b", 3.5), ("a", 4.0)]


async def test_time_does_not_jump_while_a_task_is_busy() -> None:
    clock, seen = FakeClock(0), []

    async def work() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        seen.append(clock.now())

    await asyncio.gather(clock.sleep_async(5), work())
    assert (seen, clock.now()) == ([0], 5 * SECOND)


async def test_no_time_is_no_sleep() -> None:
    clock = FakeClock(7, autojump=False)
    await clock.sleep_async(0)
    await clock.sleep_async(-1)
    assert clock.now() == 7


async def test_a_cancelled_sleeper_does_not_move_time() -> None:
    clock = FakeClock(0)
    long, short = (asyncio.create_task(clock.sleep_async(nap)) for nap in (60, 1))
    await asyncio.sleep(0)
    long.cancel()
    await short
    for _ in range(100):
        await asyncio.sleep(0)
    assert clock.now() == SECOND


async def test_without_autojump_tasks_wait_for_the_clock() -> None:
    clock = FakeClock(0, autojump=False)
    task = asyncio.create_task(clock.sleep_async(2))
    for _ in range(100):
        await asyncio.sleep(0)
    clock.advance(1.999999999)
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance_ns(1)
    await task


async def test_a_thread_that_moves_the_clock_wakes_tasks_by_the_safe_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop that has gone to sleep hears of nothing but ``call_soon_threadsafe``."""
    loop, here, unheard = asyncio.get_running_loop(), threading.get_ident(), []
    call_soon = loop.call_soon

    def watched(callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        if threading.get_ident() != here:
            unheard.append(callback)
        return call_soon(callback, *args, context=context)

    monkeypatch.setattr(loop, "call_soon", watched)
    clock = FakeClock(0, autojump=False)
    task = asyncio.create_task(clock.sleep_async(2))
    await asyncio.sleep(0)
    await asyncio.to_thread(clock.advance, 2)
    await task
    assert unheard == []


def test_a_clock_can_be_used_by_one_loop_after_another() -> None:
    clock = FakeClock(0)
    for _ in range(2):
        asyncio.run(clock.sleep_async(1))
    assert clock.now() == 2 * SECOND


def test_a_loop_that_ended_early_leaves_nothing_behind() -> None:
    clock = FakeClock(0)

    async def give_up() -> None:
        task = asyncio.create_task(clock.sleep_async(60))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(give_up())
    asyncio.run(clock.sleep_async(1))
    assert clock.now() == SECOND
