"""Limiters with names: two of the same limit on one store are two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncLimiter, Limit, Limiter, MemoryStore, RedisStore, SharedMemoryStore
from penstock.stores.base import Store
from penstock.stores.redis.operation import KeyedCounters, KeyOperation

LIMITS = [
    "2/hour",
    "2/hour sliding_window",
    "2/hour sliding_log",
    "2/hour fixed_window",
    "2/hour; 3/day",
    "2/hour lockout 2h",
]


@pytest.fixture(params=["memory", "shared", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "shared":
        yield SharedMemoryStore(tmp_path / "limits")
    else:
        url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "prefix"))
        with RedisStore(url, prefix=prefix, deadline="60s", connect_timeout="60s") as redis:
            yield redis


@pytest.mark.parametrize("limit", LIMITS)
def test_a_name_keeps_counts_apart(store: Store, limit: str) -> None:
    names = [None, "search", "export", "a:b", "a", "é"]
    limiters = [Limiter(limit, store, name=name) for name in names]
    for limiter in limiters:
        assert [limiter.hit("k").allowed for _ in range(3)] == [True, True, False]
    for name, limiter in zip(names, limiters, strict=True):
        assert not Limiter(limit, store, name=name).hit("k")  # the same name is the same count
        limiter.reset("k")
        assert Limiter(limit, store, name=name).peek("k").remaining == 2
        Limiter(limit, store, name=name).hit("k", cost=2)


@pytest.mark.parametrize("limit", LIMITS)
def test_every_verb_counts_under_the_name(store: Store, limit: str) -> None:
    named, plain = Limiter(limit, store, name="search"), Limiter(limit, store)
    assert named.hit_many(["k"])[0].remaining == 1
    named.refund("k")
    assert named.hit_all([("k", None)]).remaining == 1
    with named.reserve("k") as reservation:
        reservation.settle(1)
    assert named.peek("k").remaining == 0
    assert not named.wait("k", timeout=0)
    assert plain.peek("k").remaining == 2
    assert named.peek("k", "5/minute").remaining == 5
    named.hit("k", "5/minute")
    assert plain.peek("k", "5/minute").remaining == 5


async def test_tasks(store: Store) -> None:
    limiter = AsyncLimiter("2/hour", store, name="search")
    assert limiter.name == "search"
    assert (await limiter.hit("k")).remaining == 1
    assert (await AsyncLimiter("2/hour", store).hit("k")).remaining == 1
    assert (await AsyncLimiter("2/hour", store, name="search").hit("k")).remaining == 0
    if isinstance(store, RedisStore):
        await store.close_async()


def test_the_local_failure_policy_knows_names() -> None:
    limit = Limit(2, "hour")
    with RedisStore("redis://127.0.0.1:1", on_failure="local") as store:  # it is not asked
        for name in (None, "search", "export"):
            counters = store.fallback.counters(limit, name)
            assert counters is store.fallback.counters(limit, name)
            assert [counters.hit("k", 1).allowed for _ in range(3)] == [True, True, False]
            decision = store.fallback.decide(KeyOperation(redis_counters(store, name), "j"), "x")
            assert counters.peek("j", 1).remaining == 1
            store.fallback.refund(store.counters(limit, name), "j", 1, decision._mark)
            assert counters.peek("j", 1).remaining == 2


def redis_counters(store: Any, name: str | None) -> KeyedCounters:
    counters = store.counters(Limit(2, "hour"), name)
    assert isinstance(counters, KeyedCounters)
    return counters


def test_a_named_key_in_redis(redis_url: str, prefix: str) -> None:
    redis = pytest.importorskip("redis")
    with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        Limiter("2/hour", store, name="se:arch").hit("k")
    with RedisStore(
        redis_url, prefix=prefix, deadline="60s", connect_timeout="60s", tag="t"
    ) as store:
        Limiter("2/hour", store, name="search").hit("k")
    with redis.Redis.from_url(redis_url) as client:
        names = sorted(name.decode() for name in client.scan_iter(f"{prefix}:*"))
    assert names == [f"{prefix}:@se%3Aarch:2/hour:k", f"{prefix}:{{t}}:@search:2/hour:k"]


def test_names() -> None:
    wrong: list[Any] = ["", 7, b"search"]
    for name in wrong:
        with pytest.raises(TypeError, match=r"^name is a non-empty str, such as 'search', not "):
            Limiter("1/s", name=name)
        with pytest.raises(TypeError):
            AsyncLimiter("1/s", name=name)
    assert repr(Limiter("1/s", name="search")) == (
        "Limiter('1/second', store=<MemoryStore 0 of 1000000 keys>, name='search')"
    )
