"""reset() without a key, and store.clear(): everything is forgotten, and nothing of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    AsyncLimiter,
    InvalidKey,
    Limiter,
    MemoryStore,
    RedisStore,
    SharedMemoryStore,
    StoreError,
)
from penstock.stores.base import Counters, Store

LIMITS = [
    "1/day",
    "1/day sliding_window",
    "1/day fixed_window",
    "1/day lockout 2d",
    "1/day; 1/week",
]
KEYS = [f"user:{number}" for number in range(300)]


@pytest.fixture(params=["memory", "shared", "redis", "tagged"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "shared":
        yield SharedMemoryStore(tmp_path / "limits", max_keys=3000)
    else:
        url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "prefix"))
        tag: Any = (lambda key: key[-1]) if request.param == "tagged" else None
        with RedisStore(
            url, prefix=f"{prefix}[a]*", deadline="60s", connect_timeout="60s", tag=tag
        ) as redis:
            yield redis


def full(limiter: Limiter) -> bool:
    """Whether every key has used its limit; False if none has."""
    answers = {limiter.peek(key).allowed for key in KEYS}
    assert len(answers) == 1
    return answers == {False}


def test_a_cleared_store_is_new(store: Store) -> None:
    limiters = [Limiter(limit, store) for limit in LIMITS]
    limiters.append(Limiter("1/day", store, name="search"))
    for _ in range(2):
        for limiter in limiters:
            limiter.hit_many(KEYS)
            limiter.hit_many(KEYS)
        assert all(full(limiter) for limiter in limiters)
        store.clear()
        assert not any(full(limiter) for limiter in limiters)
    store.clear()


def test_a_reset_limiter_is_new_and_others_are_not(store: Store) -> None:
    names = [None, "search", "*"]
    mine, *others = [Limiter("1/day", store, name=name) for name in names]
    others += [Limiter(limit, store) for limit in ("1/week", "11/day", "1/day burst 2")]
    for limiter in (mine, *others):
        for _ in range(12):
            limiter.hit_many(KEYS)
    if isinstance(store, SharedMemoryStore):
        with pytest.raises(StoreError, match=r"store\.clear\(\) forgets those of all$"):
            mine.reset()
        return
    mine.reset()
    assert [full(limiter) for limiter in (mine, *others)] == [False, *[True] * len(others)]
    others[1].reset()
    assert [full(limiter) for limiter in others] == [True, False, *[True] * (len(others) - 2)]
    mine.hit("user:1")
    mine.reset(limit="1/week")
    assert not others[2].peek("user:1").limit.lockout_ns
    assert others[2].peek("user:1").allowed
    assert not mine.peek("user:1")


def test_several_limits_are_reset_together(store: Store) -> None:
    if isinstance(store, SharedMemoryStore):
        pytest.skip("it does not know the keys of one limit")
    limiter = Limiter("1/day; 2/week", store)
    limiter.hit_many(KEYS)
    limiter.reset()
    assert not full(limiter)
    assert limiter.peek("user:1", "2/week").remaining == 2


async def test_tasks(store: Store) -> None:
    limiter = AsyncLimiter("1/day", store)
    await limiter.hit_many(KEYS)
    if not isinstance(store, SharedMemoryStore):
        await limiter.reset()
        assert all(await limiter.hit_many(KEYS))
    if isinstance(store, RedisStore):
        await store.close_async()


def test_none_is_no_key_and_forgets_nothing(store: Store) -> None:
    limiter = Limiter("1/day", store)
    limiter.hit_many(KEYS)
    nothing: Any = None
    for key in (nothing, ""):
        with pytest.raises(InvalidKey):
            limiter.reset(key)
    assert full(limiter)


def test_only_counters_of_this_prefix_are_removed(redis_url: str, prefix: str) -> None:
    redis = pytest.importorskip("redis")
    others = [
        f"{prefix}", f"{prefix}:mine", f"{prefix}:1:2", f"{prefix}2:1/day:k", f"x:{prefix}:1/day:k",
        f"{prefix}:slots:{{reports}}:held", f"{prefix}:other:1/day:k", f"{prefix}:@other",
    ]  # fmt: skip
    with redis.Redis.from_url(redis_url) as client:
        for name in others:
            client.set(name, "1")
        with (
            RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store,
            RedisStore(
                redis_url, prefix=f"{prefix}:longer", deadline="60s", connect_timeout="60s"
            ) as longer,
        ):
            for each in (store, longer):
                Limiter("1/day", each).hit_many(KEYS)
                Limiter("1/day", each, name="search").hit("k")
            store.clear()
            assert not full(Limiter("1/day", store))
            assert full(Limiter("1/day", longer))
            assert not Limiter("1/day", longer, name="search").hit("k")
            longer.clear()
        left = {name.decode() for name in client.scan_iter(f"*{prefix}*")}
        assert left == set(others)


def test_a_store_of_somebody_else() -> None:
    class Mine(Store):
        def make_counters(self, limit: Any, name: str | None = None) -> Counters:
            return Counters(limit, None)

    with pytest.raises(StoreError, match="cannot forget all its keys"):
        Mine().clear()
    with pytest.raises(StoreError, match="cannot forget all keys of one limit"):
        Limiter("1/day", Mine()).reset()
