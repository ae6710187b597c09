"""The servers and proxies that other tests stand on do what they say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stores.proxy import WRONG_SHAPES, Frames, Proxy, unreachable_port
from stores.redis_server import Server, wait_until

redis = pytest.importorskip("redis")
from redis.backoff import NoBackoff  # noqa: E402
from redis.cluster import RedisCluster  # noqa: E402
from redis.exceptions import AskError, MovedError  # noqa: E402
from redis.retry import Retry  # noqa: E402
from redis.sentinel import Sentinel  # noqa: E402

Start = Callable[..., Server]


def connect(url: str, **options: Any) -> Any:
    """A client that tries once and soon gives up."""
    settings = {"socket_timeout": 0.5, "retry": Retry(NoBackoff(), 0)} | options
    return redis.Redis.from_url(url, **settings)


def seconds_ahead(client: Any) -> float:
    seconds, micros = client.time()
    return float(seconds + micros / 1e6 - time.time())


# One server ------------------------------------------------------------------------


def test_a_server_is_killed_and_comes_back_empty_on_its_port(own_server: Start) -> None:
    server = own_server("--maxmemory", "3mb")
    with connect(server.url) as client:
        client.set("name", "value")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("name")
        port = server.port
        server.restart()
        assert server.port == port
        assert client.get("name") is None
        assert client.config_get("maxmemory") == {"maxmemory": str(3 * 1024 * 1024)}


def test_a_paused_server_does_not_answer_and_then_does(own_server: Start) -> None:
    server = own_server()
    with connect(server.url) as client:
        client.set("name", "value")
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.get("name")
        server.resume()
        assert client.get("name") == b"value"
    server.pause()
    server.stop()
    assert not os.path.exists(server.folder)


def test_a_server_with_a_password_and_a_unix_socket(own_server: Start) -> None:
    server = own_server("--requirepass", "secret")
    for url in (server.url, server.unix_url):
        with connect(url) as client:
            assert client.ping()
    with (
        connect(server.url.replace(":secret@", "")) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_a_server_on_a_chosen_port(own_server: Start) -> None:
    first = own_server()
    port = first.port
    first.kill()
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind(("127.0.0.1", port))  # it is kept for the next start
    first.stop()
    assert own_server(port=port).port == port


def test_processor_time_is_the_servers_own(own_server: Start) -> None:
    server = own_server()
    with connect(server.url, socket_timeout=60) as client:
        before, start = server.cpu_seconds(), time.monotonic()
        client.eval("for i = 1, 5e6 do local x = i * i end", 0)
        assert 0.005 < server.cpu_seconds() - before < time.monotonic() - start


def test_a_servers_clock_steps_back_and_forth(own_server: Start) -> None:
    server = own_server(own_clock=True)
    with connect(server.url) as client:
        assert abs(seconds_ahead(client)) < 1
        server.step_clock(-10)
        assert -11 < seconds_ahead(client) < -9
        assert client.eval("return redis.call('TIME')[1]", 0) < str(time.time() - 8).encode()
        client.set("name", "value", px=5000)
        server.step_clock(+30)
        assert 19 < seconds_ahead(client) < 21
        assert client.get("name") is None, "it has expired by that clock"
        server.restart()
        assert 19 < seconds_ahead(client) < 21


def test_nothing_outlives_a_test_run_that_is_killed(server_binary: str) -> None:
    script = (
        "import os, sys; from stores.redis_server import Server\n"
        "server = Server(sys.argv[1]); server.start(); server.pause()\n"
        "print(server.process.pid, server.folder, flush=True); os.kill(os.getpid(), 9)"
    )
    tests = str(Path(__file__).parent.parent)
    run = subprocess.run(
        [sys.executable, "-c", script, server_binary], capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": tests},
    )  # fmt: skip
    pid, folder = run.stdout.split()
    gone = [Path("/proc", pid), Path(folder), Path(folder).parent]
    wait_until(lambda: not any(path.exists() for path in gone), f"end of {gone}", 60)


def test_each_test_has_a_prefix_on_the_shared_server(redis_url: str, prefix: str) -> None:
    with connect(redis_url) as client:
        assert not list(client.scan_iter(f"{prefix}*"))
        client.set(f"{prefix}:name", "value", ex=60)


# The proxy -------------------------------------------------------------------------


@pytest.fixture
def client(proxied: Proxy) -> Iterator[Any]:
    with connect(proxied.url) as made:
        yield made


def test_frames_are_found_however_the_bytes_come() -> None:
    whole = [
        b"PING\r\n", b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n", b"$-1\r\n", b"*-1\r\n", b":12\r\n",
        b"%1\r\n+a\r\n*2\r\n:1\r\n_\r\n", b"|1\r\n+a\r\n:1\r\n+value\r\n", b">1\r\n+x\r\n",
        b"*0\r\n",
    ]  # fmt: skip
    for size in (1, 2, 3, 7, 1000):
        frames, stream = Frames(), b"".join(whole)
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [frame for piece in pieces for frame in frames.feed(piece)] == whole


def test_a_proxy_passes_counts_and_delays(proxied: Proxy, client: Any, prefix: str) -> None:
    client.set(prefix, "value")
    with client.pipeline(transaction=False) as pipe:
        assert pipe.get(prefix).get(prefix).execute() == [b"value"] * 2
    assert proxied.commands[-3:] == ["SET", "GET", "GET"]
    assert proxied.accepted == 1
    proxied.delay(0.05)
    start = time.monotonic()
    with client.pipeline(transaction=False) as pipe:
        for number in range(20):
            pipe.echo(str(number))
        assert pipe.execute() == [str(number).encode() for number in range(20)]
    # By the fixed delays alone, twenty of them one after the other would take two seconds.
    assert 0.1 <= time.monotonic() - start < 1.9, "all at once, not one after the other"


def test_a_black_hole_and_after(proxied: Proxy, client: Any, prefix: str) -> None:
    client.set(prefix, 1)
    proxied.drop()
    with pytest.raises(redis.TimeoutError):
        client.incr(prefix)
    with pytest.raises(redis.TimeoutError):
        client.incr(prefix)  # on a new connection, which is not refused
    proxied.lose_replies()
    with pytest.raises(redis.TimeoutError):
        client.incr(prefix)
    proxied.let_pass()
    assert client.get(prefix) == b"2", "one of the three got there"


def test_refused_and_cut_connections(proxied: Proxy, client: Any, prefix: str) -> None:
    client.set(prefix, "value")
    for fault in (proxied.refuse, proxied.cut):
        fault()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.get(prefix)
        proxied.let_pass()
        assert client.get(prefix) == b"value"


def test_half_of_an_answer(own_server: Start) -> None:
    with (
        Proxy(own_server().url) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as link,
    ):
        proxy.cut()
        link.sendall(b"ECHO 123456\r\n")
        assert link.recv(100) == b"$6\r\n12"
        assert link.recv(100) == b""


def test_canned_answers(proxied: Proxy, client: Any, prefix: str) -> None:
    proxied.reply(b"-LOADING Redis is loading the dataset in memory\r\n")
    with pytest.raises(redis.BusyLoadingError):
        client.get(prefix)
    proxied.reply(b":7\r\n", "GET")
    with client.pipeline(transaction=False) as pipe:
        pipe.set(prefix, 1).get(prefix).incr(prefix).get(prefix).get(prefix)
        assert pipe.execute() == [True, 7, 2, 7, 7], "in the order of the commands"
    proxied.rubbish()
    with pytest.raises(redis.InvalidResponse):
        client.get(prefix)
    for shape in WRONG_SHAPES:
        proxied.reply(shape)
        assert client.execute_command("GET", prefix) != b"2"
    proxied.let_pass()
    assert client.get(prefix) == b"2"


def test_tls(redis_url: str, certificate: tuple[Path, Path], prefix: str) -> None:
    with Proxy(redis_url, tls=certificate) as proxy:
        with connect(proxy.url, socket_timeout=60) as client:
            assert client.ping()
            proxy.cut()
            with pytest.raises(redis.ConnectionError):
                client.get(prefix)
        with (
            connect(proxy.url.partition("?")[0]) as distrustful,
            pytest.raises(redis.ConnectionError, match="certificate verify failed"),
        ):
            distrustful.ping()


def test_a_port_that_never_answers() -> None:
    with unreachable_port() as port:
        for _ in range(3):
            with socket.socket() as link:
                link.settimeout(0.05)
                with pytest.raises(TimeoutError):
                    link.connect(("127.0.0.1", port))


# Several servers -------------------------------------------------------------------


@pytest.fixture
def cluster_client(cluster: Any) -> Iterator[Any]:
    with RedisCluster.from_url(cluster.urls[0]) as made:
        yield made


def test_a_cluster_moves_slots_while_they_are_read(
    cluster: Any, cluster_client: Any, prefix: str
) -> None:
    names = [f"{{{prefix}}}:{number}" for number in range(25)]
    for name in names:
        cluster_client.set(name, name)
    slot = cluster_client.keyslot(names[0])
    source = cluster.master_of(names[0])
    target = cluster.master_of(0 if source is not cluster.master_of(0) else 16383)
    seen = []
    for step in cluster.migrate([slot], source, target):
        seen.append(step.what)
        assert [cluster_client.get(name) for name in names] == [name.encode() for name in names]
        if seen == ["importing", "migrating", "moved"]:
            with pytest.raises(AskError):
                [source("GET", name) for name in names]
    assert seen == ["importing", "migrating", "moved", "moved", "moved", "done"]
    cluster.wait_ok(complete=True)
    assert cluster.master_of(slot) is target
    with pytest.raises(MovedError):
        source("GET", names[0])


def test_a_cluster_fails_over_and_heals(cluster: Any, cluster_client: Any, prefix: str) -> None:
    master = cluster.master_of(prefix)
    master("SET", prefix, "value")
    assert master("WAIT", 1, 5000) == 1
    replica = cluster.replica_of(master)
    cluster.kill(master)
    heir, seconds = cluster.failed_over(master)
    print(f"cluster failover: {seconds:.2f} s")
    assert heir is replica
    assert heir.client.get(prefix) == "value"
    cluster.heal()
    assert cluster_client.get(prefix) == b"value"
    assert cluster.master_of(prefix) is heir
    assert cluster.replica_of(heir) is master


def test_sentinels_fail_over_and_heal(sentinels: Any, prefix: str) -> None:
    guide = Sentinel([("127.0.0.1", port) for port in sentinels.sentinel_ports])
    try:
        before = sentinels.master_port()
        with guide.master_for(sentinels.service) as client:
            client.set(prefix, "value")
            assert client.wait(1, 5000) == 1
            sentinels.kill_master()
            print(f"sentinel failover: {sentinels.wait_failover():.2f} s")
            assert sentinels.master_port() != before
            assert client.get(prefix) == b"value"
        sentinels.heal()
        assert sentinels.master_port() != before
    finally:
        for client in guide.sentinels:
            client.close()
