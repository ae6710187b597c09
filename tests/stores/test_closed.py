"""A store that was closed says so, whatever it is asked, and whichever store it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import AsyncLimiter, Gate, Limiter, MemoryStore, SharedMemoryStore, StoreError
from penstock.stores.base import Store
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore
from penstock.testing.in_process import allow_all

RULES = """
domain: api
descriptors: [{key: user, limits: 5/minute}]
"""
VERBS: dict[str, Callable[[Limiter], object]] = {
    "hit": lambda limiter: limiter.hit("k"),
    "another limit": lambda limiter: limiter.hit("k", "7/hour"),
    "peek": lambda limiter: limiter.peek("k"),
    "hit_many": lambda limiter: limiter.hit_many(["k", "l"]),
    "hit_all": lambda limiter: limiter.hit_all([("k", None), ("l", None)]),
    "hit_up_to": lambda limiter: limiter.hit_up_to("k", 3),
    "charge": lambda limiter: limiter.charge("k"),
    "refund": lambda limiter: limiter.refund("k"),
    "reset": lambda limiter: limiter.reset("k"),
    "wait": lambda limiter: limiter.wait("k", timeout=1),
    "reserve": lambda limiter: limiter.reserve("k"),
    "reserve for later": lambda limiter: limiter.reserve("k", max_delay=1),
    "slot": lambda limiter: limiter.slot("k").__enter__(),
}


@pytest.fixture(params=["memory", "shared", "redis", "leased"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "shared":
        return SharedMemoryStore(tmp_path / "limits")
    url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "prefix"))
    redis = RedisStore(url, prefix=prefix, deadline="5s")
    return redis if request.param == "redis" else LeasedStore(redis)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_that_the_store_is_closed(store: Store, verb: str) -> None:
    limiter = Limiter("5/minute", store)
    assert limiter.hit("k")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        VERBS[verb](limiter)


async def test_so_do_tasks_and_gates(store: Store) -> None:
    limiter, gate = AsyncLimiter("5/minute", store), Gate.from_rules(RULES, store=store)
    assert gate.check({"user": "1"})
    store.close()
    with pytest.raises(StoreError, match="closed"):
        await limiter.hit("k")
    with pytest.raises(StoreError, match="closed"):
        gate.check({"user": "1"})


def test_a_block_closes_a_memory_store_and_tests_do_not_open_it_again() -> None:
    with MemoryStore() as store:
        limiter = Limiter("5/minute", store)
        assert limiter.hit("k")
        assert store.keys == 1
    assert store.closed
    assert store.keys == 0
    with allow_all(), pytest.raises(StoreError, match="closed"):
        limiter.hit("k")
