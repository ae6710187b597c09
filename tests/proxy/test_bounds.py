"""What never ends, and what hardly moves: a client or a server that does it is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from penstock.proxy.limits import ProxyLimits
from penstock.wires.http.limits import HttpLimits
from proxy.proxy_parts import OPEN, Client, head_of, replying, running, scripted

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"

ENDLESS = {
    "a trailer": (CHUNKED + b"3\r\nabc\r\n0\r\nX: ", b"a" * 1000),
    "the name of a trailer": (CHUNKED + b"0\r\n", b"a" * 1000),
    "a trailer, byte by byte": (CHUNKED + b"0\r\nX: ", b"a"),
    "many trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * 10),
    "a trailer after an upgrade": (
        POST + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: ", b"a" * 1000,
    ),
    "a chunk extension": (CHUNKED + b"3;", b"a" * 1000),
    "chunk extensions": (CHUNKED, b"1;" + b"a" * 200 + b"\r\na\r\n"),
    "a header": (POST + b"A: b\r\nX: ", b"a" * 1000),
    "blank lines": (b"", b"\r\n" * 500),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_client_s_line_without_end_is_cut_off(name: str) -> None:
    start, more = ENDLESS[name]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(start)
        await asyncio.sleep(0.02)
        connection = next(iter(front.proxy.connections))
        sent = 0
        while not connection._reader.closed:
            assert sent < 200_000
            connection.data_received(more)  # as it would come, one by one
            sent += len(more)
            if sent % 10_000 < len(more):
                await asyncio.sleep(0)
        assert (await client.response()).status in (400, 431)
        assert await client.ended()
    assert not front.proxy.pool.connections


async def test_a_trailer_of_megabytes_does_not_hold_up_the_others() -> None:
    """It took seconds of the one core that serves everybody, and more with every byte."""
    async with (
        scripted(replying(OK)) as port,
        running(port, OPEN) as front,
        Client.to(front.port) as attacker,
        Client.to(front.port) as other,
    ):
        before = time.process_time()
        await attacker.send(CHUNKED + b"0\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(500):
                await attacker.send(b"a" * 65_536)
                await asyncio.sleep(0)
        assert (await other.get()).status == 200
        assert time.process_time() - before < 3.0  # 33 MB took 20 s


async def test_small_chunks_pass_and_trailers_do_not() -> None:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        got.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(OK)
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(CHUNKED)
        for _ in range(50):
            await client.send(b"1\r\na\r\n" * 1000)
        await client.send(b"2;name=value\r\nab\r\n" * 100 + b"0\r\nA: b\r\n\r\n")
        assert (await client.response()).status == 200
        assert got[0].count(b"a") >= 50_000


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nA: b\r\nX: ", b"a" * 1000),
        (b"HTTP/1.1 200 ", b"a" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: ", b"a" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;", b"a" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 100),
    ],
    ids=["a header", "a reason", "a trailer", "a chunk extension", "many trailers"],
)
async def test_a_server_s_line_without_end_is_cut_off(start: bytes, more: bytes) -> None:
    sent = 0
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await head_of(reader)
        writer.write(start)
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing() and sent < 30_000_000:
                writer.write(more)
                await writer.drain()
                sent += len(more)
        left.set()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.wait_for(left.wait(), 60)
        assert sent < 30_000_000
        with contextlib.suppress(ConnectionError):  # it was begun, and is not whole
            assert (await client.response()).status == 502
        assert front.proxy.pool.resting == 0


# How slowly ----------------------------------------------------------------------------------

LIMITS = ProxyLimits(body_time=30, client=HttpLimits(write_time=30, least_rate=240))
BODIES = {
    "a length": (POST + b"Content-Length: 1000000\r\n\r\n", b"a"),
    "chunks": (CHUNKED, b"1\r\na\r\n"),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(("rate", "lasts"), [(1, False), (100, False), (2000, True)])
async def test_a_body_that_drips_is_cut_off_and_so_is_its_link(
    name: str, rate: int, lasts: bool
) -> None:
    """One byte a second kept a connection and one of the server's for as long as it liked."""
    head, piece = BODIES[name]
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        left.set()

    async with (
        scripted(serve) as port,
        running(port, OPEN, LIMITS) as front,
        Client.to(front.port) as client,
    ):
        await client.send(head)
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(0.05)
        connection = next(iter(front.proxy.connections))
        for second in range(1, 200):
            if connection._reader.closed:
                break
            connection.data_received(piece * rate)
            await asyncio.sleep(0)
            connection.judge(start + second + 0.1)
        assert connection._reader.closed is not lasts
        assert front.proxy.cut_off == (0 if lasts else 1)
        if not lasts:
            assert 29 <= second <= 32
            assert (await client.response()).status == 408
            await asyncio.wait_for(left.wait(), 60)


@pytest.mark.parametrize(("rate", "lasts"), [(1, False), (100, False), (2000, True)])
async def test_a_client_that_reads_byte_by_byte_is_cut_off(rate: int, lasts: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()

    async with (
        scripted(serve) as port,
        running(port, OPEN, LIMITS) as front,
        Client.to(front.port) as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        while not (connection := next(iter(front.proxy.connections))).blocked:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        start = connection._reading_pace.pace.deadline - 30
        cut = None
        for second in range(1, 200):
            connection._reading_pace._left += rate  # so much more was there at the last look
            connection.judge(start + second + 0.1)
            if front.proxy.cut_off:
                cut = second
                break
        assert cut == (None if lasts else 30)


async def test_a_server_that_streams_slowly_is_not_cut_off() -> None:
    """Events come when there are any: what they are held to is the longest silence only."""
    limits = ProxyLimits(response_time=1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in range(12):
            writer.write(b":\n\n")
            await asyncio.sleep(0.1)

    async with (
        scripted(serve) as port,
        running(port, OPEN, limits) as front,
        Client.to(front.port) as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        asked = asyncio.create_task(client.response())
        while not asked.done():
            front.proxy.sweep()
            await asyncio.sleep(0.05)
        assert asked.result().body == b":\n\n" * 12
