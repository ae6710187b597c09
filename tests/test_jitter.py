"""A random pause after the turn has come, never before."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock import AsyncLimiter, Limiter, MemoryStore
from penstock.testing import FakeClock

SECOND = 10**9
LIMITS = ["1/second", "1/second leaky_bucket burst 5", "1/second; 1000/day"]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("jitter", ["200ms", 0.2, timedelta(milliseconds=200)])
async def test_the_pause_comes_after_the_turn(limit: str, jitter: Any) -> None:
    clock = FakeClock()
    chances = iter([0.0, 0.5, 1.0, 0.25])
    store = MemoryStore(clock=clock)
    limiter = Limiter(limit, store, chance=lambda: next(chances))
    start = clock.now()
    assert limiter.wait("k", jitter=jitter)
    assert clock.now() - start == 0
    assert limiter.wait("k", jitter=jitter)
    assert clock.now() - start == SECOND + 100_000_000
    assert limiter.wait("k", jitter=jitter)
    assert clock.now() - start == 2 * SECOND + 200_000_000
    tasks = AsyncLimiter(limit, store, chance=lambda: next(chances))
    assert await tasks.wait("k", jitter=jitter)
    assert clock.now() - start == 3 * SECOND + 50_000_000


@pytest.mark.parametrize("limit", LIMITS)
def test_a_refused_wait_has_no_pause(limit: str) -> None:
    clock = FakeClock()
    limiter = Limiter(limit, MemoryStore(clock=clock), chance=lambda: 1.0)
    limiter.wait("k", jitter=5)
    before = clock.now()
    limiter.hit("k")
    while limiter.hit("k"):
        pass
    assert not limiter.wait("k", timeout=0, jitter=5)
    assert clock.now() == before


@pytest.mark.parametrize("limit", ["5/day", "5/day; 9/week", "5/day leaky_bucket burst 5"])
async def test_a_task_that_is_cancelled_in_the_pause_takes_nothing(limit: str) -> None:
    limiter = AsyncLimiter(limit, MemoryStore(), chance=lambda: 1.0)
    task = asyncio.create_task(limiter.wait("k", jitter="1h"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert (await limiter.peek("k")).remaining == 4
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await limiter.peek("k")).remaining == 5


@pytest.mark.parametrize("jitter", [-1, 0, float("nan"), True, "soon", b"1s"])
def test_what_is_no_jitter(jitter: Any) -> None:
    with pytest.raises(ValueError, match=r"^jitter "):
        Limiter("1/s").wait("k", jitter=jitter)


def test_the_default_is_random() -> None:
    clock = FakeClock()
    limiter = Limiter("1000/second", MemoryStore(clock=clock))
    pauses = set()
    for _ in range(20):
        before = clock.now()
        limiter.wait("k", jitter="1s")
        pauses.add(clock.now() - before)
    assert len(pauses) > 10
    assert all(0 <= pause <= SECOND for pause in pauses)
