"""Tasks that wait, are handed a slot and are cancelled; event loops that share a limiter."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from penstock.concurrency import (
    HIGH,
    LOW,
    AsyncConcurrencyLimiter,
    ConcurrencyLimiter,
    Hold,
    State,
)
from penstock.errors import LineFull, WaitedTooLong
from penstock.testing import FakeClock


async def turn() -> None:
    """Let all tasks run as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_slot_goes_to_the_first_in_line_and_to_nobody_else() -> None:
    limiter, log = AsyncConcurrencyLimiter(1, waiting=10), []

    async def work(name: str) -> None:
        async with limiter.slot():
            log.append(name)

    async with limiter.slot():
        tasks = [asyncio.ensure_future(work(name)) for name in "abc"]
        await turn()
    # It is handed over already: who comes now cannot take it.
    assert limiter.state() == State(1, 1, 2)
    with pytest.raises(LineFull):
        await limiter.slot(timeout=0).__aenter__()
    await asyncio.gather(*tasks)
    assert log == ["a", "b", "c"]
    assert limiter.state() == State(1, 0, 0)


async def test_a_task_that_is_cancelled_in_the_moment_of_its_turn_hands_the_slot_on() -> None:
    limiter, log = AsyncConcurrencyLimiter(1, waiting=10), []

    async def work(name: str) -> None:
        async with limiter.slot():
            log.append(name)

    async with limiter.slot():
        tasks = [asyncio.ensure_future(work(name)) for name in "abc"]
        await turn()
    tasks[0].cancel()  # woken, and has not run yet
    tasks[2].cancel()  # waits in the queue
    seen = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in seen] == [
        asyncio.CancelledError, type(None), asyncio.CancelledError
    ]  # fmt: skip
    assert log == ["b"]
    assert limiter._slots.queues == {}


@pytest.mark.parametrize("turns", range(8))
async def test_cancelling_after_any_number_of_turns_loses_nothing(turns: int) -> None:
    limiter = AsyncConcurrencyLimiter(1, waiting=10)

    async def work() -> None:
        async with limiter.slot(timeout=60):
            await asyncio.sleep(0)

    first, second, third = (asyncio.ensure_future(work()) for _ in range(3))
    for _ in range(turns):
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert third.done()
    assert not third.cancelled()
    assert limiter._slots.queues == {}


async def test_a_time_out_counts_from_arrival_and_by_the_limiters_clock() -> None:
    clock = FakeClock()
    limiter = AsyncConcurrencyLimiter(1, waiting=10, clock=clock)
    async with limiter.slot():
        start = clock.now()
        with pytest.raises(WaitedTooLong, match=r"after 2\.500 s") as error:
            await limiter.slot("all", timeout=2.5).__aenter__()
        assert clock.now() - start == 2_500_000_000
        assert (error.value.running, error.value.waiting) == (1, 1)
        assert limiter.state() == State(1, 1, 0)


async def test_who_is_pushed_out_is_told_at_once() -> None:
    limiter = AsyncConcurrencyLimiter(1, waiting=1)
    async with limiter.slot():
        low = asyncio.ensure_future(limiter.slot(priority=LOW).__aenter__())
        await turn()
        high = asyncio.ensure_future(limiter.slot(priority=HIGH).__aenter__())
        with pytest.raises(LineFull, match="a request with a higher rank arrived"):
            await low
        with pytest.raises(LineFull, match=r"the queue is full$"):
            await limiter.slot().__aenter__()
    assert isinstance(await high, Hold)
    assert limiter.state().running == 1


async def test_a_coroutine_that_is_thrown_away_gives_back_its_place() -> None:
    limiter = AsyncConcurrencyLimiter(1, waiting=5)
    async with limiter.slot():
        coroutine = limiter.slot().__aenter__()
        coroutine.send(None)
        assert limiter.state().waiting == 1
        coroutine.close()
        assert limiter.state() == State(1, 1, 0)


def test_several_event_loops_and_threads_share_one_limiter() -> None:
    limiter = ConcurrencyLimiter(2, waiting=200)
    inside, most, lock = 0, 0, threading.Lock()

    def enter() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)

    def leave() -> None:
        nonlocal inside
        with lock:
            inside -= 1

    @limiter.limit(key="k")
    def block() -> None:
        enter()
        time.sleep(0.0002)
        leave()

    @limiter.limit(key="k")
    async def suspend() -> None:
        enter()
        await asyncio.sleep(0.0002)
        leave()

    async def main() -> None:
        await asyncio.gather(*(suspend() for _ in range(30)))

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(3)]
    threads += [threading.Thread(target=lambda: [block() for _ in range(30)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (inside, most) == (0, 2)
    assert limiter._slots.queues == {}


def test_who_waits_in_an_event_loop_that_was_closed_is_passed_over() -> None:
    limiter = AsyncConcurrencyLimiter(1, waiting=5)
    gone, here = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def wait_a_little(slot: Any) -> Any:
        task = asyncio.ensure_future(slot.__aenter__())
        await turn()
        return task

    held = limiter.slot()
    here.run_until_complete(held.__aenter__())
    lost = gone.run_until_complete(wait_a_little(limiter.slot()))
    waits = here.run_until_complete(wait_a_little(limiter.slot()))
    gone.close()
    here.run_until_complete(held.__aexit__(None, None, None))
    assert isinstance(here.run_until_complete(asyncio.wait_for(waits, 60)), Hold)
    here.close()
    # What asyncio says of a task that nobody ended is not what this is about.
    lost._log_destroy_pending = False
    del lost
    gc.collect()
    assert limiter.state() == State(1, 1, 0)
