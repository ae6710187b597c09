"""Any sequence of writes and faults: a watch never misses the last state of a key.

Faults are real: servers that are killed, stopped, emptied, or that lose connections and
subscriptions, with a log that keeps three writes only. What was acknowledged since the store last
lost its data is what every reader has in the end.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("redis")

import redis

from kv.conftest import cluster_url
from kv.shells import Replica, until
from penstock import StoreUnavailable
from penstock.kv import AsyncKeyValue, KeyValue
from penstock.kv.redis import RedisBackend
from stores.redis_server import Server

KEPT = 3  # writes in the log
PATIENCE = 60.0
KEYS = ("a", "b", "b/1")
WRITES = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("delete"), st.sampled_from(KEYS)),
    st.tuples(st.just("many"), st.sampled_from(KEYS)),  # more than the log keeps
)


def steps(*faults: str) -> st.SearchStrategy[list[tuple[str, str]]]:
    fault = st.tuples(st.sampled_from(faults), st.just(""))
    return st.lists(st.one_of(WRITES, WRITES, fault), min_size=3, max_size=10)


class Faults:
    """How to harm the servers of a store."""

    def __init__(self, ports: Callable[[], list[int]], server: Server | None = None) -> None:
        self._ports = ports
        self._server = server

    def all(self, *words: str) -> None:
        for port in self._ports():
            with redis.Redis(port=port) as client:
                client.execute_command(*words)

    def make(self, fault: str) -> None:
        if fault == "cut":
            self.all("CLIENT", "KILL", "TYPE", "normal")
        elif fault == "deaf":
            self.all("CLIENT", "KILL", "TYPE", "pubsub")
        elif fault == "lose":
            self.all("FLUSHALL")
        elif fault == "kill":
            assert self._server is not None
            self._server.kill()
            self._server.restart()
        elif fault == "stop":
            assert self._server is not None
            self._server.pause()

    def end(self, fault: str) -> None:
        if fault == "stop" and self._server is not None:
            self._server.resume()


async def play(url: str, namespace: str, faults: Faults, sequence: list[tuple[str, str]]) -> None:
    """Readers from the beginning, and from the middle. All see the model in the end."""

    def opened() -> AsyncKeyValue:
        backend = RedisBackend(url, namespace=namespace, most_writes=KEPT, timeout=0.5)
        backends.append(backend)
        return AsyncKeyValue(backend)

    backends: list[RedisBackend] = []
    faults.all("FLUSHALL")
    kv, stores = opened(), [opened()]
    readers = [Replica(stores[0].watch(""))]
    model: dict[str, str] = {}
    try:
        for number, (step, key) in enumerate(sequence):
            if step == "put":
                await until_it_works(lambda k=key, n=number: kv.put(k, str(n)))  # type: ignore[misc]
                model[key] = str(number)
            elif step == "many":
                for each in range(2 * KEPT):
                    value = f"{number}.{each}"
                    await until_it_works(lambda k=key, v=value: kv.put(k, v))  # type: ignore[misc]
                model[key] = value
            elif step == "delete":
                await until_it_works(lambda k=key: kv.delete(k))  # type: ignore[misc]
                model.pop(key, None)
            else:
                await asyncio.to_thread(faults.make, step)
                if step == "lose":
                    model.clear()
                if step == "stop":
                    await asyncio.sleep(0.6)  # longer than anybody waits for an answer
                    await asyncio.to_thread(faults.end, step)
            if number == len(sequence) // 2:
                stores.append(opened())
                readers.append(Replica(stores[-1].watch("")))
        for reader in readers:
            await reader.until(model, PATIENCE)
    finally:
        for reader in readers:
            await reader.close()
        for each in (kv, *stores):
            await each.aclose()
        for backend in backends:
            await backend.aclose()


async def until_it_works(write: Callable[[], Any]) -> None:
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            await write()
            return
        except StoreUnavailable:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.02)


_SERVERS: dict[str, Server] = {}
CALM = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.timeout(600)
@CALM
@given(sequence=steps("cut", "deaf", "lose", "kill", "stop"))
def test_one_server(own_server: Any, prefix: str, sequence: list[tuple[str, str]]) -> None:
    if prefix not in _SERVERS:  # the same for all examples
        _SERVERS[prefix] = own_server("--appendonly", "yes", "--appendfsync", "always")
    server = _SERVERS[prefix]
    faults = Faults(lambda: [server.port], server)
    asyncio.run(play(server.url, prefix[-40:], faults, sequence))


@pytest.mark.timeout(600)
@CALM
@given(sequence=steps("cut", "deaf", "lose"))
def test_a_cluster(cluster: Any, prefix: str, sequence: list[tuple[str, str]]) -> None:
    masters = [node.port for node in cluster.nodes if node("ROLE")[0] == "master"]
    assert len(masters) == 3
    faults = Faults(lambda: masters)
    asyncio.run(play(cluster_url(cluster), prefix[-40:], faults, sequence))


@pytest.mark.timeout(300)
async def test_a_failover_by_sentinels(sentinels: Any, prefix: str) -> None:
    places = ",".join(f"127.0.0.1:{port}" for port in sentinels.sentinel_ports)
    url = f"redis+sentinel://{places}/{sentinels.service}/0"
    options = {"namespace": prefix[-60:], "timeout": "1s"}
    async with AsyncKeyValue(url, **options) as kv, AsyncKeyValue(url, **options) as other:
        replica = Replica(other.watch(""))
        await kv.put("k", "before")
        await kv.put("stays", "1")
        await replica.until({"k": "before", "stays": "1"}, PATIENCE)
        try:
            await asyncio.to_thread(sentinels.kill_master)
            await asyncio.to_thread(sentinels.wait_failover)
            await until_it_works(lambda: kv.put("k", "after"))
            await replica.until({"k": "after", "stays": "1"}, PATIENCE)
        finally:
            await replica.close()
            await asyncio.to_thread(sentinels.heal)


WATCHER = """
import sys
from penstock.kv import KeyValue
with KeyValue(sys.argv[1]) as kv:
    for change in kv.watch(""):
        print(change.key, change.entry and change.entry.value, flush=True)
"""


def read(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        lines.append(line)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["file", "valkey"])
async def test_a_watcher_that_was_stopped_gets_the_last_state(
    kind: str, own_server: Any, tmp_path: Any
) -> None:
    """SIGSTOP of the reader: it misses messages, and more writes than a reader is told singly."""
    where = f"file:{tmp_path / 'kv.db'}" if kind == "file" else own_server().url
    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCHER, where], stdout=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    assert watcher.stdout is not None
    reading = asyncio.create_task(asyncio.to_thread(read, watcher.stdout, lines))
    try:
        with KeyValue(where) as kv:
            for _ in range(2):
                kv.put("k", "first")
                await asyncio.sleep(0.05)
                watcher.send_signal(signal.SIGSTOP)
                for n in range(500):
                    kv.put("k", str(n))
                kv.put("gone", "1")
                kv.delete("gone")
                kv.put("k", "last")
                watcher.send_signal(signal.SIGCONT)
            kv.put("end", "now")
        await until(lambda: "end now\n" in lines, lambda: lines[-5:], PATIENCE)
    finally:
        watcher.kill()
        watcher.wait()
        await reading
        watcher.stdout.close()
    told = dict(line.split() for line in lines)
    assert told["k"] == "last"
    assert told["end"] == "now"
    assert told.get("gone", "None") == "None"
