"""RedisStore against a real server: the suite of every store, keys, coalescing, cancelling."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("redis")

import redis

from penstock import AsyncLimiter, Limiter, StoreUnavailable
from penstock.stores.redis import RedisStore
from penstock.testing import FakeClock, StoreConformance
from stores.machine import Watched
from stores.proxy import Proxy
from stores.redis_server import Server
from stores.redis_time import ToldStore

if TYPE_CHECKING:
    from stores.redis_cluster import Cluster
    from stores.redis_sentinel import SentinelSetup

StartServer = Callable[..., Server]
# For tests that are not about time: this machine may be busy.
WITHOUT_HURRY = {"deadline": "60s", "connect_timeout": "60s"}


class TestConformance(StoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str, prefix: str) -> Iterator[None]:
        self.url = redis_url
        self.names = (f"{prefix}-{number}" for number in itertools.count())
        self.stores: list[ToldStore] = []
        yield
        for store in self.stores:
            store.close()

    def make_store(self, clock: FakeClock) -> ToldStore:
        store = ToldStore(self.url, clock, prefix=next(self.names))
        self.stores.append(store)
        return store


@pytest.mark.parametrize(
    "text",
    [
        "7/minute",
        "7/minute burst 3 lockout 1001us",
        "7/minute sliding_window cells 7",
        "7/minute sliding_window cells 7 rounding up",
        "3/3001us sliding_log",
    ],
)
def test_waits_are_over_by_the_servers_clock(redis_url: str, prefix: str, text: str) -> None:
    """It has whole microseconds: a wait that ends between two ends at the second one."""
    clock = FakeClock()
    store = ToldStore(redis_url, clock, prefix=prefix)
    limiter = Limiter(text, store=store)
    while limiter.hit("k"):
        pass
    refused = limiter.peek("k")
    start = clock.now()
    clock.set(start + refused._retry - 1)
    assert not limiter.peek("k")
    clock.advance_ns(1)
    assert limiter.peek("k")
    clock.set(start + refused._reset)
    assert limiter.peek("k").remaining == limiter.peek("new").remaining
    store.close()


# Keys -----------------------------------------------------------------------------------


async def test_keys_are_readable_and_always_expire(redis_url: str, prefix: str) -> None:
    async with RedisStore(redis_url, prefix=f"{prefix}:a b", **WITHOUT_HURRY) as store:
        limiter = AsyncLimiter(store=store)
        await limiter.hit("user:42", "100/minute")
        await limiter.hit("a {b}\n", "5/hour lockout 15m on_failure closed")
        await limiter.hit("x" * 10_000, "5/day fixed_window")
    with redis.Redis.from_url(redis_url) as client:
        names = sorted(client.scan_iter(f"{prefix}:*"))
        assert names == [
            f"{prefix}:a%20b:100/minute:user:42".encode(),
            f"{prefix}:a%20b:5/day%20fixed_window:{'x' * 10_000}".encode(),
            f"{prefix}:a%20b:5/hour%20lockout%2015m:a%20%7Bb%7D%0A".encode(),
        ]
        assert all(0 < client.pttl(name) <= 86_400_000 for name in names)
        assert client.pttl(names[0]) <= 602


async def test_what_happens_on_failure_is_not_counted_by(redis_url: str, prefix: str) -> None:
    async with RedisStore(redis_url, prefix=prefix, **WITHOUT_HURRY) as store:
        limiter = AsyncLimiter("5/hour", store=store)
        await limiter.hit("k", cost=3)
        assert (await limiter.peek("k", "5/hour on_failure closed share 0.5")).remaining == 2


async def test_a_tag_is_the_hash_tag_of_the_key(redis_url: str, prefix: str) -> None:
    def tenant(key: str) -> str:
        return key.partition(":")[0]

    for tag, shown in ((tenant, "ac{me"), ("all", "all")):
        async with RedisStore(redis_url, prefix=prefix, tag=tag, **WITHOUT_HURRY) as store:
            await AsyncLimiter("5/hour", store=store).hit("ac{me:1")
        with redis.Redis.from_url(redis_url) as client:
            name = f"{prefix}:{{{shown.replace('{', '%7B')}}}:5/hour:ac%7Bme:1"
            assert client.exists(name), [*client.scan_iter(f"{prefix}*")]


# Ways in --------------------------------------------------------------------------------


async def test_a_client_lends_its_settings(own_server: StartServer, prefix: str) -> None:
    server = own_server("--requirepass", "hush")
    for client in (redis.Redis, redis.asyncio.Redis):
        made = client(port=server.port, password="hush", db=3)
        async with RedisStore(made, prefix=prefix, **WITHOUT_HURRY) as store:
            assert await AsyncLimiter("5/hour", store=store).hit("k")
    with redis.Redis(port=server.port, password="hush", db=3) as client:
        assert client.keys("*") == [f"{prefix}:5/hour:k".encode()]


async def test_a_unix_socket_and_tls(
    own_server: StartServer, certificate: tuple[Path, Path]
) -> None:
    server = own_server("--requirepass", "hush")
    with Proxy(server.url, tls=certificate) as proxy:
        secure = f"rediss://:hush@localhost:{proxy.port}?ssl_ca_certs={certificate[0]}"
        for url in (server.unix_url, secure):
            async with RedisStore(url, **WITHOUT_HURRY) as store:
                decision = await AsyncLimiter("2/hour", store=store).hit("k")
                assert decision
                assert not decision.degraded
        assert decision.remaining == 0, "they are one server"


# Together -------------------------------------------------------------------------------


async def test_what_is_asked_in_one_turn_leaves_together(proxied: Proxy, prefix: str) -> None:
    async with RedisStore(proxied.url, prefix=prefix, **WITHOUT_HURRY) as store:
        limiter = AsyncLimiter("5/hour", store=store)
        for asked, calls in ((1, 1), (32, 1), (33, 2), (200, 7)):
            before = proxied.commands.count("EVALSHA")
            keys = [f"{asked}:{number}" for number in range(asked)]
            found = await asyncio.gather(*(limiter.hit(key) for key in keys))
            assert [decision.remaining for decision in found] == [4] * asked
            assert proxied.commands.count("EVALSHA") - before == calls


def test_threads_leave_together_and_take_turns(proxied: Proxy, prefix: str) -> None:
    with RedisStore(proxied.url, prefix=prefix, **WITHOUT_HURRY) as store:
        store.connect()
        limiter = Limiter("1000/hour", store=store)
        start, seen = threading.Barrier(16), []

        def work(number: int) -> None:
            start.wait()
            for turn in range(50):
                seen.append(limiter.hit(f"{turn}:{number % 2}").remaining)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Each key was hit by eight threads: every one of them saw another remainder.
        assert Counter(seen) == {999 - taken: 100 for taken in range(8)}
        assert proxied.commands.count("EVALSHA") < 0.7 * len(seen)


async def test_a_blocking_limiter_works_where_an_event_loop_runs(
    redis_url: str, prefix: str
) -> None:
    with RedisStore(redis_url, prefix=prefix, **WITHOUT_HURRY) as store:
        limiter = Limiter("5/hour", store=store)
        assert [limiter.hit("k").remaining for _ in range(3)] == [4, 3, 2]
        assert (await AsyncLimiter("5/hour", store=store).hit("k")).remaining == 1
        await store.close_async()


def test_one_store_serves_many_loops_and_threads(redis_url: str, prefix: str) -> None:
    with RedisStore(redis_url, prefix=prefix, **WITHOUT_HURRY) as store:

        async def some() -> list[int]:
            limiter = AsyncLimiter("100/hour", store=store)
            found = [(await limiter.hit("k")).remaining for _ in range(3)]
            await store.close_async()
            return found

        assert asyncio.run(some()) == [99, 98, 97]
        assert Limiter("100/hour", store=store).hit("k").remaining == 96
        assert asyncio.run(some()) == [95, 94, 93]


async def test_waits_reservations_and_slots(redis_url: str, prefix: str) -> None:
    async with RedisStore(redis_url, prefix=prefix, **WITHOUT_HURRY) as store:
        limiter = AsyncLimiter("20/second burst 1", store=store)
        start = asyncio.get_running_loop().time()
        for _ in range(4):
            assert await limiter.wait("k")
        assert asyncio.get_running_loop().time() - start >= 0.149
        async with limiter.slot("k"):
            pass
        async with limiter.reserve("tokens", "100/hour", cost=40) as reservation:
            await reservation.settle(10)
        assert (await limiter.peek("tokens", "100/hour")).remaining == 90
        paced = "20/second leaky_bucket"
        with Watched() as machine:
            start = time.monotonic()
            await asyncio.gather(*(limiter.wait("line", paced) for _ in range(4)))
            assert time.monotonic() - start >= 0.149
            assert machine.took(start) < 1


async def test_a_calendar_is_renewed_when_its_windows_have_passed(
    redis_url: str, prefix: str
) -> None:
    clock = FakeClock(1_700_000_000 * 10**9)
    store = ToldStore(redis_url, clock, prefix=prefix)
    limiter = AsyncLimiter("2/day fixed_window tz Asia/Taipei", store=store)
    for _ in range(3):
        assert [bool(await limiter.hit("k")) for _ in range(3)] == [True, True, False]
        clock.advance(90 * 86_400)
    await store.close_async()


# Cluster --------------------------------------------------------------------------------


async def test_a_cluster_decides_by_slots(cluster: Cluster, prefix: str) -> None:
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in cluster.ports[:2])
    async with RedisStore(url, prefix=prefix, **WITHOUT_HURRY) as store:
        limiter = AsyncLimiter("5/hour", store=store)
        found = await asyncio.gather(*(limiter.hit(f"k{number % 50}") for number in range(250)))
        assert Counter(d.remaining for d in found) == dict.fromkeys(range(5), 50)
        assert not any(decision.degraded for decision in found)
        assert not await limiter.hit("k7")


@pytest.mark.parametrize("tag", [None, "together"])
async def test_all_or_nothing_in_a_cluster(cluster: Cluster, prefix: str, tag: str | None) -> None:
    url = f"redis+cluster://127.0.0.1:{cluster.ports[0]}"
    async with RedisStore(url, prefix=prefix, tag=tag, **WITHOUT_HURRY) as store:
        limiter = AsyncLimiter(store=store)
        wanted = [("user", "10/hour", 2), ("ip", "3/hour"), ("path", "50/hour")]
        for left in (2, 1, 0):
            assert (await limiter.hit_all(wanted)).remaining == left
        refused = await limiter.hit_all(wanted)
        assert not refused
        assert str(refused.limit) == "3/hour"
        async with asyncio.timeout(60):  # what was reserved is given back behind our back
            while (await limiter.peek("user", "10/hour")).remaining != 4:
                await asyncio.sleep(0.01)
        assert (await limiter.peek("path", "50/hour")).remaining == 47
    with RedisStore(url, prefix=prefix, tag=tag, **WITHOUT_HURRY) as store:
        limiter = Limiter(store=store)
        assert not limiter.hit_all(wanted)
        assert limiter.peek("user", "10/hour").remaining == 4


async def test_a_cluster_by_a_client(cluster: Cluster, prefix: str) -> None:
    made = redis.RedisCluster(host="127.0.0.1", port=cluster.ports[0])
    waiting = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.ports[0])
    try:
        for left, client in ((4, made), (3, waiting)):
            async with RedisStore(client, prefix=prefix, **WITHOUT_HURRY) as store:
                assert (await AsyncLimiter("5/hour", store=store).hit("k")).remaining == left
    finally:
        made.close()
        await waiting.aclose()


async def test_sentinels_name_the_master(sentinels: SentinelSetup, prefix: str) -> None:
    places = ",".join(f"127.0.0.1:{port}" for port in sentinels.sentinel_ports)
    url = f"redis+sentinel://{places}/{sentinels.service}"
    async with RedisStore(url, prefix=prefix, **WITHOUT_HURRY) as store:
        assert (await AsyncLimiter("5/hour", store=store).hit("k")).remaining == 4
    nobody = RedisStore(f"redis+sentinel://{places}/nobody", **WITHOUT_HURRY)
    with pytest.raises(StoreUnavailable, match="no sentinel names a master"):
        await nobody.connect_async()
