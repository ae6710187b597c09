"""Shared slots in tasks: cancelled at any point, in several event loops, over several threads."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("redis")

from penstock.concurrency import AsyncConcurrencyLimiter, ConcurrencyLimiter, State
from penstock.errors import LineFull, NoSlot, WaitedTooLong
from penstock.stores.redis import RedisStore

Options = dict[str, Any]


@pytest.fixture
def options(redis_url: str, prefix: str) -> Options:
    store = RedisStore(redis_url, prefix=prefix, connect_timeout="60s")
    return {"waiting": 50, "lease": 60, "on_failure": "closed", "store": store}


async def held(limiter: AsyncConcurrencyLimiter, key: str = "k") -> int:
    slots: Any = limiter._slots
    client, _ = slots._server._client_of_loop()
    count: int = await client.zcard(slots._calls._names(key)[0])
    return count


async def nothing_left(limiter: AsyncConcurrencyLimiter) -> None:
    """All that is under way has ended, and nobody holds or awaits anything."""
    slots: Any = limiter._slots
    while slots._tasks:
        await asyncio.sleep(0.001)
    assert slots.queues == {}
    assert slots._pollers == {}
    assert await held(limiter) == 0


async def test_slots_of_two_limiters(options: Options) -> None:
    async with (
        AsyncConcurrencyLimiter(2, **options) as here,
        AsyncConcurrencyLimiter(2, **options) as there,
    ):
        async with here.slot("k") as hold, there.slot("k"):
            assert (hold.lost, hold.degraded) == (False, False)
            with pytest.raises(LineFull):
                await here.slot("k", timeout=0).__aenter__()
            with pytest.raises(WaitedTooLong):
                await there.slot("k", timeout=0.05).__aenter__()
            waits = asyncio.ensure_future(here.slot("k").__aenter__())
            await asyncio.sleep(0.05)
            assert not waits.done()
        assert (await asyncio.wait_for(waits, 60)).waited >= 0.04
        assert await held(here) == 1


async def test_a_lease_is_renewed_while_its_task_runs(options: Options) -> None:
    async with AsyncConcurrencyLimiter(1, **options | {"lease": 0.6}) as limiter:
        async with limiter.slot("k") as hold:
            for _ in range(11):
                await asyncio.sleep(0.1)
                assert await held(limiter) == 1
            assert not hold.lost
        await nothing_left(limiter)


@pytest.mark.parametrize("waiting", [0, 10])
async def test_cancelling_at_any_point_loses_nothing(waiting: int, options: Options) -> None:
    async with AsyncConcurrencyLimiter(1, **options | {"waiting": waiting}) as limiter:
        async with limiter.slot("k"):
            pass
        for turns in range(40):
            task = asyncio.ensure_future(limiter.slot("k").__aenter__())
            for _ in range(turns // 2):
                await asyncio.sleep(0.0001 if turns % 2 else 0)
            task.cancel()
            seen = (await asyncio.gather(task, return_exceptions=True))[0]
            if not isinstance(seen, BaseException):  # it was in: give it back
                slots = limiter._slots
                await slots.give_back_async(slots.leave(seen._waiter))
            await nothing_left(limiter)


async def test_chaos(options: Options) -> None:
    chance = random.Random(7)
    inside = most = ran = 0
    limiters = [AsyncConcurrencyLimiter(3, **options | {"fair": True}) for _ in range(2)]

    async def work(limiter: AsyncConcurrencyLimiter) -> None:
        nonlocal inside, most, ran
        await asyncio.sleep(chance.random() * 0.5)
        try:
            async with limiter.slot(
                "k", priority=chance.randrange(-1, 2), by=chance.choice("xy"),
                timeout=chance.choice((None, 0.3, 0)),
            ):  # fmt: skip
                inside += 1
                most, ran = max(most, inside), ran + 1
                try:
                    await asyncio.sleep(chance.random() * 0.01)
                finally:
                    inside -= 1
                if chance.random() < 0.1:
                    raise ValueError
        except (NoSlot, ValueError):
            pass

    tasks = [asyncio.ensure_future(work(limiters[n % 2])) for n in range(200)]
    for task in chance.sample(tasks, 60):
        await asyncio.sleep(chance.random() * 0.015)
        task.cancel()
    for seen in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60):
        assert seen is None or isinstance(seen, asyncio.CancelledError), seen
    assert (inside, most) == (0, 3)
    assert ran > 50
    for limiter in limiters:
        await nothing_left(limiter)
        await limiter.close()


def test_threads_and_event_loops_share_one_limiter(options: Options) -> None:
    limiter = ConcurrencyLimiter(2, **options)
    inside, most, lock = 0, 0, threading.Lock()

    def change(by: int) -> None:
        nonlocal inside, most
        with lock:
            inside += by
            most = max(most, inside)

    @limiter.limit(key="k")
    def block() -> None:
        change(1)
        threading.Event().wait(0.001)
        change(-1)

    @limiter.limit(key="k")
    async def suspend() -> None:
        change(1)
        await asyncio.sleep(0.001)
        change(-1)

    async def main() -> None:
        await asyncio.gather(*(suspend() for _ in range(15)))
        await limiter.close_async()

    work: list[Callable[[], Any]] = [lambda: asyncio.run(main())] * 2
    threads = [threading.Thread(target=each) for each in [*work, *[block] * 15]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (inside, most) == (0, 2)
    assert limiter.state("k") == State(2, 0, 0)
    limiter.close()


def test_one_limiter_in_one_event_loop_after_another(options: Options) -> None:
    limiter = AsyncConcurrencyLimiter(1, **options)

    async def main() -> None:
        async with limiter, limiter.slot("k", timeout=60) as hold:
            assert not hold.degraded

    def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(main())

    for _ in range(3):
        run(main)
    assert len(limiter._slots._renewal._homes) <= 1  # type: ignore[attr-defined]  # of the shared kind
