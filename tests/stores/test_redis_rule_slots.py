"""Rules with ``concurrency`` over Redis: one number of slots for a fleet of services."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("redis")
pytest.importorskip("yaml")

from penstock import AsyncGate, Gate
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.service.service import Service
from penstock.stores.redis import RedisStore
from stores import redis_server

RULES = (
    "{domain: api, descriptors: [{key: user, concurrency: %d, slot_lease: %s, limits: 100/hour}]}"
)
USER = Descriptor.of({"user": "42"})
SECRET = b"the same on each host"


def service_on(store: RedisStore, slots: int = 2, lease: str = "30s") -> Service:
    return Service(AsyncGate.from_rules(RULES % (slots, lease), store), lease_secret=SECRET)


async def check(service: Service) -> str | None:
    verdict = service.check("api", [USER])
    return service.lease(verdict if isinstance(verdict, Verdict) else await verdict)


async def release(service: Service, lease: str | None) -> bool:
    assert lease is not None
    released = service.release(lease)
    return released if isinstance(released, bool) else await released


async def test_a_fleet_shares_slots_and_releases(redis_url: str, prefix: str) -> None:
    async with (
        RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as one,
        RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as other,
    ):
        first, second = service_on(one), service_on(other)
        lease, _ = await check(first), await check(second)
        assert await check(second) is None
        assert await release(second, lease) is True
        assert await release(first, lease) is False
        assert await check(first) is not None
        assert await check(second) is None


async def test_never_more_at_once_and_leases_of_one_instant_are_apart(
    redis_url: str, prefix: str
) -> None:
    """Checks of one batch have the same time in Redis. A lease that is released twice frees one."""
    async with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        service = service_on(store, slots=10)
        leases = await asyncio.gather(*[check(service) for _ in range(40)])
        granted = [lease for lease in leases if lease is not None]
        assert len(granted) == 10
        twice = await asyncio.gather(*[release(service, granted[0]) for _ in range(5)])
        assert sorted(twice) == [False] * 4 + [True]
        again = await asyncio.gather(*[check(service) for _ in range(5)])
        assert sum(lease is not None for lease in again) == 1


async def test_a_lease_ends_by_itself(redis_url: str, prefix: str) -> None:
    async with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        service = service_on(store, slots=1, lease="200ms")
        lease = await check(service)
        assert await check(service) is None
        await asyncio.sleep(0.25)
        assert await check(service) is not None
        assert await release(service, lease) is False
        assert await check(service) is None


async def test_a_reload_on_one_host_counts_leases_of_the_rule_before(
    redis_url: str, prefix: str
) -> None:
    async with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        service = service_on(store, slots=5)
        leases = [await check(service) for _ in range(4)]
        service.gate.replace(RULES % (3, "30s"))
        assert await check(service) is None
        for lease in leases[:2]:
            assert await release(service, lease) is True
        assert await check(service) is not None
        assert await check(service) is None


async def test_a_cancelled_check_holds_nothing(redis_url: str, prefix: str) -> None:
    async with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        service = service_on(store, slots=1)
        for _ in range(5):
            checking = asyncio.ensure_future(check(service))
            await asyncio.sleep(0)
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
        async with asyncio.timeout(60):  # what was taken is given back behind our back
            while await check(service) is None:
                await asyncio.sleep(0.01)


Own = Callable[..., redis_server.Server]


@pytest.mark.parametrize(("policy", "allowed"), [("open", 5), ("closed", 0), ("local", 1)])
async def test_without_redis_the_failure_policy_decides(
    own_server: Own, policy: str, allowed: int
) -> None:
    server = own_server()
    options: dict[str, Any] = {"share": 0.5} if policy == "local" else {}
    async with RedisStore(
        server.url, deadline="60s", connect_timeout="60s", on_failure=policy, **options
    ) as store:
        service = service_on(store)
        lease = await check(service)
        server.kill()
        verdicts = []
        for _ in range(5):
            verdict: Any = service.check("api", [USER])
            verdicts.append(await verdict if isinstance(verdict, Awaitable) else verdict)
        assert sum(map(bool, verdicts)) == allowed
        # What cannot be released now is free when its lease is over.
        assert await release(service, lease) in (True, False)
        for verdict in verdicts:
            await service.gate.release(verdict)
        if policy == "local":
            assert await check(service) is not None


def test_a_server_whose_clock_steps_back(own_server: Own) -> None:
    server = own_server(own_clock=True)
    with RedisStore(server.url, deadline="60s", connect_timeout="60s") as store:
        step = {"key": "user", "concurrency": 1, "slot_lease": "300ms"}
        gate = Gate.from_rules({"domain": "api", "descriptors": [step]}, store)
        first = gate.check(USER)
        server.step_clock(-3600)
        assert not gate.check(USER)
        gate.release(first)
        time.sleep(0.35)
        assert gate.check(USER), "a step back costs one lease at most"
        assert not gate.check(USER)
