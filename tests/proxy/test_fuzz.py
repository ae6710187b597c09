"""Requests that were tampered with: nothing breaks, and nothing gets through uncounted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import AsyncIterator

import pytest

from penstock.wires.http.messages import Handler, HttpRequest, HttpResponse
from penstock.wires.http.protocol import HttpServer
from proxy.proxy_parts import OPEN, Client, running

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

ROUNDS = int(os.environ.get("PENSTOCK_EXAMPLES", "100")) * 3
SEEDS = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /x?y=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;x\r\na\r\n0\r\nT: \r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, x\r\nX: y\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81hello",
    b"PUT / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\nh",
    b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\n\r\n",
]
WORDS = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\0",
        b":",
        b",",
        b"\xff",
        b"-1",
        b"+1",
        b"0x",
        b"chunked",
    ),
    *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"Host: b\r\n"),
    *(b"GET /s HTTP/1.1\r\nHost: b\r\n\r\n", b"Connection: close\r\n", b"HTTP/1.1", b"HTTP/0.9"),
    *(b"Transfer-Encoding:\r\n chunked\r\n", b"99999999999999999999"),
]


def tampered(drawn: random.Random) -> bytes:
    data = bytearray(b"".join(drawn.choices(SEEDS, k=drawn.randint(1, 3))))
    for _ in range(drawn.randint(1, 4)):
        at = drawn.randrange(len(data) + 1)
        match drawn.randrange(4):
            case 0:
                data[at:at] = drawn.choice(WORDS)
            case 1:
                del data[at : at + drawn.randint(1, 8)]
            case 2 if at < len(data):
                data[at] = drawn.randrange(256)
            case _:
                data[at:at] = data[drawn.randrange(len(data) + 1) :][: drawn.randint(1, 40)]
    return bytes(data)


@contextlib.asynccontextmanager
async def real_server(handler: Handler) -> AsyncIterator[int]:
    server = HttpServer(handler)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(server.factory, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await server.drain(0.1)
        await asyncio.sleep(0.01)


async def test_every_request_that_reaches_the_server_was_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = 0

    def handler(request: HttpRequest) -> HttpResponse:
        nonlocal seen
        seen += 1
        return HttpResponse(200, request.body)

    counted = 0
    caplog.set_level(logging.ERROR)
    drawn = random.Random(int(os.environ.get("PENSTOCK_SEED", "7")))
    async with real_server(handler) as port, running(port, OPEN) as front:
        check = front.proxy.check

        async def counting(request: object) -> object:
            nonlocal counted
            counted += 1
            return await check(request)  # type: ignore[arg-type]  # it is one

        front.proxy.check = counting  # type: ignore[method-assign,assignment]  # only to count
        for number in range(ROUNDS):
            data = tampered(drawn)
            async with Client.to(front.port) as client:
                for at in range(0, len(data), size := drawn.choice([7, 60, 10_000])):
                    with contextlib.suppress(ConnectionError, RuntimeError):  # it was closed
                        await client.send(data[at : at + size])
                        await asyncio.sleep(0)
                with contextlib.suppress(ConnectionError, TimeoutError):
                    while await asyncio.wait_for(client.reader.read(65_536), 0.005):
                        pass
            assert seen <= counted, (number, data)
            assert not caplog.records, (number, data)
        async with Client.to(front.port) as client:
            assert (await client.get()).status == 200  # it is as well as before
        await asyncio.sleep(0.05)
        assert len(front.proxy.connections) <= 1
    assert counted > ROUNDS / 3
