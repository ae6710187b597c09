"""charge, hit_up_to and limited: the same on every store, for threads and for tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
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
from penstock.testing import FakeClock

# Slow enough that nothing comes back while a test runs.
LIMITS = [
    "5/day",
    "5/day sliding_window",
    "5/day sliding_log",
    "5/day fixed_window",
    "5/day; 7/week",
    "100/day; 5/week",
    "5/day lockout 2d",
]


@pytest.fixture(params=["memory", "shared", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "shared":
        yield SharedMemoryStore(tmp_path / "limits", bytes_per_key=256)
    else:
        url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "prefix"))
        with RedisStore(url, prefix=prefix, deadline="60s", connect_timeout="60s") as redis:
            yield redis


async def close(store: Store) -> None:
    if isinstance(store, RedisStore):
        await store.close_async()


@pytest.mark.parametrize("limit", LIMITS)
def test_hit_up_to_takes_what_is_there(store: Store, limit: str) -> None:
    limiter = Limiter(limit, store)
    steps = [(2, 2), (2, 2), (4, 1), (1, 0), (4, 0), (2**40, 0)]
    for most, expected in steps:
        result = limiter.hit_up_to("k", most)
        assert (result.taken, bool(result)) == (expected, expected > 0)
        assert result.decision.allowed is (expected > 0)
    assert limiter.hit_up_to("all", 10**6).taken == 5
    assert limiter.peek("all").remaining == 0
    assert not limiter.hit_up_to("k", 3).decision
    assert (limiter.hit_up_to("k", 3).decision.retry_after or 0) > 0


@pytest.mark.parametrize("limit", LIMITS)
async def test_hit_up_to_for_tasks(store: Store, limit: str) -> None:
    limiter = AsyncLimiter(limit, store)
    results = await asyncio.gather(*[limiter.hit_up_to("k", 2) for _ in range(5)])
    assert sum(result.taken for result in results) == 5
    assert not await limiter.hit("k")
    await close(store)


def test_hit_up_to_starts_no_lockout(store: Store) -> None:
    limiter = Limiter("5/hour lockout 15h", store)
    assert limiter.hit_up_to("k", 9).taken == 5
    limiter.hit_up_to("k", 9)
    limiter.refund("k", 2)
    assert limiter.hit_up_to("k", 9).taken == 2


def test_threads_take_exactly_the_limit(store: Store) -> None:
    limiter = Limiter("100/day", store)
    taken: list[int] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        while result := limiter.hit_up_to("k", 7):
            taken.append(result.taken)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 100


@pytest.mark.parametrize("limit", LIMITS)
def test_charge_takes_although_it_does_not_fit(store: Store, limit: str) -> None:
    limiter = Limiter(limit, store)
    assert limiter.charge("k").remaining == 4
    assert limiter.charge("k", 3).remaining == 1
    decision = limiter.charge("k", 4)
    assert not decision
    assert decision.remaining == 0
    assert not limiter.hit("k")
    assert limiter.charge("other", 2, "3/day").remaining == 1


@pytest.mark.parametrize("limit", ["5/day", "5/day; 7/week"])
async def test_charge_for_tasks(store: Store, limit: str) -> None:
    limiter = AsyncLimiter(limit, store)
    assert (await limiter.charge("k", 4)).remaining == 1
    assert not await limiter.charge("k", 4)
    await close(store)


def test_a_charge_has_to_be_refilled_first() -> None:
    clock = FakeClock()
    limiter = Limiter("1/second burst 5 debt 5", MemoryStore(clock=clock))
    assert limiter.charge("k", 8).retry_after == 4.0  # 3 of debt, and the unit itself


def test_wrong_arguments() -> None:
    limiter = Limiter("5/day")
    wrong: list[Any] = [0, -1, 1.5, True, "2"]
    for cost in wrong:
        with pytest.raises(InvalidCost):
            limiter.charge("k", cost)
        with pytest.raises(InvalidCost):
            limiter.hit_up_to("k", cost)
    for verb in (limiter.charge, limiter.hit_up_to):
        with pytest.raises(InvalidKey):
            verb("", 1)
        with pytest.raises(LimitError):
            verb("k", 1, "5 apples")


# Streams --------------------------------------------------------------------------------------


def paced(text: str = "2/second") -> tuple[FakeClock, Limiter, AsyncLimiter]:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    return clock, Limiter(text, store), AsyncLimiter(text, store)


async def numbers(most: int) -> AsyncIterator[int]:
    for number in range(most):
        yield number


def test_items_wait_for_their_turns() -> None:
    clock, limiter, _ = paced()
    start = clock.now()
    seen = [(item, clock.now() - start) for item in limiter.limited("abcd", key="k")]
    assert seen == [("a", 0), ("b", 0), ("c", 500_000_000), ("d", 1_000_000_000)]


@pytest.mark.parametrize("items", [range(4), "async"])
async def test_async_items_wait_for_their_turns(items: Any) -> None:
    clock, _, limiter = paced()
    start = clock.now()
    stream = numbers(4) if items == "async" else items
    seen = [(item, clock.now() - start) async for item in limiter.limited(stream, key="k")]
    assert seen == [(0, 0), (1, 0), (2, 500_000_000), (3, 1_000_000_000)]


async def test_items_that_are_refused_are_dropped_or_raise() -> None:
    _, limiter, tasks = paced("2/minute")
    assert list(limiter.limited(range(9), key="a", on_refused="drop")) == [0, 1]
    stream = tasks.limited(numbers(9), key="b", on_refused="drop")
    assert [item async for item in stream] == [0, 1]
    seen: list[int] = []
    with pytest.raises(LimitExceeded, match=r"^'c' is over its limit"):
        seen.extend(limiter.limited(range(9), key="c", on_refused="raise"))
    stream = tasks.limited(numbers(9), key="d", on_refused="raise")
    with pytest.raises(LimitExceeded):
        seen = [item async for item in stream]
    with pytest.raises(LimitExceeded):  # the third would have to wait for 30 seconds
        list(limiter.limited(range(9), key="e", timeout="29s"))


def test_a_stream_has_limit_and_cost_and_finds_mistakes_at_once() -> None:
    _, limiter, tasks = paced("2/minute")
    options: dict[str, Any] = {"key": "k", "limit": "6/minute", "cost": 2, "on_refused": "drop"}
    assert list(limiter.limited(range(9), **options)) == [0, 1, 2]
    for guard in (limiter, tasks):
        with pytest.raises(ValueError, match=r"^on_refused is 'wait', 'drop' or 'raise', not 'x'$"):
            guard.limited([], key="k", on_refused="x")
        with pytest.raises(InvalidKey):
            guard.limited([], key="")
        with pytest.raises(InvalidCost):
            guard.limited([], key="k", cost=0)
        with pytest.raises(ValueError, match="timeout"):
            guard.limited([], key="k", timeout=-1)
        with pytest.raises(LimitError):
            guard.limited([], key="k", limit="5 apples")
