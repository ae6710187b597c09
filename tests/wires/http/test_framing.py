"""Where a request ends and whom it is for: nothing is read twice, nothing goes on for ever."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import Any

import pytest

from penstock.integrations.deciding.identity import Trust
from penstock.service.health import Health
from penstock.service.service import Service
from penstock.wires.http.api import http_api
from penstock.wires.http.limits import HttpLimits
from penstock.wires.http.messages import HttpResponse
from penstock.wires.http.protocol import HttpServer
from service.service_kit import USER, gate_of
from wires.http.http_parts import POST, Sink, get, serving

CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
NEXT = get("/next")


class Counting(Sink):
    """Notes what is said, and whether the connection is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.said += data

    def close(self) -> None:
        self.closed = True


# Lines that do not end -----------------------------------------------------------------------

ENDLESS = {
    "a trailer": (CHUNKED + b"3\r\nabc\r\n0\r\nX: ", b"a"),
    "the name of a trailer": (CHUNKED + b"0\r\n", b"a"),
    "many trailers": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "a chunk extension": (CHUNKED + b"3;", b"a"),
    "the value of a chunk extension": (CHUNKED + b'3;a="', b"a"),
    "chunk extensions": (CHUNKED, b"1;" + b"a" * 200 + b"\r\na\r\n"),
    "a header": (b"POST / HTTP/1.1\r\nHost: x\r\nA: b\r\nX: ", b"a"),
    "the name of a header": (POST, b"a"),
    "many headers": (POST, b"a: b\r\n"),
    "a path": (b"GET /", b"a"),
    "a query": (b"GET /?", b"a"),
    "a method": (b"", b"A"),
    "blank lines": (b"", b"\r\n"),
    "blank lines after a request": (get(), b"\r\n"),
}


