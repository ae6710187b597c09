"""Requests and responses that two readers could read differently are not passed on."""

from __future__ import annotations

import asyncio

import pytest

from penstock.proxy.limits import ProxyLimits
from penstock.wires.http.limits import HttpLimits
from proxy.proxy_parts import Client, head_of, replying, running, scripted

# What is decided here is decided before any loop has a say.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED = {
    "length and chunked": (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "chunked and length": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    "one length twice": (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400),
    "a list of lengths": (POST + b"Content-Length: 5, 5\r\n\r\n", 400),
    "a length with a sign": (POST + b"Content-Length: +5\r\n\r\n", 400),
    "a negative length": (POST + b"Content-Length: -5\r\n\r\n", 400),
    "a length in hexadecimal": (POST + b"Content-Length: 0x5\r\n\r\n", 400),
    "a length of nothing": (POST + b"Content-Length:\r\n\r\n", 400),
    "a length too large": (POST + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
    "a space before the colon": (POST + b"Content-Length : 5\r\n\r\n", 400),
    "a folded length": (POST + b"Content-Length:\r\n 5\r\n\r\n", 400),
    "a folded field": (POST + b"X: a\r\n b\r\n\r\n", 400),
    "an unknown coding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n", 501),
    "chunked not last": (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n", 400),
    "identity": (POST + b"Transfer-Encoding: identity\r\n\r\n", 501),
    "gzip, too": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "chunked twice": (
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunked behind a tab": (POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
    "chunked in 1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a line without CR": (POST + b"X: a\nY: b\r\n\r\n", 400),
    "a head without CR": (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    "CR without LF": (POST + b"X: a\rContent-Length: 5\r\n\r\n", 400),
    "a zero byte": (POST + b"X: a\x00b\r\n\r\n", 400),
    "a control character": (POST + b"X: a\x01b\r\n\r\n", 400),
    "a space in a name": (POST + b"X y: a\r\n\r\n", 400),
    "no name": (POST + b": a\r\n\r\n", 400),
    "no colon": (POST + b"Nothing\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "two hosts in 1.0": (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "a host with a space": (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    "a host with a path": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "a host with a user": (b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
    "a host in the address that is none": (b'GET http://a"b/ HTTP/1.1\r\nHost: a\r\n\r\n', 400),
    "version 0.9": (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "another version": (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "a version that is none": (b"GET / HTTP/1.9\r\nHost: a\r\n\r\n", 400),
    "a space in the path": (b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a control character in the path": (b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a fragment": (b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "another scheme": (b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a user in the address": (b"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "CONNECT": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    "CONNECT with a body": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", 405),
    "TRACE": (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    "an unknown method": (b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "an expectation": (POST + b"Content-Length: 5\r\nExpect: miracles\r\n\r\n", 417),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "a long path": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "a long field": (POST + b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431),
    "a field without an end": (POST + b"X: " + b"a" * 600_000, 431),
    "many fields": (POST + b"X: a\r\n" * 200 + b"\r\n", 431),
}

BAD_CHUNKS = {
    "a size with a sign": b"-3\r\nabc\r\n0\r\n\r\n",
    "a size with 0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "a size with a space": b"3 \r\nabc\r\n0\r\n\r\n",
    "a size without CR": b"3\nabc\r\n0\r\n\r\n",
    "a size too large": b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "a chunk too long": b"3\r\nabc0\r\n\r\n",
    "a length after the body": b"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused_and_nothing_reaches_the_server(name: str) -> None:
    request, status = REFUSED[name]
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1))

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.ask(request)
        assert (answer.status, answer["connection"]) == (status, "close")
        assert b'"error"' in answer.body
        # What comes behind it is not read as a request.
        await client.send(b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await client.ended()
        assert asked == []


@pytest.mark.parametrize("name", BAD_CHUNKS)
async def test_a_bad_body_is_refused_and_does_not_end_at_the_server(name: str) -> None:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read())

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.ask(CHUNKED + BAD_CHUNKS[name])
        assert answer.status == 400
        assert await client.ended()
        await asyncio.sleep(0.05)
        assert all(b"\r\n0\r\n" not in each for each in got)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 500 + b"\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
    ],
)
async def test_a_doubtful_response_is_a_502(response: bytes) -> None:
    async with (
        scripted(replying(response)) as port,
        running(port) as front,
        Client.to(front.port) as client,
    ):
        answer = await client.get()
        assert (answer.status, answer.body) == (502, b'{"error":"Bad gateway"}')
        assert front.proxy.pool.resting == 0


@pytest.mark.parametrize("later", [False, True])
async def test_what_a_server_says_unasked_answers_nobody(later: bool) -> None:
    poisoned = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        if later:
            writer.write(first)
            await asyncio.sleep(0.02)
            writer.write(poisoned)
        else:
            writer.write(first + poisoned)
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        for _ in range(3):
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.sleep(0.08)
            said = await client.read()
            assert said.count(b"HTTP/1.1 200") == 1
            assert said.endswith(b"\r\n\r\ntrue")
            assert front.proxy.pool.resting == 0


async def test_a_body_after_the_answer_to_head_answers_nobody() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        body = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if not head.startswith(b"HEAD"):
            writer.close()
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.ask(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", head=True)
        assert answer.status == 200
        answer = await client.get()
        assert answer.body.startswith(b"HTTP/1.1 200 OK")


async def test_a_slow_head_is_cut_off() -> None:
    limits = ProxyLimits(client=HttpLimits(request_time=0.05))
    async with (
        scripted(replying(b"")) as port,
        running(port, limits=limits) as front,
        Client.to(front.port) as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\nHos")
        await asyncio.sleep(0.1)
        front.proxy.sweep()
        assert (await client.response()).status == 408
        assert front.proxy.cut_off == 1
