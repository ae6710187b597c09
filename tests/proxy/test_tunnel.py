"""Connections that change to another protocol, and proxies that end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import websockets

from penstock.proxy.limits import ProxyLimits
from proxy.proxy_parts import OPEN, Client, app_server, head_of, replying, running, scripted

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UPGRADE = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


async def echoing(scope: Any, receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        await send({"type": "websocket.send", "text": message["text"].upper()})


async def test_a_real_websocket_is_counted_once() -> None:
    rules = {"domain": "web", "descriptors": [{"key": "path", "limits": "2/hour"}]}
    async with app_server(echoing, ws="websockets-sansio") as port, running(port, rules) as front:
        url = f"ws://127.0.0.1:{front.port}/chat"
        for _ in range(2):
            async with websockets.connect(url, proxy=None) as socket:
                for n in range(20):
                    await socket.send(f"hello {n}")
                    assert await socket.recv() == f"HELLO {n}"
                await socket.send("x" * 500_000)
                assert len(await socket.recv()) == 500_000
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(url, proxy=None)
        assert refused.value.response.status_code == 429
        assert front.proxy.requests == 3


async def test_bytes_go_both_ways_also_those_that_come_early() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        assert b"Connection: Upgrade\r\n" in head
        assert b"Upgrade: websocket\r\n" in head
        writer.write(SWITCHED + b"welcome")
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.write(b"bye")

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(UPGRADE + b"early")
        head = await head_of(client.reader)
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"Upgrade: websocket\r\n" in head
        assert b"RateLimit:" in head
        assert await client.reader.readexactly(12) == b"welcomeEARLY"
        await client.send(b"\x00\xffabc")
        assert await client.reader.readexactly(5) == b"\x00\xffABC"
        client.writer.write_eof()  # one side may end before the other
        assert await asyncio.wait_for(client.reader.read(), 60) == b"bye"
    assert not front.proxy.pool.connections


async def test_a_tunnel_ends_with_either_end() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(SWITCHED)
        if await reader.read(1) == b"q":
            return
        await reader.read()
        left.set()

    async with scripted(serve) as port, running(port) as front:
        async with Client.to(front.port) as client:
            await client.send(UPGRADE)
            await head_of(client.reader)
            await client.send(b"q")
            assert await client.ended()
        async with Client.to(front.port) as client:
            await client.send(UPGRADE)
            await head_of(client.reader)
            await client.send(b"x")
            client.writer.transport.abort()
        await asyncio.wait_for(left.wait(), 60)


async def test_a_server_may_say_no() -> None:
    async with (
        scripted(replying(OK)) as port,
        running(port) as front,
        Client.to(front.port) as client,
    ):
        answer = await client.ask(UPGRADE)
        assert (answer.status, answer.body, answer["connection"]) == (200, b"ok", "close")
        assert await client.ended()


@pytest.mark.parametrize(
    ("fields", "body", "sent"),
    [
        (b"Upgrade: h2c\r\n", b"", b""),
        (b"Upgrade: h2c\r\nContent-Length: 3\r\n", b"abc", b"abc"),
        (b"Upgrade: h2c\r\nTransfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n",
         b"3\r\nabc\r\n0\r\n\r\n"),
        (b"Upgrade: websocket\r\nContent-Length: 3\r\n", b"abc", b"abc"),
    ],
)  # fmt: skip
async def test_what_may_not_change_goes_on_as_it_is(
    fields: bytes, body: bytes, sent: bytes
) -> None:
    """Above all not h2c: no request inside it would be counted."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            if b"POST" in heads[-1] and sent:
                assert await reader.readexactly(len(sent)) == sent
            writer.write(OK)

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(
            b"POST /first HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
            + fields + b"\r\n" + body
            + b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n"
        )  # fmt: skip
        seen = b""
        while seen.count(b"\r\n\r\nok") < 2:
            seen += await client.read()
        assert [head.split()[1] for head in heads] == [b"/first", b"/second"]
        assert b"upgrade" not in heads[0].lower()


async def test_a_tunnel_through_which_nothing_passes_is_closed() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(SWITCHED)
        await reader.read()

    limits = ProxyLimits(tunnel_time=0.05, response_time=60)
    async with (
        scripted(serve) as port,
        running(port, OPEN, limits) as front,
        Client.to(front.port) as client,
    ):
        await client.send(UPGRADE)
        await head_of(client.reader)
        await client.send(b"x")
        await asyncio.sleep(0.1)
        front.proxy.sweep()
        assert await client.ended()


# The end -----------------------------------------------------------------------------------


async def test_what_is_under_way_is_finished() -> None:
    go_on = asyncio.Event()
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        asked.set()
        await go_on.wait()
        writer.write(OK)
        await reader.read()

    async with scripted(serve) as port, running(port) as front:
        async with Client.to(front.port) as busy, Client.to(front.port) as idle:
            asking = asyncio.create_task(busy.get())
            await asyncio.wait_for(asked.wait(), 60)
            front.listener.close()
            draining = asyncio.create_task(front.proxy.drain(60))
            assert await idle.ended()
            go_on.set()
            answer = await asking
            assert (answer.body, answer["connection"]) == (b"ok", "close")
            assert await busy.ended()
            await asyncio.wait_for(draining, 60)
        assert not front.proxy.connections
        assert not front.proxy.pool.connections


async def test_what_takes_too_long_is_cut() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        asking = asyncio.create_task(client.get())
        await asyncio.sleep(0.05)
        await front.proxy.drain(0.05)
        with pytest.raises(ConnectionError):
            await asking