@pytest.mark.parametrize("size", [1, 1000, 65_536])
@pytest.mark.parametrize("name", ENDLESS)
async def test_what_never_ends_is_cut_off(name: str, size: int) -> None:
    start, more = ENDLESS[name]
    server = HttpServer(lambda request: HttpResponse(), HttpLimits(body=10_000_000))
    protocol, transport = server.factory(), Counting()
    protocol.connection_made(transport)
    protocol.data_received(start)
    piece = more * max(1, size // len(more))
    sent = 0
    while not transport.closed:
        assert sent < 500_000
        protocol.data_received(piece)
        sent += len(piece)
    assert transport.said.split(b"\r\n")[-1].startswith(b'{"error":')
    assert b"connection: close" in transport.said
    protocol.connection_lost(None)


async def test_small_chunks_and_their_extensions_are_no_attack() -> None:
    """Five bytes beside each byte of a body are what small chunks are made of."""
    async with serving(HttpLimits()) as (_, _, connect):
        client = await connect()
        client.send(CHUNKED)
        for _ in range(50):
            client.send(b"1\r\na\r\n" * 1000)
            await asyncio.sleep(0)
        client.send(b"2;name=value\r\nab\r\n" * 100 + b"0\r\nA: b\r\n\r\n")
        assert (await client.answer())[2] == b'["POST","/","",50200]'


async def test_trailers_are_not_headers() -> None:
    """Neither do they count against the body, nor do they say who is asking."""
    async with serving(HttpLimits()) as (_, _, connect):
        client = await connect()
        body = b"9c40\r\n" + b"x" * 40_000 + b"\r\n0\r\n"
        client.send(CHUNKED + body + b"A: forged\r\nHost: b\r\nExpect: x\r\n\r\n" + NEXT)
        status, headers, said = await client.answer()
        assert (status, said, headers["x-a"]) == (200, b'["POST","/","",40000]', "-")
        assert (await client.answer())[2] == b'["GET","/next","",0]'


# Other protocols -----------------------------------------------------------------------------

SMUGGLED = get("/smuggled")
UPGRADES = {
    "a body of a known length": (b"Content-Length: %d\r\n\r\n" % len(SMUGGLED), SMUGGLED),
    "a body in chunks": (
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"%x\r\n%b\r\n0\r\nA: b\r\n\r\n" % (len(SMUGGLED), SMUGGLED),
    ),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("wish", [UPGRADE, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize("name", UPGRADES)
async def test_the_body_of_a_request_that_would_upgrade_is_its_body(
    name: str, wish: bytes, size: int
) -> None:
    framing, body = UPGRADES[name]
    limits = HttpLimits(url=100, headers=400, header_count=8, body=1000)
    async with serving(limits) as (server, handler, connect):
        client = await connect()
        data = (POST + wish + framing + body) * 2 + NEXT + get("/end", "Connection: close")
        for at in range(0, len(data), size):
            client.send(data[at : at + size])
            await asyncio.sleep(0)
        said = b'["POST","/","",%d]' % len(SMUGGLED)
        assert [(await client.answer())[2] for _ in range(2)] == [said, said]
        assert (await client.answer())[2] == b'["GET","/next","",0]'
        assert (await client.answer())[0] == 200
        assert await client.closed()
        assert handler.seen == ["/", "/", "/next", "/end"]
        assert server.requests == 4


async def test_a_body_that_comes_with_an_upgrade_is_bounded_too() -> None:
    async with serving() as (_, _, connect):
        for framing in (
            b"Content-Length: 2000\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n",
        ):
            client = await connect()
            client.send(POST + UPGRADE + framing + b"a" * 2000)
            assert (await client.answer())[0] == 413
            assert await client.closed()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n", 405),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 400),
    ],
)
async def test_what_comes_behind_another_protocol_is_not_a_request(
    sent: bytes, status: int
) -> None:
    async with serving() as (_, handler, connect):
        client = await connect()
        client.send(sent + SMUGGLED)
        found, headers, _ = await client.answer()
        assert (found, headers["connection"]) == (status, "close")
        assert await client.closed()
        assert handler.seen == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_curl_that_asks_for_h2c_is_answered() -> None:
    """It sends the upgrade by itself, with the body of the request; as Java's HttpClient does."""
    server = HttpServer(http_api(Service(gate_of(USER)), Health(()), Trust(())))
    listener = await asyncio.get_running_loop().create_server(server.factory, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    body = json.dumps({"domain": "api", "descriptors": [{"user": "42"}]})
    command = ["curl", "-sS", "--http2", "-d", body, f"http://127.0.0.1:{port}/v1/check"]
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=120, check=False
        )
        assert json.loads(done.stdout)["allowed"] is True, done
        assert server.requests == 1
    finally:
        listener.close()
        await server.drain(1.0)


# Expect --------------------------------------------------------------------------------------


async def test_a_client_is_told_to_go_on_when_what_came_before_is_answered() -> None:
    async with serving() as (_, handler, connect):
        client = await connect()
        client.send(get("/slow") + POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        await asyncio.sleep(0.05)
        handler.gate.set()
        assert (await client.answer())[2] == b"/slow"
        assert (await client.answer())[0] == 100
        client.send(b"abc")
        assert (await client.answer())[2] == b'["POST","/","",3]'


@pytest.mark.parametrize(
    ("fields", "statuses"),
    [
        (b"Expect: 100-Continue\r\nContent-Length: 1\r\n\r\na", [100, 200]),
        (b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", [200]),
        (b"Expect: 100-continue\r\n\r\n", [200]),
        (b"Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n", [413]),
        (b"Expect: miracles\r\nContent-Length: 1\r\n\r\na", [417]),
    ],
)
async def test_what_can_be_expected(fields: bytes, statuses: list[int]) -> None:
    async with serving() as (_, _, connect):
        client = await connect()
        client.send(POST + fields)
        assert [(await client.answer())[0] for _ in statuses] == statuses


# Host ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHOST: b\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        *[
            (b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", 400)
            for host in (b"a b", b"a, b", b"u@a", b"a/b", b"a?b", b"a:b", b"[::1", b"\xc3\xa4")
        ],
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        *[
            (b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", 200)
            for host in (b"a", b"", b"a:80", b"a:", b"[::1]:80", b"[fe80::1%25eth0]", b"a_b.c-d.")
        ],
    ],
)  # fmt: skip
async def test_a_request_has_one_host(head: bytes, status: int) -> None:
    async with serving(HttpLimits()) as (_, handler, connect):
        client = await connect()
        client.send(head)
        found, headers, _ = await client.answer()
        assert found == status
        assert handler.seen == ([] if status >= 400 else ["/"])
        assert status == 200 or headers["connection"] == "close"


async def test_another_host_on_the_same_connection_is_looked_at() -> None:
    async with serving() as (_, _, connect):
        client = await connect()
        client.send(get() + get() + get().replace(b": x", b": y") + get().replace(b": x", b": x/y"))
        assert [(await client.answer())[0] for _ in range(4)] == [200, 200, 200, 400]
        assert await client.closed()


# How slowly ----------------------------------------------------------------------------------


class Full(Counting):
    """A transport whose peer reads as fast as the test says."""

    left = 1_000_000

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("rate", "seconds"), [(1, 30), (200, 30), (300, None)])
async def test_who_reads_an_answer_byte_by_byte_is_cut_off(rate: int, seconds: int | None) -> None:
    server = HttpServer(lambda request: HttpResponse(), HttpLimits(write_time=30, least_rate=240))
    protocol, transport = server.factory(), Full()
    protocol.connection_made(transport)
    protocol.data_received(get())
    start = asyncio.get_running_loop().time()
    protocol.pause_writing()
    late = None
    for second in range(1, 301):
        transport.left -= rate
        protocol.judge(start + second + 0.5)
        if transport.closed:
            late = second
            break
    assert late == seconds
    assert server.cut_off == (0 if seconds is None else 1)
    protocol.connection_lost(None)
