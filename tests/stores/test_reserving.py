"""Reservations for later, on every store: for threads and for tasks, interrupted and degraded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    AsyncLimiter,
    InvalidCost,
    InvalidKey,
    Limiter,
    LimitError,
    LimitExceeded,
    MemoryStore,
    RedisStore,
    SharedMemoryStore,
)
from penstock.stores.base import Store
from penstock.stores.leased import LeasedStore
from penstock.testing import FakeClock

DAY = 86_400.0


@pytest.fixture(params=["memory", "shared", "redis", "leased"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "shared":
        yield SharedMemoryStore(tmp_path / "limits", bytes_per_key=256)
    else:
        url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "prefix"))
        with RedisStore(url, prefix=prefix, deadline="5s") as redis:
            yield redis if request.param == "redis" else LeasedStore(redis)


async def close(store: Store) -> None:
    if isinstance(store, (RedisStore, LeasedStore)):
        await store.close_async()


@pytest.mark.parametrize("limit", ["3/3d", "3/3d initial 3", "1/day leaky_bucket burst 6"])
def test_later_places_in_order_and_back(store: Store, limit: str) -> None:
    limiter = Limiter(limit, store)
    held = [limiter.reserve("k", max_delay="30d") for _ in range(6)]
    first = 0.0 if "leaky" in limit else -2.0
    expected = [max(0.0, first + number) * DAY for number in range(6)]
    assert [each.delay for each in held] == pytest.approx(expected, abs=100)
    refused = limiter.reserve("k", max_delay="30d")
    assert not refused
    assert refused.decision.retry_after == pytest.approx(DAY, abs=100)
    with pytest.raises(LimitExceeded), refused:
        pass
    held[2].cancel()
    assert not limiter.reserve("k", max_delay="30d")  # all behind it have their times
    for each in reversed(held[3:]):
        each.cancel()
    assert limiter.reserve("k", max_delay="30d").delay == pytest.approx(expected[3], abs=100)


def test_too_far_away_takes_nothing(store: Store) -> None:
    limiter = Limiter("3/3d", store)
    assert limiter.reserve("k", cost=3, max_delay=0).delay == 0
    for _ in range(3):
        refused = limiter.reserve("k", cost=2, max_delay="1d")
        assert not refused
        assert refused.decision.retry_after == pytest.approx(DAY, abs=100)
    assert limiter.reserve("k", cost=2, max_delay="2d").delay == pytest.approx(2 * DAY, abs=100)
    never = limiter.reserve("k", cost=4, max_delay="30d")
    assert never.decision.retry_after is None
    assert not limiter.hit("k")


async def test_tasks_reserve_too(store: Store) -> None:
    limiter = AsyncLimiter("3/3d", store)
    held = [await limiter.reserve("k", cost=cost, max_delay="30d") for cost in (2, 2, 1)]
    delays = [each.delay for each in held]
    assert delays == pytest.approx([0.0, DAY, 2 * DAY], abs=100)
    with pytest.raises(ZeroDivisionError):
        async with limiter.reserve("k", max_delay="30d"):
            raise ZeroDivisionError
    await held[2].cancel()
    async with limiter.reserve("k", cost=2, max_delay="30d") as again:
        assert again.delay == pytest.approx(3 * DAY, abs=100)
        await again.settle(3)
    assert (await limiter.peek("k")).retry_after == pytest.approx(4 * DAY, abs=100)
    await close(store)


def test_threads_get_every_place_once(store: Store) -> None:
    limiter, delays = Limiter("24/day", store), []

    def work() -> None:
        for _ in range(10):
            reservation = limiter.reserve("k", max_delay="30d")
            if reservation:
                delays.append(reservation.delay)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [max(0.0, number - 23) * 3600 for number in range(48)]
    assert sorted(delays) == pytest.approx(expected, abs=200)


async def test_a_cancelled_task_takes_nothing(redis_url: str, prefix: str) -> None:
    async with RedisStore(redis_url, prefix=prefix, deadline="5s") as redis:
        limiter = AsyncLimiter("3/3d", redis)
        await limiter.hit("k", cost=3)
        for turns in range(4):

            async def reserve() -> Any:
                return await limiter.reserve("k", cost=2, max_delay="30d")

            task = asyncio.ensure_future(reserve())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        for _ in range(200):  # what was in flight is given back when its answer comes
            if (await limiter.peek("k")).retry_after == pytest.approx(DAY, abs=100):
                break
            await asyncio.sleep(0.01)
        last = await limiter.reserve("k", cost=2, max_delay="30d")
        assert last.delay == pytest.approx(2 * DAY, abs=100)


@pytest.mark.parametrize("policy", ["open", "closed", "local"])
def test_without_the_server_the_policy_decides(policy: str) -> None:
    with RedisStore("redis://127.0.0.1:1", on_failure=policy) as redis:
        limiter = Limiter("3/3d", redis)
        held = [limiter.reserve("k", cost=3, max_delay="30d") for _ in range(2)]
        assert all(each.decision.degraded for each in held)
        assert [bool(each) for each in held] == [policy != "closed"] * 2
        if policy == "local":
            assert held[1].delay == pytest.approx(3 * DAY, abs=100)
            held[1].cancel()
            again = limiter.reserve("k", cost=1, max_delay="30d")
            assert again.delay == pytest.approx(DAY, abs=100)


LIMITS = [
    "5/minute fixed_window",
    "5/minute sliding_window",
    "5/minute sliding_log",
    "5/minute lockout 1h",
    "5/minute soft 2 for 10m",
]


@pytest.mark.parametrize("limit", LIMITS)
def test_only_a_bucket_has_places(store: Store, limit: str) -> None:
    for limiter in (Limiter(limit, store), AsyncLimiter(limit, store)):
        with pytest.raises(LimitError, match=r"token_bucket or a leaky_bucket .* wait\(\) works"):
            limiter.reserve("k", max_delay="1m")
    Limiter(limit, store).reserve("k")


def test_one_limit_at_a_time_and_other_mistakes(store: Store) -> None:
    limiter = Limiter("5/minute", store)
    with pytest.raises(LimitError, match=r"one limit, not from '5/minute; 100/day'"):
        limiter.reserve("k", "5/minute; 100/day", max_delay=1)
    with pytest.raises(ValueError, match=r"^max_delay is a number of seconds"):
        limiter.reserve("k", max_delay=-1)
    with pytest.raises(ValueError, match=r"max_delay"):
        limiter.reserve("k", max_delay="soon")
    with pytest.raises(InvalidKey):
        limiter.reserve("", max_delay=1)
    with pytest.raises(InvalidCost):
        limiter.reserve("k", cost=0, max_delay=1)


def test_a_closed_limit_gives_no_places(store: Store) -> None:
    assert not Limiter("0/minute", store).reserve("k", max_delay="1d")


def test_the_longest_line_is_one_bucket_more() -> None:
    clock = FakeClock()
    limiter = Limiter("60/minute burst 5", store=MemoryStore(clock=clock))
    delays = [limiter.reserve("k", max_delay=float("inf")).delay for _ in range(10)]
    assert delays == [0.0] * 5 + [1.0, 2.0, 3.0, 4.0, 5.0]
    refused = limiter.reserve("k", max_delay=float("inf"))
    assert (bool(refused), refused.decision.retry_after) == (False, 1.0)


def test_those_who_wait_come_after_those_who_reserved() -> None:
    clock = FakeClock()
    limiter = Limiter("60/minute burst 5", store=MemoryStore(clock=clock))
    limiter.hit("k", cost=5)
    assert limiter.reserve("k", cost=3, max_delay=10).delay == 3.0
    start = clock.now()
    assert limiter.wait("k")
    assert (clock.now() - start) / 1e9 == 4.0


def test_debt_and_warm_up_reserve_when_a_hit_would_pass() -> None:
    for text in ("60/minute burst 5 debt 3", "60/minute burst 5 warm_up 1m"):
        clock = FakeClock()
        limiter = Limiter(text, store=MemoryStore(clock=clock))
        while limiter.hit("k"):
            pass
        for cost in (5, 1, 3):
            retry = limiter.peek("k", cost=cost).retry_after
            held = limiter.reserve("k", cost=cost, max_delay=float("inf"))
            assert held.delay == retry
            held.cancel()
            assert limiter.peek("k", cost=cost).retry_after == retry
