"""Undecided log-ins of several processes, counted on one server."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

pytest.importorskip("redis")

from penstock import AsyncLimiter, Limiter
from penstock.stores.redis import RedisStore

LIMIT = "5/minute sliding_log lockout 15m"


def retry_after(limiter: Limiter) -> float:
    return limiter.peek("k").retry_after or 0.0


def test_a_lockout_starts_when_all_processes_have_decided(redis_url: str, prefix: str) -> None:
    with ExitStack() as cleanup:
        stores = [
            RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s")
            for _ in range(3)
        ]
        limiters = [Limiter(LIMIT, cleanup.enter_context(store)) for store in stores]
        attempts = [limiters[at % 3].reserve("k") for at in range(6)]
        assert [bool(attempt) for attempt in attempts] == [True] * 5 + [False]
        assert retry_after(limiters[0]) <= 60
        for attempt in attempts[:5]:
            attempt.cancel()
        attempts = [limiters[at % 3].reserve("k") for at in range(5)]
        for attempt in attempts[:4]:
            attempt.settle(1)
        assert not limiters[1].reserve("k")
        assert retry_after(limiters[0]) <= 60, "one is undecided, in another process"
        attempts[4].settle(1)
        assert not limiters[0].reserve("k")
        assert retry_after(limiters[2]) > 800


async def test_the_same_for_coroutines(redis_url: str, prefix: str) -> None:
    store = RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s")
    limiter = AsyncLimiter("1/minute sliding_log lockout 15m", store)
    async with limiter.reserve("k"):
        second = await limiter.reserve("k")
        assert not second
        assert (second.decision.retry_after or 0) <= 60
    third = await limiter.reserve("k")
    assert (third.decision.retry_after or 0) > 800
    await store.close_async()
