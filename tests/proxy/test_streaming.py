"""Bodies pass as they come, both ways, and whoever does not read holds up the other side."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from penstock.proxy.limits import ProxyLimits
from penstock.wires.http.limits import HttpLimits
from proxy.proxy_parts import Client, app_server, head_of, running, scripted

PIECE = b"x" * 65_536


async def test_the_first_piece_of_a_response_comes_before_the_last_is_sent() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async with app_server(app) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        seen = b""
        while b"first" not in seen:
            seen += await client.read()
        assert b"last" not in seen
        go_on.set()
        while not seen.endswith(b"0\r\n\r\n"):
            seen += await client.read()
        assert b"last" in seen


@pytest.mark.parametrize("framing", [b"Content-Length: 9", b"Transfer-Encoding: chunked"])
async def test_the_first_piece_of_a_request_comes_before_the_last_is_sent(framing: bytes) -> None:
    came: asyncio.Queue[bytes] = asyncio.Queue()
    chunked = b"chunked" in framing

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message.get("body"):
                came.put_nowait(message["body"])
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async with app_server(app) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n")
        await client.send(b"5\r\nfirst\r\n" if chunked else b"first")
        assert await asyncio.wait_for(came.get(), 60) == b"first"
        answer = await client.ask(b"4\r\nlast\r\n0\r\n\r\n" if chunked else b"last")
        assert await asyncio.wait_for(came.get(), 60) == b"last"
        assert answer.body == b"done"


async def test_both_ways_at_once() -> None:
    """The server answers each piece before the next is sent."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            message = await receive()
            body = message.get("body", b"").upper()
            more = bool(message.get("more_body"))
            await send({"type": "http.response.body", "body": body, "more_body": more})
            if not more:
                return

    async with app_server(app) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        seen = b""
        for word in (b"one", b"two", b"three"):
            await client.send(b"%x\r\n%b\r\n" % (len(word), word))
            while word.upper() not in seen:
                seen += await client.read()
        await client.send(b"0\r\n\r\n")
        while not seen.endswith(b"0\r\n\r\n"):
            seen += await client.read()
        assert (await client.get()).status == 200


async def test_a_client_that_does_not_read_holds_up_the_server() -> None:
    sent = 0
    cancelled = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        try:
            while True:
                writer.write(PIECE)
                await writer.drain()
                sent += len(PIECE)
        except ConnectionError:
            cancelled.set()

    async with scripted(serve) as port, running(port) as front:
        async with Client.to(front.port) as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await _until_still(lambda: sent)
            held = sent
            assert 0 < held < 50_000_000  # the buffers of three sockets
            await asyncio.sleep(0.1)
            assert sent == held
            for _ in range(200):
                await client.read(1 << 20)
            await _until_still(lambda: sent)
            assert sent > held
            client.writer.transport.abort()
        await asyncio.wait_for(cancelled.wait(), 60)


async def test_a_server_that_does_not_read_holds_up_the_client() -> None:
    release = asyncio.Event()
    got = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await head_of(reader)
        await release.wait()
        while got < 20_000_000:
            got += len(await reader.read(1 << 20))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n")
        given = 0

        async def feed() -> None:
            nonlocal given
            while given < 20_000_000:
                piece = PIECE[: 20_000_000 - given]
                await client.send(piece)
                given += len(piece)

        feeding = asyncio.create_task(feed())
        await _until_still(lambda: given)
        assert 0 < given < 20_000_000
        release.set()
        assert (await client.response()).body == b"ok"
        await feeding


async def _until_still(count: Any) -> None:
    before = -1
    while count() != before or count() == 0:
        before = count()
        await asyncio.sleep(0.15)


async def test_a_slow_reader_that_reads_is_not_cut_off_and_one_that_does_not_is() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(PIECE)
                await writer.drain()

    limits = ProxyLimits(client=HttpLimits(write_time=1))
    async with (
        scripted(serve) as port,
        running(port, limits=limits) as front,
        Client.to(front.port) as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(0.2)
            front.proxy.sweep()
            for _ in range(20):
                assert await client.read(1 << 20)
        assert front.proxy.cut_off == 0
        for _ in range(8):
            await asyncio.sleep(0.2)
            front.proxy.sweep()
        assert front.proxy.cut_off == 1
        assert not front.proxy.connections


async def test_a_client_that_stops_in_a_body_is_cut_off() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()

    limits = ProxyLimits(body_time=0.05)
    async with (
        scripted(serve) as port,
        running(port, limits=limits) as front,
        Client.to(front.port) as client,
    ):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        await asyncio.sleep(0.1)
        front.proxy.sweep()
        assert (await client.response()).status == 408
        await asyncio.wait_for(left.wait(), 60)


async def test_an_answer_before_the_body_is_whole_reaches_a_client_that_goes_on_sending() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(30):
            with contextlib.suppress(ConnectionError):
                await client.send(PIECE)
        answer = await client.response()
        assert (answer.status, answer.body) == (413, b"big")
        assert await client.ended()


async def test_a_refusal_is_not_lost_on_who_reads_only_when_all_is_sent() -> None:
    closed = {"unit": "hour", "requests_per_unit": 0}
    rules = {"domain": "web", "descriptors": [{"key": "path", "rate_limit": closed}]}
    loop = asyncio.get_running_loop()
    async with scripted(_silent) as port, running(port, rules) as front:
        with socket.create_connection(("127.0.0.1", front.port)) as sock:
            sock.setblocking(False)
            head = b"POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 90000000\r\n\r\n"
            await loop.sock_sendall(sock, head)
            for _ in range(5):  # it is not reset in the middle of its sentence
                await loop.sock_sendall(sock, PIECE)
                await asyncio.sleep(0.02)
            said = await asyncio.wait_for(loop.sock_recv(sock, 65_536), 60)
            assert said.startswith(b"HTTP/1.1 429 ")


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_a_client_that_leaves_takes_its_request_with_it() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        asked.set()
        await reader.read()
        left.set()

    async with scripted(serve) as port, running(port) as front:
        async with Client.to(front.port) as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.wait_for(asked.wait(), 60)
        await asyncio.wait_for(left.wait(), 60)
        assert not front.proxy.pool.connections


async def test_a_thousand_requests_at_once_are_read_a_few_at_a_time() -> None:
    go_on = asyncio.Event()
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
            await go_on.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n.")

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        many = [b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(600)]
        sending = asyncio.create_task(client.send(b"".join(many)))
        while not asked:
            await asyncio.sleep(0.01)
        (connection,) = front.proxy.connections
        assert 0 < len(connection.waiting) < 200
        go_on.set()
        seen = b""
        while seen.count(b"\r\n\r\n.") < 600:
            seen += await client.read()
        await sending
        assert asked == [b"/%d" % n for n in range(600)]


async def test_tiny_chunks_become_larger_ones() -> None:
    sizes: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        while size := int(await reader.readuntil(b"\r\n"), 16):
            sizes.append(size)
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"1\r\ny\r\n" * 2000 + b"0\r\n\r\n")
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = await client.ask(head + b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n")
        assert answer.body == b"y" * 2000
        assert sum(sizes) == 5000
        assert len(sizes) < 50
