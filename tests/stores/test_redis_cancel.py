"""Callers that leave: nobody else's answer changes, and what they took is given back.

Each key has a limit of its own size, so that an answer which came to the wrong caller shows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from stores.proxy import Proxy

pytest.importorskip("redis")

from penstock import AsyncLimiter, Decision, Limiter
from penstock.stores.redis import RedisStore

KEYS = 200


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    # With time enough: here nothing is to be degraded.
    async with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as made:
        yield made


def limit(number: int) -> str:
    """Of which nothing comes back while we look."""
    return f"{100 + number}/year"


async def left(store: RedisStore, keys: int) -> list[int]:
    limiter = AsyncLimiter(store=store)
    seen = await asyncio.gather(*(limiter.peek(f"k{n}", limit(n)) for n in range(keys)))
    return [decision.remaining - 100 - n for n, decision in enumerate(seen)]


async def settled(store: RedisStore, expected: list[int]) -> list[int]:
    """What is left when all refunds are through: they are sent before what is asked later."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while await left(store, len(expected)) != expected:
                await asyncio.sleep(0.01)
    return await left(store, len(expected))


Hit = Callable[[int], Awaitable[Decision]]


async def cancel_some(
    store: RedisStore,
    hit: Hit,
    when: Callable[[int], Awaitable[None]],
    then: Callable[[], None] = lambda: None,
    cost: int = 1,
) -> int:
    """Cancel every third; the number of those who left. The others get what is theirs."""
    tasks = [asyncio.ensure_future(hit(number)) for number in range(KEYS)]

    async def cancel(number: int) -> None:
        await when(number)
        tasks[number].cancel()

    await asyncio.gather(*(cancel(number) for number in range(0, KEYS, 3)))
    then()
    await asyncio.wait(tasks)
    for number, task in enumerate(tasks):
        if not task.cancelled():
            assert task.result().remaining == 100 + number - cost, "somebody else's answer"
            assert not task.result().degraded
        else:
            assert number % 3 == 0
    expected = [0 if task.cancelled() else -cost for task in tasks]
    assert await settled(store, expected) == expected
    return sum(task.cancelled() for task in tasks)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_leaves_before_anything_is_sent(store: RedisStore) -> None:
    limiter = AsyncLimiter(store=store)
    gone = await cancel_some(store, lambda n: limiter.hit(f"k{n}", limit(n)), lambda n: turns(0))
    assert gone == len(range(0, KEYS, 3))


async def test_when_all_leave_before_anything_is_sent_nothing_is(
    proxied: Proxy, prefix: str
) -> None:
    async with RedisStore(
        proxied.url, prefix=prefix, deadline="60s", connect_timeout="60s"
    ) as store:
        limiter, before = AsyncLimiter("1/second", store=store), len(proxied.commands)
        tasks = [asyncio.ensure_future(limiter.hit(f"k{number}")) for number in range(10)]
        await turns(1)  # now they wait, and what they asked for leaves in the next turn
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(0.05)
        assert proxied.commands[before:] == []


async def test_who_leaves_while_it_is_under_way(proxied: Proxy, prefix: str) -> None:
    async def is_answered(_: int) -> None:
        while not proxied.held:
            await asyncio.sleep(0.001)

    async with RedisStore(
        proxied.url, prefix=prefix, deadline="60s", connect_timeout="60s"
    ) as store:
        await store.connect_async()
        proxied.hold()
        limiter = AsyncLimiter(store=store)
        gone = await cancel_some(
            store, lambda n: limiter.hit(f"k{n}", limit(n)), is_answered, proxied.let_pass
        )
        assert gone == len(range(0, KEYS, 3))


async def test_who_leaves_at_any_moment(store: RedisStore) -> None:
    """Also when the answer is there already and the task has not run yet."""
    limiter, chance, gone = AsyncLimiter(store=store), random.Random(7), 0
    for _ in range(10):
        gone += await cancel_some(
            store,
            lambda n: limiter.hit(f"k{n}", limit(n)),
            lambda n: turns(chance.randrange(40)),
        )
        await asyncio.gather(*(limiter.reset(f"k{n}", limit(n)) for n in range(KEYS)))
    print(f"\n{gone} of {10 * len(range(0, KEYS, 3))} hits cancelled")
    assert gone > 50


async def test_who_leaves_when_the_answer_has_just_come(store: RedisStore) -> None:
    """Between the moment in which a future is done and that in which its task goes on."""
    limiter = AsyncLimiter(store=store)
    for ask in (
        lambda: limiter.hit("k0", limit(0)),
        lambda: limiter.hit_all([("k0", limit(0)), ("k1", limit(1))]),
        lambda: limiter.hit_many(["k0", "k0"], limit(0)),
        lambda: limiter.wait("k0", limit(0)),
    ):
        gone = 0
        for count in range(40):
            task = asyncio.ensure_future(ask())
            await turns(count)  # the answer comes in one of them
            task.cancel()
            await asyncio.wait([task])
            gone += task.cancelled()
            expected = [0, 0]
            if not task.cancelled():
                await asyncio.gather(*(limiter.reset(f"k{n}", limit(n)) for n in range(2)))
            assert await settled(store, expected) == expected, "left and yet taken"
        assert gone


@pytest.mark.parametrize("moment", [0, 1, 2, 3])
async def test_groups_that_leave(moment: int, proxied: Proxy, prefix: str) -> None:
    async with RedisStore(
        proxied.url, prefix=prefix, deadline="60s", connect_timeout="60s"
    ) as store:
        await store.connect_async()
        proxied.hold()
        limiter = AsyncLimiter(store=store)
        half = KEYS // 2

        def both(number: int) -> Any:
            pair = ((f"k{n}", limit(n)) for n in (number, number + half))
            return limiter.hit_all(pair)

        tasks = [asyncio.ensure_future(both(number)) for number in range(half)]
        await (turns(moment) if moment < 3 else asyncio.sleep(0.005))
        for task in tasks[::3]:
            task.cancel()
        proxied.let_pass()
        await asyncio.wait(tasks)
        for number, task in enumerate(tasks):
            if number % 3:
                assert task.result().remaining == 99 + number
            else:
                assert task.cancelled()
        expected = [0 if n % half % 3 == 0 else -1 for n in range(KEYS)]
        assert await settled(store, expected) == expected


async def test_a_timeout_around_a_decision(proxied: Proxy, prefix: str) -> None:
    async with RedisStore(
        proxied.url, prefix=prefix, deadline="60s", connect_timeout="60s"
    ) as store:
        await store.connect_async()
        limiter = AsyncLimiter(limit(0), store=store)
        expected = [0]
        for ask in (limiter.hit("k0"), limiter.wait("k0"), limiter.hit_many(["k0", "k0"])):
            proxied.hold()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.025):
                    await ask
            proxied.let_pass()
            assert await settled(store, expected) == expected
        with pytest.raises(ZeroDivisionError):
            async with limiter.reserve("k0", cost=50):
                raise ZeroDivisionError
        assert await settled(store, expected) == expected


def test_threads_beside_each_other_get_their_own_answers(redis_url: str, prefix: str) -> None:
    with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        limiter = Limiter(store=store)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for taken in range(1, 6):
                seen = pool.map(lambda n: limiter.hit(f"k{n}", limit(n)), range(KEYS))
                for number, decision in enumerate(seen):
                    assert decision.remaining == 100 + number - taken
