"""Real sockets: both event loops, many connections, peers that do not read, goodbyes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import shutil
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from penstock.testing import FakeClock
from penstock.wires.grpc import h2
from penstock.wires.grpc.h2.limits import Limits
from wires.grpc.frames import (
    DATA,
    GOAWAY,
    HELLO,
    NO_ERROR,
    PREFACE,
    RST_STREAM,
    frame,
    message,
    request,
    settings,
)
from wires.grpc.fuzz import rss, run
from wires.grpc.kit import LARGE, NOW, WAIT, Echo, needs_h2, window
from wires.grpc.serving import Peer, serve

pytestmark = [needs_h2, pytest.mark.realtime]
CONNECTIONS = int(os.environ.get("PENSTOCK_CONNECTIONS", "2000"))


def on_asyncio(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def on_uvloop(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        main.close()
        pytest.skip("uvloop is not installed")
    uvloop.run(main)


@pytest.fixture(params=[on_asyncio, on_uvloop])
def loop_of(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    found: Callable[[Coroutine[Any, Any, None]], None] = request.param
    return found


def held() -> int:
    """MB that are in use: without what the C library keeps for the next time."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return rss()


Loop = Callable[[Coroutine[Any, Any, None]], None]


async def ask(peer: Peer, stream: int, data: bytes = b"hello") -> None:
    await peer.say(request(NOW, data, stream))
    assert (await peer.hear(DATA)).payload == message(data)


def test_requests_and_a_quiet_goodbye(loop_of: Loop) -> None:
    async def main() -> None:
        async with serve("h2") as served:
            peer = await Peer.to(served.port)
            for stream in range(1, 21, 2):
                await ask(peer, stream)
            drained = asyncio.create_task(served.server.drain(5))
            notice = await peer.hear(GOAWAY)
            assert (notice.code, notice.last_stream) == (NO_ERROR, 2**31 - 1)
            await ask(peer, 21)  # it had not heard yet
            last = await peer.hear(GOAWAY)
            assert (last.code, last.last_stream) == (NO_ERROR, 21)
            assert await peer.rest() == b""
            await peer.close()
            assert await drained is True
            with contextlib.suppress(ConnectionError):  # nobody new is let in
                late = await Peer.to(served.port)
                assert await late.rest() == b""
                await late.close()
            assert served.server.counts()["messages"] == 11

    loop_of(main())


