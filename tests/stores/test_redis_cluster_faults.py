"""Sentinels and clusters fail over, and slots move, while decisions are made without a pause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("redis")

from penstock import AsyncLimiter
from penstock.events import StoreDown, StoreUp
from penstock.limits import as_limit
from penstock.stores.redis import RedisStore
from stores.load import BACK_WITHIN, KINDS, Load, TaskLoad, wait_for
from stores.machine import Stalls
from stores.redis_cluster import slot_of
from stores.test_redis_faults import check_promises

if TYPE_CHECKING:
    from stores.redis_cluster import Cluster, Node
    from stores.redis_sentinel import SentinelSetup

pytestmark = pytest.mark.realtime


def places(ports: list[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)


# Sentinels -------------------------------------------------------------------------


@pytest.fixture
def sentinel_url(sentinels: SentinelSetup) -> str:
    return f"redis+sentinel://{places(sentinels.sentinel_ports)}/{sentinels.service}"


def test_sentinels_that_make_another_one_master(
    sentinels: SentinelSetup, sentinel_url: str, prefix: str
) -> None:
    stores = {kind: RedisStore(sentinel_url, prefix=f"{prefix}-{kind}") for kind in KINDS}
    with (
        KINDS["tasks"](stores["tasks"], workers=16) as tasks,
        KINDS["threads"](stores["threads"], workers=4) as threads,
    ):
        time.sleep(0.2)
        killed = time.monotonic()
        sentinels.kill_master()
        took = sentinels.wait_failover()
        named = time.monotonic()
        for load in (tasks, threads):
            assert wait_for(lambda load=load: load.shared_since(named) > 0), "it never came back"
        time.sleep(0.2)
        for store in stores.values():
            assert wait_for(lambda store=store: store.state == "closed")
    sentinels.heal()
    for kind, load in (("tasks", tasks), ("threads", threads)):
        shared = [one.end for one in load.since(killed + 0.1) if not one.degraded]
        back = min(shared)
        print(
            f"\nSentinel, {kind}: failover took {took:.2f} s, shared again {back - named:+.3f} s"
            f" after all sentinels agreed, {load.degraded_since(killed)} degraded"
        )
        assert back - named <= BACK_WITHIN + load.machine.lost(named, back)
        assert load.told(StoreDown) == load.told(StoreUp) >= 1
        check_promises(load, f"Sentinel, {kind}")


async def test_a_sentinel_that_hangs_is_passed_over(
    sentinels: SentinelSetup, sentinel_url: str, prefix: str
) -> None:
    sentinels.sentinels[0].pause()
    try:
        async with RedisStore(sentinel_url, prefix=prefix) as store:
            assert not (await AsyncLimiter("1/second", store=store).peek("k")).degraded
    finally:
        sentinels.sentinels[0].resume()


# A cluster -------------------------------------------------------------------------


@pytest.fixture
def cluster_url(cluster: Cluster) -> Iterator[str]:
    yield f"redis+cluster://{places(cluster.ports[:2])}"
    cluster.heal()


def masters_of(load: Load, store: RedisStore, cluster: Cluster, limit: str) -> dict[str, Node]:
    counters = store.counters(as_limit(limit))
    return {key: cluster.master_of(counters.redis_key(key)) for key in load.keys}


@pytest.mark.parametrize(("way", "kind"), [("killed", "tasks"), ("stopped", "threads")])
def test_a_master_of_a_cluster_that_fails(
    way: str, kind: str, cluster: Cluster, cluster_url: str, prefix: str
) -> None:
    store = RedisStore(cluster_url, prefix=prefix)
    with KINDS[kind](store, keys=60) as load:
        homes = masters_of(load, store, cluster, load.limit)
        victim = cluster.master_of(0)
        time.sleep(0.2)
        broken = time.monotonic()
        (cluster.kill if way == "killed" else cluster.pause)(victim)
        _, took = cluster.failed_over(victim)
        agreed = time.monotonic()

        def back() -> bool:
            return any(not d.degraded and homes[d.key] is victim for d in load.since(agreed))

        assert wait_for(back), "its slots never came back"
        time.sleep(0.3)
        assert wait_for(lambda: store.state == "closed")
    its = [one for one in load.since(broken + 0.1) if homes[one.key] is victim]
    first = min(one.end for one in its if not one.degraded)
    others = [one for one in load.since(broken) if homes[one.key] is not victim]
    lost = [one for one in load.unexcused(broken, Stalls()) if homes[one.key] is not victim]
    print(
        f"\ncluster, master {way}, {kind}: failover took {took:.2f} s, its slots shared again"
        f" {first - agreed:+.3f} s after all agreed; of its keys"
        f" {sum(one.degraded for one in its)} degraded, of others'"
        f" {sum(one.degraded for one in others)} of {len(others)}"
    )
    assert first - agreed <= BACK_WITHIN + load.machine.lost(agreed, first)
    assert len(lost) <= len(others) / 100, lost[:3]
    assert any(one.degraded for one in its)
    assert load.told(StoreDown) == load.told(StoreUp) >= 1
    check_promises(load, f"cluster, master {way}, {kind}")


async def test_what_a_refused_group_gives_back_is_not_called_late(
    cluster: Cluster, cluster_url: str, prefix: str
) -> None:
    async with RedisStore(cluster_url, prefix=prefix, deadline="50ms") as store:
        limiter, told = AsyncLimiter(store=store), []
        wanted = [(f"k{n}", "10/year") for n in range(8)] + [("small", "1/month")]
        assert await limiter.hit_all(wanted)
        await asyncio.sleep(0.06)
        store.subscribe(told.append)
        for _ in range(5):
            assert not await limiter.hit_all(wanted)
        await asyncio.sleep(0.12)
        assert [(await limiter.peek(*one)).remaining for one in wanted] == [9] * 8 + [0]
        assert not told
        assert store.state == "closed"


@pytest.fixture
async def exact(cluster_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    """With time enough for every answer, so that each unit must be accounted for."""
    async with RedisStore(
        cluster_url,
        prefix=prefix,
        deadline="60s",
        connect_timeout="60s",
        on_failure="closed",
        tag=lambda key: key[:2],
    ) as made:
        yield made


async def test_slots_that_move_lose_and_double_nothing(cluster: Cluster, exact: RedisStore) -> None:
    amount, limit = 600, "600/year"
    limiter = AsyncLimiter(limit, store=exact)
    source, target = cluster.master_of(0), cluster.master_of(16383)
    tags = [f"{letter}{n}" for letter in "abcdefgh" for n in range(10)]
    counters = exact.counters(as_limit(limit))
    ours = [t for t in tags if cluster.master_of(counters.redis_key(t)) is source][:6]
    assert len(ours) == 6
    admitted = {f"{tag}{key}": 0 for tag in ours for key in ("-one", "-two", "-pair")}
    refused = dict.fromkeys(admitted, 0)
    errors: list[BaseException] = []
    degraded = 0

    async def work(number: int) -> None:
        nonlocal degraded
        names = list(admitted)
        while min(refused.values()) < 5:
            name = names[number % len(names)]
            number += 1
            try:
                if name.endswith("-pair"):
                    decision = await limiter.hit_all([(name, limit), (f"{name}-other", limit)])
                else:
                    decision = await limiter.hit(name)
            except Exception as error:
                errors.append(error)
                return
            degraded += decision.degraded
            (admitted if decision else refused)[name] += 1
            await asyncio.sleep(0.002)

    slots = {slot_of(counters.redis_key(f"{tag}-one")) for tag in ours}
    begun = time.monotonic()
    tasks = [asyncio.create_task(work(number)) for number in range(32)]
    await asyncio.sleep(0.05)

    def move() -> int:
        steps = 0
        for _ in cluster.migrate(slots, source, target, batch=1):
            steps += 1
            time.sleep(0.02)
        return steps

    steps = await asyncio.to_thread(move)
    moved = time.monotonic()
    while_moving = sum(admitted.values())
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    print(
        f"\n{len(slots)} slots moved in {steps} steps and {moved - begun:.2f} s, {while_moving}"
        f" units admitted meanwhile, {sum(admitted.values())} in the end, {degraded} degraded"
    )
    assert not errors, errors[:3]
    assert not degraded
    assert while_moving < len(admitted) * amount, "there was nothing left to take"
    assert admitted == dict.fromkeys(admitted, amount)
    assert exact.state == "closed"
    await asyncio.to_thread(lambda: [*cluster.migrate(slots, target, source)])


def test_a_cluster_that_is_all_gone(cluster: Cluster, cluster_url: str, prefix: str) -> None:
    """All masters and replicas at once; and back again, without data."""
    with TaskLoad(RedisStore(cluster_url, prefix=prefix), keys=60) as load:
        time.sleep(0.1)
        for node in cluster.nodes:
            node.server.kill()
        broken = time.monotonic()
        time.sleep(0.5)
        shared = [one for one in load.since(broken + 0.1) if not one.degraded]
        cluster.heal()
        healed = time.monotonic()
        assert wait_for(lambda: len({d.key for d in load.since(healed) if not d.degraded}) == 60)
        back = time.monotonic()
    print(f"\nwhole cluster: all keys shared again {back - healed:.3f} s after it agreed")
    assert not shared
    assert back - healed <= BACK_WITHIN + load.machine.lost(healed, back)
    check_promises(load, "whole cluster")
