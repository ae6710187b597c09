"""A store in Redis that is killed, stopped, emptied, and that forgets: no last state is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from kv.conftest import cluster_url
from kv.shells import Replica, until
from penstock import ForeignValue, NotReplicated, StoreError, StoreUnavailable
from penstock.kv import AsyncKeyValue, KeyValue, at_least
from stores.redis_server import Server

OwnServer = Callable[..., Server]


def raw(server: Server) -> Any:
    return redis.Redis(port=server.port)


async def put_until_it_works(kv: AsyncKeyValue, key: str, value: str) -> None:
    for _ in range(200):
        try:
            await kv.put(key, value)
            return
        except StoreUnavailable:
            await asyncio.sleep(0.05)
    raise AssertionError("the store did not come back")


async def test_killed_and_restarted_with_its_data(own_server: OwnServer) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    async with AsyncKeyValue(server.url, timeout="1s") as kv, AsyncKeyValue(server.url) as other:
        replica = Replica(other.watch(""))
        acknowledged = {}
        for n in range(5):
            await kv.put(f"k/{n}", str(n))
            acknowledged[f"k/{n}"] = str(n)
            server.kill()
            with pytest.raises(StoreUnavailable):
                await kv.put("k/0", "while it was away")
            server.restart()
            await put_until_it_works(kv, "last", str(n))
            acknowledged["last"] = str(n)
        await replica.until(acknowledged)
        assert {e.key: e.value for e in await other.list(read="primary")} == acknowledged
        await replica.close()


async def test_kill_9_during_writes_loses_nothing_acknowledged(own_server: OwnServer) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    acknowledged: dict[str, str] = {}

    async def write(kv: AsyncKeyValue, name: str) -> None:
        try:
            for n in range(100_000):
                await kv.put(name, str(n))
                acknowledged[name] = str(n)
        except StoreUnavailable:
            return

    for _ in range(3):
        async with AsyncKeyValue(server.url, timeout="1s") as kv:
            writers = [asyncio.create_task(write(kv, f"w/{n}")) for n in range(4)]
            await until(lambda: len(acknowledged) == 4)
            await asyncio.sleep(0.1)
            server.kill()
            await asyncio.gather(*writers)
        server.restart()
        async with AsyncKeyValue(server.url) as kv:
            for name, value in acknowledged.items():
                entry = await kv.get(name, read="primary")
                assert entry is not None
                assert int(entry.text) >= int(value)


async def test_stopped_and_resumed(own_server: OwnServer) -> None:
    server = own_server()
    async with AsyncKeyValue(server.url, timeout="300ms") as kv:
        other = AsyncKeyValue(server.url, timeout="300ms")
        replica = Replica(other.watch(""))
        await kv.put("k", "1")
        await replica.until({"k": "1"})
        server.pause()
        with pytest.raises(StoreUnavailable, match="may have been made"):
            await kv.put("k", "2")
        other._follower.wake()  # type: ignore[union-attr]  # it follows
        await until(lambda: not other._mirror.connected)
        entry, status = await other.get("k"), await other.status()
        assert entry is not None
        assert (entry.value, status.source, status.connected) == ("1", "memory", False)
        assert entry.age > 0
        assert status.age is not None
        assert status.age >= entry.age
        assert "no answer" in status.reason or "Timeout" in status.reason
        with pytest.raises(StoreUnavailable):
            await other.get("k", read="primary")
        with pytest.raises(StoreUnavailable):
            await other.get("k", read=at_least(99))
        server.resume()
        await put_until_it_works(kv, "k", "3")
        await replica.until({"k": "3"})
        assert (await other.status()).connected
        await replica.close()
        await other.aclose()


async def test_a_server_that_lost_everything(own_server: OwnServer) -> None:
    server = own_server()
    async with AsyncKeyValue(server.url) as kv, AsyncKeyValue(server.url) as other:
        replica = Replica(other.watch(""))
        for n in range(5):
            await kv.put(f"k/{n}", str(n))
        await replica.until({f"k/{n}": str(n) for n in range(5)})
        server.restart()  # without a disk
        await put_until_it_works(kv, "k/1", "new")
        await put_until_it_works(kv, "k/9", "new")
        await replica.until({"k/1": "new", "k/9": "new"})
        await replica.close()


async def test_a_server_that_forgot_writes_and_numbers_others_the_same(
    own_server: OwnServer,
) -> None:
    """As after a failover to a replica that was behind: the token tells the writes apart."""
    server = own_server()
    client = raw(server)
    async with AsyncKeyValue(server.url) as kv, AsyncKeyValue(server.url) as other:
        replica = Replica(other.watch(""))
        await kv.put("a", "1")
        keys = [name.decode() for name in client.keys("*")]
        before = {name: client.dump(name) for name in keys}
        await kv.put("lost", "1")
        await kv.put("b", "lost")
        await replica.until({"a": "1", "lost": "1", "b": "lost"})
        pipeline = client.pipeline()
        for name, data in before.items():
            pipeline.restore(name, 0, data, replace=True)
        pipeline.execute()
        await kv.put("b", "other")  # the revisions that were known already
        await kv.put("c", "other")
        await other.sync()
        await replica.until({"a": "1", "b": "other", "c": "other"})
        await replica.close()
    client.close()


async def test_messages_that_are_lost_cost_one_poll(
    own_server: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    client = raw(server)
    async with AsyncKeyValue(server.url) as kv, AsyncKeyValue(server.url) as other:
        other.backend.poll = 0.2
        replica = Replica(other.watch(""))
        await kv.put("k", "1")
        await replica.until({"k": "1"})
        kv.backend._channel = "nobody listens"  # type: ignore[attr-defined]
        await kv.put("k", "2")
        await replica.until({"k": "2"})
        for victim in client.client_list(_type="pubsub"):
            client.client_kill_filter(_id=victim["id"])
        await kv.put("k", "3")
        await replica.until({"k": "3"})
        await replica.close()
    client.close()


async def test_connections_that_break_all_the_time(proxied: Any, prefix: str) -> None:
    namespace = prefix[-60:]
    async with (
        AsyncKeyValue(proxied.url, namespace=namespace, timeout="1s") as kv,
        AsyncKeyValue(proxied.url, namespace=namespace, timeout="1s") as other,
    ):
        replica = Replica(other.watch(""))
        for n in range(10):
            await put_until_it_works(kv, "k", str(n))
            proxied.disconnect()
        await replica.until({"k": "9"})
        await replica.close()


async def test_a_write_whose_answer_is_lost_is_made_once(own_server: OwnServer) -> None:
    server = own_server()
    client = raw(server)
    async with AsyncKeyValue(server.url) as kv:
        await kv.put("k", "1")
        send, lost = kv.backend._clients.send_async, []  # type: ignore[attr-defined]

        async def lose_once(command: Any) -> Any:
            answer = await send(command)
            if not lost and command[0] in ("evalsha", "eval"):
                lost.append(command)
                raise redis.ConnectionError("the answer is lost")
            return answer

        kv.backend._clients.send_async = lose_once  # type: ignore[attr-defined]
        written = await kv.put("k", "2", expect=1)
        assert (written.revision, len(lost)) == (2, 1)
        assert [change.revision for change in await kv.history()] == [2, 1]
    client.close()


async def test_a_failover_of_the_cluster(cluster: Any, prefix: str) -> None:
    namespace = prefix[-60:]
    url = cluster_url(cluster)
    async with (
        AsyncKeyValue(url, namespace=namespace, timeout="1s") as kv,
        AsyncKeyValue(url, namespace=namespace, timeout="1s") as other,
    ):
        replica = Replica(other.watch(""))
        await kv.put("k", "before")
        await replica.until({"k": "before"})
        master = cluster.master_of(f"{{{namespace}:kv}}:meta")
        try:
            cluster.kill(master)
            await asyncio.to_thread(cluster.failed_over, master)
            await put_until_it_works(kv, "k", "after")
            await replica.until({"k": "after"}, 60)
        finally:
            await replica.close()
            await asyncio.to_thread(cluster.heal)


@pytest.mark.parametrize("kind", ["single", "cluster"])
async def test_writes_confirmed_by_replicas(
    kind: str, request: pytest.FixtureRequest, prefix: str
) -> None:
    namespace = prefix[-60:]
    if kind == "cluster":
        url = cluster_url(request.getfixturevalue("cluster"))
        async with AsyncKeyValue(url, namespace=namespace, replicas=1) as kv:
            assert (await kv.put("k", "1")).revision == 1
        with KeyValue(url, namespace=namespace, replicas=1) as threads:
            assert threads.put("k", "2").revision == 2
        return
    url = request.getfixturevalue("redis_url")
    async with AsyncKeyValue(url, namespace=namespace, replicas=1, timeout="4s") as kv:
        with pytest.raises(NotReplicated, match="revision 1, but 0 of 1 replicas") as error:
            await kv.put("k", "1")
        assert error.value.revision == 1
        assert (await kv.get("k", read="primary")).value == "1"  # type: ignore[union-attr]


# What is on this machine's disk ------------------------------------------------------------


async def test_a_start_while_the_store_is_away(own_server: OwnServer, tmp_path: Path) -> None:
    server = own_server()
    cache = tmp_path / "state" / "kv.db"
    async with AsyncKeyValue(server.url, cache=cache) as kv:
        await kv.put("k", "1", who="ana")
        await kv.put("gone", "1")
        await kv.sync()
        await kv.delete("gone")
        await kv.put("short", "1", ttl="100ms")
        await kv.sync()
    server.kill()
    async with AsyncKeyValue(server.url, cache=cache, timeout="500ms") as kv:
        entry, status = await kv.get("k"), await kv.status()
        assert entry is not None
        assert (entry.value, entry.who, status.source) == ("1", "ana", "disk")
        assert (status.connected, entry.age > 0) == (False, True)
        assert await kv.get("gone") is None
        with pytest.raises(StoreUnavailable):
            await kv.put("k", "2")
    async with AsyncKeyValue(server.url, timeout="500ms") as kv:
        with pytest.raises(StoreUnavailable, match="nothing is known from before"):
            await kv.get("k")
        assert (await kv.status()).source == "nothing"


async def test_cold_values_are_on_disk(own_server: OwnServer, tmp_path: Path) -> None:
    server = own_server()
    async with AsyncKeyValue(server.url, cache=tmp_path / "kv.db", memory_bytes=10_000) as kv:
        await kv.get("nothing")
        for n in range(50):
            await kv.put(f"k/{n:02}", bytes([n]) * 1000 if n % 2 else f"{n} " * 100)
        await kv.sync()
        assert kv._mirror._hot_bytes <= 10_000
        for n in range(50):
            entry = await kv.get(f"k/{n:02}")
            assert entry is not None
            assert entry.value == (bytes([n]) * 1000 if n % 2 else f"{n} " * 100)
        assert len(await kv.list("k/")) == 50


async def test_two_processes_share_a_cache(own_server: OwnServer, tmp_path: Path) -> None:
    server = own_server()
    cache = tmp_path / "kv.db"
    one, two = (AsyncKeyValue(server.url, cache=cache) for _ in range(2))
    for n in range(10):
        for kv in (one, two):
            await kv.put(f"k/{n}", str(n))
            await kv.sync()
    await one.aclose()
    await two.aclose()
    server.kill()
    async with AsyncKeyValue(server.url, cache=cache, timeout="500ms") as kv:
        assert {e.key: e.value for e in await kv.list()} == {f"k/{n}": str(n) for n in range(10)}


# Strangers ---------------------------------------------------------------------------------


async def test_values_of_other_programs(own_server: OwnServer) -> None:
    server = own_server()
    client = raw(server)
    client.set("{penstock:kv}:data", "mine")
    async with AsyncKeyValue(server.url) as kv:
        with pytest.raises(ForeignValue):
            await kv.put("k", "1")
    client.delete("{penstock:kv}:data")
    client.hset("{penstock:kv}:data", "k", "not a record")
    async with AsyncKeyValue(server.url) as kv:
        with pytest.raises(StoreError):
            await kv.get("k", read="primary")
        await kv.put("other", "1")
        assert [entry.key for entry in await kv.list()] == ["other"]
    client.close()


async def test_passwords_are_not_shown(own_server: OwnServer) -> None:
    server = own_server("--requirepass", "hunter2hunter2")
    async with AsyncKeyValue(server.url.replace("hunter2hunter2", "wrongwrong")) as kv:
        with pytest.raises(StoreUnavailable) as error:
            await kv.put("k", "1")
        assert "wrongwrong" not in str(error.value) + repr(kv)
    async with AsyncKeyValue(server.url) as kv:
        await kv.put("k", "1")
        assert "hunter2" not in repr(kv)