def test_http_1_and_garbage(loop_of: Loop) -> None:
    async def main() -> None:
        async with serve("h2") as served:
            for data, start in [
                (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400 "),
                (b"\x16\x03\x01" + os.urandom(50), b"\0\0"),
                (os.urandom(10_000), b"\0\0"),
            ]:
                peer = await Peer.to(served.port, data)
                assert (await peer.rest()).startswith(start)
                await peer.close()
            peer = await Peer.to(served.port)
            await ask(peer, 1)
            await peer.close()

    loop_of(main())


def test_a_unix_socket(loop_of: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        from penstock.wires.grpc.h2.server import H2Server

        server = H2Server(Echo().methods)
        path = str(tmp_path / "grpc.sock")
        listener = await asyncio.get_running_loop().create_unix_server(server.factory, path)
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            assert await channel.unary_unary(NOW)(b"x") == b"x"
        listener.close()
        await server.drain(1)

    loop_of(main())


def test_a_peer_that_does_not_read(loop_of: Loop) -> None:
    """It asks for 200 MB and takes nothing: we keep little, then cut it off; others go on."""

    async def main() -> None:
        clock = FakeClock()
        from penstock.wires.grpc.h2.server import H2Server

        server = H2Server(Echo().methods, Limits(held_bytes=4_000_000), clock=clock)
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(server.factory, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, ("127.0.0.1", port))
        await loop.sock_sendall(deaf, HELLO + settings(window=2**31 - 1) + window(0, 2**30))
        other = await Peer.to(port)
        before = rss()
        stream = 1
        with contextlib.suppress(TimeoutError):
            for _ in range(200):
                async with asyncio.timeout(0.2):
                    await loop.sock_sendall(deaf, request(LARGE, b"1000000", stream))
                stream += 2
        await ask(other, 1)
        [slow] = [protocol for protocol in server._protocols if protocol._full_since]
        assert slow._session is not None
        assert slow._session.backlog < 4_100_000
        assert rss() - before < 60
        assert server.connections == 2
        clock.advance(31)
        for protocol in list(server._protocols):
            protocol.look()
        async with asyncio.timeout(60):
            while server.connections > 1:
                await asyncio.sleep(0.01)
        await ask(other, 3)
        deaf.close()
        await other.close()
        listener.close()
        await server.drain(1)

    loop_of(main())


def test_many_connections(loop_of: Loop) -> None:
    """All are open at a time, a third silent, a third halfway through; memory comes back."""
    need = 2 * CONNECTIONS + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < need:
        pytest.skip(f"needs {need} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, need), hard))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serve("h2") as served:
            good = await Peer.to(served.port)
            sizes, stream = [], 1
            for _ in range(3):
                crowd = []
                for number in range(CONNECTIONS):
                    one = socket.socket()
                    one.setblocking(False)
                    await loop.sock_connect(one, ("127.0.0.1", served.port))
                    crowd.append(one)
                    data = [b"", PREFACE[:9], HELLO + request(NOW, b"x")[:-3]][number % 3]
                    await loop.sock_sendall(one, data)
                    if number % 200 == 0:
                        start = time.process_time()
                        async with asyncio.timeout(60):
                            await ask(good, stream)
                        stream += 2
                        assert time.process_time() - start < 2
                async with asyncio.timeout(60):
                    while served.server.connections < CONNECTIONS + 1:
                        await asyncio.sleep(0.01)
                for one in crowd:
                    one.close()
                async with asyncio.timeout(60):
                    while served.server.connections > 1:
                        await asyncio.sleep(0.01)
                await ask(good, stream)
                stream += 2
                del crowd, one
                sizes.append(held())
            assert sizes[2] - sizes[0] < 5 + CONNECTIONS // 1000, sizes
            assert served.server.open_streams == 0
            await good.close()

    try:
        loop_of(main())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_rapid_reset_hurts_only_who_does_it(loop_of: Loop) -> None:
    async def main() -> None:
        async with serve("h2", clock=FakeClock()) as served:  # no more are allowed with time
            good = await Peer.to(served.port)
            bad = await Peer.to(served.port)
            goodbyes = 0
            for round_ in range(20):
                attack = b"".join(
                    request(WAIT, b"", stream) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
                    for stream in range(1 + round_ * 400, 401 + round_ * 400, 2)
                )
                try:
                    await bad.say(attack)
                except ConnectionError:
                    break
                await ask(good, 1 + 2 * round_)
            with contextlib.suppress(ConnectionError, EOFError):
                assert (await bad.hear(GOAWAY)).code == 11
                goodbyes += 1
            counts = served.server.counts()
            assert counts["floods"] == 1
            assert counts["resets"] <= Limits().resets_burst + 1
            assert served.echo.notes == []  # no work was done for what was taken back at once
            await good.close()
            await bad.close()

    loop_of(main())


def test_a_few_thousand_broken_requests(loop_of: Loop) -> None:
    async def main() -> None:
        assert await run(3000, time.monotonic() + 60) == 3000

    loop_of(main())


async def test_h2load_gets_all_its_answers(tmp_path: Path) -> None:
    program = shutil.which("h2load")
    if program is None:
        pytest.skip("h2load is not installed (Debian: nghttp2-client)")
    body = tmp_path / "body"
    body.write_bytes(message(b"hello"))
    async with serve("h2") as served:
        process = await asyncio.create_subprocess_exec(
            program, "-n", "20000", "-c", "4", "-m", "100", "-d", str(body),
            "-H", "content-type: application/grpc", f"http://127.0.0.1:{served.port}{NOW}",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert b"20000 succeeded, 0 failed, 0 errored" in out
        assert served.server.counts()["messages"] == 20_000


async def test_a_session_outlives_its_wire_and_its_end() -> None:
    """Names of things that are gone may still be held: nothing happens."""
    from penstock.wires.grpc.h2._nghttp2 import Session, Wire

    class Calls:
        def begin(self, *args: object) -> None: ...
        def gone(self, stream: int) -> None: ...
        def room(self, stream: int) -> None: ...

    wire = Wire(Echo().methods, Limits())
    session = Session(wire, Calls())
    del wire
    session.feed(HELLO + request(NOW, b"x"), 1)
    assert message(b"x") in session.pending()
    assert not session.done
    for _ in range(2):
        session.close()
        session.feed(request(NOW, b"x", 3), 2)
        session.answer(1, b"")
        session.answer(1, None)
        session.end(1, 3, "x")
        session.sweep(10**18)
        session.ping()
        session.warn()
        session.leave()
        assert session.send(1, b"") is False
        assert session.pending() == b""
        assert session.tend() is False
        assert session.done
        assert session.open == session.backlog == 0


def test_available_says_so() -> None:
    assert h2.available()
