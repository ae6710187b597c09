"""Rules over Redis: all limits of a request are decided in one call."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("redis")
pytest.importorskip("yaml")

from penstock import AsyncGate, Descriptor, Gate, Limit, LimitError
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
    async with RedisStore(
        proxied.url, prefix=prefix, deadline="60s", connect_timeout="60s"
    ) as store:
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
    with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
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
    async with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
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
    with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        gate = Gate.from_rules(TOKENS, store)
        asked = ({"a": "1"}, {"b": "1"})
        assert [bool(gate.check(*asked)) for _ in range(3)] == [True, False, False]
        left = [
            store.counters(Limit.parse(t)).peek("api|a=1", 1).remaining for t in ("9/day", "1/day")
        ]
        assert left == [8, 0]
        assert gate.check({"b": "1"}).decision.remaining == 3  # type: ignore[union-attr]


def test_usage_follows_two_reloads_and_back(redis_url: str, prefix: str) -> None:
    """Over two processes' gates: neither forgets, and neither counts twice."""
    with (
        RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store,
        RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as other_store,
    ):
        text = "domain: api\ndescriptors: [{key: user, limits: 10/hour}]"
        gates = [Gate.from_rules(text, each) for each in (store, other_store)]
        assert sum(bool(gates[0].check({"user": "1"})) for _ in range(5)) == 5
        assert gates[0].check({"user": "2"}, hits=10)
        for limit in ("20/hour", "30/hour"):
            for gate in gates:
                gate.replace(text.replace("10/hour", limit))
        assert not gates[0].check({"user": "2"})
        for gate in (*gates, *gates):
            assert left_of(gate, "1") == 15
        assert gates[1].check({"user": "1"}, hits=6)
        for gate in gates:
            gate.replace(text)
        assert [left_of(gate, "1") for gate in gates] == [3, 3], "21 of 30 are 7 of 10"


def left_of(gate: Gate, user: str) -> int:
    decision = gate.check(Descriptor.of({"user": user}, hits=0)).decision
    assert decision is not None
    return decision.remaining


async def test_tasks_that_come_at_once_after_a_reload(redis_url: str, prefix: str) -> None:
    async with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        text = "domain: api\ndescriptors: [{key: user, limits: 10/hour}]"
        gate = AsyncGate.from_rules(text, store)
        assert await gate.check({"user": "1"}, hits=5)
        gate.replace(text.replace("10/hour", "20/hour"))
        found = await asyncio.gather(*[gate.check({"user": "1"}) for _ in range(30)])
        assert sum(bool(verdict) for verdict in found) == 10


def test_an_override_that_redis_cannot_count_by_is_refused(redis_url: str, prefix: str) -> None:
    text = "domain: api\ndescriptors: [{key: user, limits: 500/minute sliding_log}]"
    with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        gate = Gate.from_rules(text, store)
        with pytest.raises(LimitError, match="api/user, 500/minute sliding_log times 10 cannot"):
            gate.switches.override("user", "1", factor=10)
        with pytest.raises(LimitError, match="5000/minute sliding_log cannot be counted"):
            gate.switches.override("nobody", "1", limit="5000/minute sliding_log")
        gate.switches.override("user", "1", factor=4)
        assert gate.check({"user": "1"}).decision.remaining == 1_999  # type: ignore[union-attr]
