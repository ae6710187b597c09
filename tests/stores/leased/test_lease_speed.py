"""What a decision from a lease costs, beside one in memory."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("redis")

from penstock import Limiter, MemoryStore, _mode
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore
from stores.leased.leasing import heat

LIMIT = "100000000/second"
HITS = 2_000

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.skipif(not _mode.COMPILED, reason="the bound is for the compiled core"),
]


def cpu_of(limiter: Limiter) -> int:
    """Of this thread, in nanoseconds: what else the machine does counts for nothing."""
    hit, began = limiter.hit, time.thread_time_ns()
    for _ in range(HITS):
        hit("k")
    return time.thread_time_ns() - began


def test_a_leased_hit_costs_at_most_twice_as_much_as_one_in_memory(
    redis_url: str, prefix: str
) -> None:
    inner = RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s")
    memory = Limiter(LIMIT, store=MemoryStore())
    with LeasedStore(inner, horizon="1s") as store:
        heat(store, LIMIT)
        leased = Limiter(LIMIT, store=store)
        for _ in range(20):
            cpu_of(leased)  # until the lease has the size that this takes
        before = store.stats().decided_directly
        rounds = [(cpu_of(leased), cpu_of(memory)) for _ in range(40)]
        assert store.stats().decided_directly - before < HITS
    ours, its = (min(each) for each in zip(*rounds, strict=True))
    assert ours < 2 * its, f"{ours / HITS:.0f} against {its / HITS:.0f} ns"
