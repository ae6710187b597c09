"""Rules over Redis: all limits of a request are decided in one call."""

from __future__ import annotations

import pytest

pytest.importorskip("redis")
pytest.importorskip("yaml")

from penstock import AsyncGate, Descriptor, Gate, Limit
from penstock.stores.redis import RedisStore
from stores.proxy import Proxy

RULES = """
domain: api
descriptors:
  - key: user
    limits: [10/hour, 5/minute]
  - key: ip
    limits: 3/hour
  - key: path
    limits: 1/hour
    shadow_mode: true
"""
ASKED = ({"user": "42"}, {"ip": "a"}, {"path": "/"})


async def test_a_request_is_one_call_for_coroutines(proxied: Proxy, prefix: str) -> None:
    async with RedisStore(proxied.url, prefix=prefix, deadline="5s") as store:
        gate = AsyncGate.from_rules(RULES, store)
        before = proxied.commands.count("EVALSHA")
        found = [await gate.check(*ASKED) for _ in range(4)]
        assert proxied.commands.count("EVALSHA") - before == 4
    assert [bool(verdict) for verdict in found] == [True, True, True, False]
    assert [str(d.limit) for d in (v.decision for v in found) if d is not None] == ["3/hour"] * 4
    last = found[3].statuses
    assert [status.allowed for status in last] == [True, False, True]
    left = [status.decision.remaining for status in last if status.decision is not None]
    assert left == [2, 0, 0]


def test_the_same_for_threads(redis_url: str, prefix: str) -> None:
    with RedisStore(redis_url, prefix=prefix, deadline="5s") as store:
        gate = Gate.from_rules(RULES, store)
        assert [bool(gate.check(*ASKED)) for _ in range(4)] == [True, True, True, False]
        assert gate.check({"user": "42"}).statuses[0].decision.remaining == 1  # type: ignore[union-attr]


TOKENS = """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000}}
  - {key: a, quota_mode: true, limits: [9/day, 1/day]}
  - {key: b, limits: 5/day}
"""


async def test_debits_are_booked_in_redis(redis_url: str, prefix: str) -> None:
    async with RedisStore(redis_url, prefix=prefix, deadline="5s") as store:
        gate = AsyncGate.from_rules(TOKENS, store)
        look = Descriptor.of({"user": "1"}, hits=0)
        through = 0
        for _ in range(10):
            if await gate.check(look):
                through += 400
                await gate.check({"user": "1"}, hits=400)
        assert through == 1200
        await gate.check({"user": "1"}, hits=-200)
        assert await gate.check(look)


def test_quotas_take_all_or_nothing_in_redis(redis_url: str, prefix: str) -> None:
    with RedisStore(redis_url, prefix=prefix, deadline="5s") as store:
        gate = Gate.from_rules(TOKENS, store)
        asked = ({"a": "1"}, {"b": "1"})
        assert [bool(gate.check(*asked)) for _ in range(3)] == [True, False, False]
        left = [
            store.counters(Limit.parse(t)).peek("api|a=1", 1).remaining for t in ("9/day", "1/day")
        ]
        assert left == [8, 0]
        assert gate.check({"b": "1"}).decision.remaining == 3  # type: ignore[union-attr]
