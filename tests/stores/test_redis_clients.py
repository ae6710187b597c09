"""Clients that a store lends for other uses of its server: same log-in, TLS, database."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("redis")

import redis
from redis.exceptions import RedisClusterException

from penstock.errors import LimitError, StoreError
from penstock.stores.redis import RedisStore
from stores.proxy import Proxy, unreachable_port
from stores.redis_server import Server, wait_until

if TYPE_CHECKING:
    from stores.redis_cluster import Cluster
    from stores.redis_sentinel import SentinelSetup

StartServer = Callable[..., Server]
PATIENT = {"timeout": "5s", "connect_timeout": "5s"}
SCRIPT = "redis.call('SET', KEYS[1], ARGV[1], 'EX', 60) return redis.call('GET', KEYS[1])"


async def use(store: RedisStore, prefix: str, count: int = 1) -> list[str]:
    """Run a script by clients of both kinds, and close them; the keys that it wrote."""
    names = [f"{prefix}:client:{number}" for number in range(2 * count)]
    with store.client(**PATIENT) as client:
        for name in names[:count]:
            assert client.eval(SCRIPT, 1, name, "value") == b"value"
    made = store.client_async(**PATIENT)
    try:
        for name in names[count:]:
            assert await made.eval(SCRIPT, 1, name, "value") == b"value"
    finally:
        await made.aclose()
    return names


def connections_of(name: str, ports: list[int]) -> int:
    """Those of clients with this name, as the servers see it."""
    found = 0
    for port in ports:
        with redis.Redis(port=port, protocol=2) as watcher:
            found += [each["name"] for each in watcher.client_list()].count(name)
    return found


async def test_a_password_and_a_database(own_server: StartServer, prefix: str) -> None:
    server = own_server("--requirepass", "hush")
    place = f"127.0.0.1:{server.port}"
    for at, where in enumerate(
        (
            f"redis://:hush@{place}/3",
            f"{server.unix_url.partition('?')[0]}?db=3",
            redis.Redis(port=server.port, password="hush", db=3, decode_responses=True),
            redis.asyncio.Redis(port=server.port, password="hush", db=3),
        )
    ):
        names = await use(RedisStore(where), f"{prefix}:{at}")
        with redis.Redis(port=server.port, password="hush", db=3) as client:
            assert client.exists(*names) == len(names)


async def test_tls(redis_url: str, certificate: tuple[Path, Path], prefix: str) -> None:
    with Proxy(redis_url, tls=certificate) as proxy:
        await use(RedisStore(proxy.url), prefix)
        assert proxy.commands.count("EVAL") == 2
        distrustful = RedisStore(proxy.url.partition("?")[0])
        with (
            distrustful.client(**PATIENT) as client,
            pytest.raises(redis.ConnectionError, match="certificate verify failed"),
        ):
            client.ping()


async def test_sentinels_name_the_master(sentinels: SentinelSetup, prefix: str) -> None:
    places = ",".join(f"127.0.0.1:{port}" for port in sentinels.sentinel_ports)
    names = await use(RedisStore(f"redis+sentinel://{places}/{sentinels.service}/2"), prefix)
    with redis.Redis(port=sentinels.master_port(), db=2) as client:
        assert client.exists(*names) == len(names)


async def test_closing_closes_the_connections_to_the_sentinels(
    sentinels: SentinelSetup, prefix: str
) -> None:
    ports = [*sentinels.sentinel_ports, sentinels.master_port()]
    places = ",".join(f"127.0.0.1:{port}" for port in sentinels.sentinel_ports)
    store = RedisStore(f"redis+sentinel://{places}/{sentinels.service}?client_name={prefix}")

    connections = partial(connections_of, prefix, ports)
    with store.client(**PATIENT) as client:
        assert client.ping()
        assert connections() == 2, "one to a sentinel, one to the master"
    wait_until(lambda: connections() == 0, "closed connections", 60)
    made = store.client_async(**PATIENT)
    try:
        assert await made.ping()
        assert connections() == 2
    finally:
        await made.aclose()
    wait_until(lambda: connections() == 0, "closed connections", 60)


async def test_a_cluster(cluster: Cluster, prefix: str) -> None:
    where = f"redis+cluster://127.0.0.1:{cluster.ports[0]}"
    names = await use(RedisStore(where), prefix, 20)
    masters = {cluster.master_of(name).port for name in names}
    assert len(masters) == 3, "each key is where the cluster has it"
    with redis.RedisCluster.from_url(cluster.urls[0]) as client:
        assert all(client.exists(name) for name in names)
        await use(RedisStore(client), f"{prefix}:2", 3)


async def test_closing_after_an_error_closes_all(cluster: Cluster, prefix: str) -> None:
    store = RedisStore(f"redis+cluster://127.0.0.1:{cluster.ports[0]}?client_name={prefix}")
    made = store.client_async(timeout="200ms")
    try:
        for number in range(20):
            await made.get(f"{prefix}:{number}")
        assert connections_of(prefix, cluster.ports) >= 3
        cluster.master_of(prefix)("CLIENT", "PAUSE", 300, "WRITE")
        with pytest.raises(redis.TimeoutError):
            await made.incr(prefix)
    finally:
        await made.aclose()
    wait_until(lambda: connections_of(prefix, cluster.ports) == 0, "closed connections", 60)


async def test_of_a_cluster_that_is_not_there() -> None:
    with unreachable_port() as port:
        store = RedisStore(f"redis+cluster://127.0.0.1:{port}", connect_timeout="50ms")
        with pytest.raises(RedisClusterException):
            store.client()
        made = store.client_async()
        with pytest.raises(RedisClusterException):
            await made.get("k")
        await made.aclose()


def test_no_option_of_tls_is_left_out() -> None:
    least = ssl.TLSVersion.TLSv1_3
    lender = redis.asyncio.RedisCluster(host="localhost", ssl=True, ssl_min_version=least)
    with pytest.raises(StoreError, match="does not know the option ssl_min_version"):
        RedisStore(lender).client()


async def test_nothing_is_tried_twice(proxied: Proxy, prefix: str) -> None:
    """Whether it had an effect, and may have it twice, only the caller knows."""
    await fail_twice(RedisStore(proxied.url), proxied, prefix)


async def test_nor_in_a_cluster(own_server: StartServer, prefix: str) -> None:
    server = own_server("--cluster-enabled", "yes", bus=True)
    with Proxy(server.url) as proxy, redis.Redis(port=server.port, protocol=2) as admin:
        admin.config_set("cluster-announce-port", proxy.port)
        admin.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        state = partial(admin.execute_command, "CLUSTER INFO")
        wait_until(lambda: state()["cluster_state"] == "ok", "a cluster", 60)
        store = RedisStore(f"redis+cluster://127.0.0.1:{proxy.port}")
        await fail_twice(store, proxy, prefix)


async def fail_twice(store: RedisStore, proxy: Proxy, name: str) -> None:
    """Each client counts once without hearing of it, and once over a connection that breaks."""
    client, made = store.client(timeout="200ms"), store.client_async(timeout="200ms")
    try:
        for fault, error in (
            (proxy.lose_replies, redis.TimeoutError),
            (proxy.cut, redis.ConnectionError),
        ):
            fault("INCRBY")
            with pytest.raises(error):
                client.incr(name)
            with pytest.raises(error):
                await made.incr(name)
        proxy.let_pass()
        assert client.get(name) == await made.get(name) == b"4"
    finally:
        client.close()
        await made.aclose()


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"connect_timeout": "soon"}])
def test_wrong_times(wrong: dict[str, Any]) -> None:
    store = RedisStore("redis://localhost")
    for make in (store.client, store.client_async):
        with pytest.raises(LimitError):
            make(**wrong)
