"""The HTTP wire, byte by byte, on real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import socket
import struct
from typing import Any

import pytest

from penstock.wires.http.messages import HttpRequest, as_text
from penstock.wires.http.routes import Routes
from wires.http.http_parts import POST, SMALL, Sink, get, serving


async def test_requests_and_answers() -> None:
    async with serving() as (server, _, connect):
        client = await connect()
        client.send(get("/a?b=c", "A: 1", "a: 2"))
        status, headers, body = await client.answer()
        assert (status, body, headers["x-a"]) == (200, b'["GET","/a","b=c",0]', "1, 2")
        assert "date" in headers
        client.send(POST + b"Content-Length: 3\r\n\r\nabc")
        assert (await client.answer())[2] == b'["POST","/","",3]'
        chunks = b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
        client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        assert (await client.answer())[2] == b'["POST","/","",5]'
        client.send(b"HEAD /h HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.answer(head=True))[1]["content-length"] == "18"
        client.send(POST + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"x")
        assert (await client.answer())[2] == b'["POST","/","",1]'
        assert server.requests == 5


class _Transport(asyncio.Transport):
    """What a connection sees of its transport, with or without TLS."""

    def __init__(self, tls: bool) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sslcontext": object() if tls else None})

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("tls", [False, True])
async def test_a_half_closed_connection_is_answered_unless_it_is_tls(tls: bool) -> None:
    """asyncio cannot keep one open over TLS, and logs a warning if that is asked for."""
    async with serving() as (server, handler, _):
        connection = server.factory()
        connection.connection_made(_Transport(tls))
        connection.data_received(get("/slow"))
        assert handler.seen == ["/slow"]
        await asyncio.sleep(0)  # the handler waits now
        assert connection.eof_received() is not tls
        handler.gate.set()
        await asyncio.sleep(0)
        connection.connection_lost(None)


async def test_byte_by_byte_and_all_at_once() -> None:
    async with serving() as (_, _, connect):
        client = await connect()
        for byte in get("/slowly"[:3], "A: b"):
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer())[0] == 200
        client.send(b"".join(get(f"/{n}") for n in range(20)))
        found = [(await client.answer())[2] for _ in range(20)]
        assert found == [f'["GET","/{n}","",0]'.encode() for n in range(20)]


async def test_answers_keep_their_order_and_reading_stops_while_one_is_late() -> None:
    async with serving() as (server, handler, connect):
        client = await connect()
        client.send(get("/slow") + b"".join(get(f"/{n}") for n in range(3)))
        client.send(b"".join(get(f"/more/{n}") for n in range(20_000)))
        await asyncio.sleep(0.1)
        assert handler.seen == ["/slow"]
        assert server.requests < 15_000, "it read on"
        handler.gate.set()
        bodies = [(await client.answer())[2] for _ in range(20_004)]
        assert bodies[:2] == [b"/slow", b'["GET","/0","",0]']
        assert bodies[-1] == b'["GET","/more/19999","",0]'


async def test_a_header_without_end_is_not_kept() -> None:
    async with serving() as (_, _, connect):
        client = await connect()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
        await asyncio.sleep(0.01)
        client.send(b"b" * 1000)
        assert (await client.answer())[0] == 431
        assert await client.closed()


async def test_a_wish_to_upgrade_is_not_followed() -> None:
    async with serving() as (_, _, connect):
        client = await connect()
        wish = get("/a", "Connection: Upgrade", "Upgrade: websocket")
        client.send(wish + get("/b") + wish)
        paths = [(await client.answer())[2][:9] for _ in range(3)]
        assert paths == [b'["GET","/', b'["GET","/', b'["GET","/']


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"rubbish\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        (
            POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /" + b"a" * 200 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 500 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 20 + b"\r\n", 431),
        (POST + b"Content-Length: 2000\r\n\r\n" + b"a" * 2000, 413),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"a" * 2000,
            413,
        ),
    ],
)
async def test_what_is_refused_is_told_why_and_closed(sent: bytes, status: int) -> None:
    async with serving() as (_, _, connect):
        client = await connect()
        client.send(sent)
        found, headers, body = await client.answer()
        assert found == status
        assert headers["connection"] == "close"
        assert body.startswith(b'{"error":')
        assert await client.closed()
        other = await connect()
        other.send(get())
        assert (await other.answer())[0] == 200


async def test_what_came_before_a_bad_request_is_answered_first() -> None:
    async with serving() as (_, handler, connect):
        client = await connect()
        client.send(get("/slow") + POST + b"Content-Length: 2000\r\n\r\n" + b"a" * 2000)
        await asyncio.sleep(0.02)
        handler.gate.set()
        assert (await client.answer())[2] == b"/slow"
        assert (await client.answer())[0] == 413
        assert await client.closed()


async def test_who_wants_to_close_is_closed() -> None:
    async with serving() as (_, handler, connect):
        for sent in (get("/", "Connection: close"), get("/", version="1.0")):
            client = await connect()
            client.send(sent)
            assert (await client.answer())[1]["connection"] == "close"
            assert await client.closed()
        client = await connect()
        client.send(get("/", "Connection: keep-alive", version="1.0"))
        assert (await client.answer())[1]["connection"] == "keep-alive"
        client = await connect()
        client.send(get("/slow"))
        client.writer.write_eof()
        await asyncio.sleep(0.02)
        handler.gate.set()
        assert (await client.answer())[2] == b"/slow"
        assert await client.closed()


async def test_a_handler_that_fails_is_a_500_and_the_connection_lives(caplog: Any) -> None:
    async with serving() as (_, _, connect):
        client = await connect()
        for path in ("/boom", "/boom-later"):
            client.send(get(path))
            assert (await client.answer())[0] == 500
        client.send(get())
        assert (await client.answer())[0] == 200
    assert "as asked" in caplog.text


async def test_who_leaves_cancels_what_was_under_way() -> None:
    async with serving() as (server, handler, connect):
        client = await connect()
        client.send(get("/slow"))
        await asyncio.sleep(0.02)
        raw = client.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()  # with a reset: else it may only have said its last word
        async with asyncio.timeout(60):
            while not handler.cancelled:
                await asyncio.sleep(0.01)
        assert handler.cancelled == 1
        assert not server.connections


async def test_the_slow_are_cut_off() -> None:
    hurried = dataclasses.replace(SMALL, request_time=1.0, idle_time=1.0, write_time=1.0)
    async with serving(hurried) as (server, handler, connect):
        silent, half, body, unread, late = [await connect() for _ in range(5)]
        half.send(b"GET / HT")
        body.send(POST + b"Content-Length: 10\r\n\r\nabc")
        unread.send(get("/big"))
        late.send(get("/slow"))
        assert await silent.closed()
        for client in (half, body):
            assert (await client.answer())[0] == 408
            assert await client.closed()
        async with asyncio.timeout(60):
            while len(server.connections) > 1:
                await asyncio.sleep(0.01)
        assert len(server.connections) == 1, "only who waits for us is left"
        assert server.cut_off == 4
        handler.gate.set()
        assert (await late.answer())[2] == b"/slow"


async def test_too_many_connections_are_turned_away() -> None:
    async with serving() as (server, _, connect):
        clients = [await connect() for _ in range(60)]
        async with asyncio.timeout(60):
            while len(server.connections) + server.turned_away < 60:
                await asyncio.sleep(0.01)
        assert len(server.connections) == 50
        assert server.turned_away == 10
        clients[0].send(get())
        assert (await clients[0].answer())[0] == 200


async def test_draining_answers_what_is_open_and_takes_no_more() -> None:
    async with serving() as (server, handler, connect):
        idle, busy = await connect(), await connect()
        busy.send(get("/slow"))
        await asyncio.sleep(0.02)
        drained = asyncio.create_task(server.drain(60.0))
        assert await idle.closed()
        handler.gate.set()
        _, headers, body = await busy.answer()
        assert (headers["connection"], body) == ("close", b"/slow")
        await drained
        assert not server.connections


async def test_mutated_requests_never_break_it() -> None:
    """A few thousand; the long form is ``tests/running/abuse.py --mutations``."""
    seeds = [
        get("/a?b=c", "A: b"),
        POST + b"Content-Length: 3\r\n\r\nabc",
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ]
    chance = random.Random(7)
    async with serving() as (server, _, connect):
        for _ in range(1500):
            data = bytearray(chance.choice(seeds) * chance.randint(1, 3))
            for _ in range(chance.randint(1, 8)):
                at = chance.randrange(len(data))
                data[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
            protocol = server.factory()
            protocol.connection_made(Sink())
            protocol.data_received(bytes(data))
            protocol.connection_lost(None)
        client = await connect()
        client.send(get())
        assert (await client.answer())[0] == 200


async def test_routes() -> None:
    routes = Routes({"/a": {"GET": lambda r: as_text("a")}, "/b": {"*": lambda r: as_text("b")}})

    def ask(method: str, path: str) -> Any:
        request = HttpRequest(None)
        request.method, request.path = method, path
        return routes(request)

    assert ask("GET", "/a").body == ask("HEAD", "/a").body == b"a"
    assert ask("PUT", "/b").status == 200
    assert ask("POST", "/a").status == 405
    assert ask("POST", "/a").headers == [("Allow", "GET, HEAD")]
    assert ask("GET", "/c").status == 404
