"""Peers that abuse bidirectional streams, on real sockets: bounded, and others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc.aio
import pytest

from penstock.wires.grpc.h2.limits import Limits
from wires.grpc.frames import (
    ACK,
    DATA,
    END_HEADERS,
    HEADERS,
    HELLO,
    PING,
    SETTINGS,
    block,
    frame,
    head,
    message,
    settings,
)
from wires.grpc.kit import BIDI, NOW, Bench
from wires.grpc.serving import WIRES, Peer, Served, serve
from wires.grpc.test_bidi_wires import bidi, until

MB = 2**20


def opened(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, block(head(BIDI)))


def in_frames(data: bytes, stream: int = 1) -> list[bytes]:
    return [frame(DATA, 0, stream, data[at : at + 16_000]) for at in range(0, len(data), 16_000)]


@contextlib.asynccontextmanager
async def peer_of(served: Served, hello: bytes = HELLO) -> AsyncIterator[Peer]:
    peer = await Peer.to(served.port, hello)
    try:
        yield peer
    finally:
        await peer.close()


@contextlib.asynccontextmanager
async def neighbour(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    """Another client, with a stream and calls: all goes on."""
    async with served.channel() as channel:
        call = bidi(channel)
        await call.write(b"before")
        assert await call.read() == b"before"
        yield channel
        await call.write(b"after")
        assert await call.read() == b"after"
        assert await channel.unary_unary(NOW)(b"x", timeout=20) == b"x"
        call.cancel()
    await until(lambda: served.server.open_bidi_streams == 0)
    assert all(stream.over == 1 for stream in served.echo.quota.streams)


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize("wire", WIRES)
async def test_rubbish(wire: str) -> None:
    """On one stream, and then on the whole connection."""
    async with serve(wire) as served, neighbour(served), peer_of(served) as peer:
        await peer.say(opened(1))
        await until(lambda: len(served.echo.quota.streams) == 2)
        # grpcio ignores a message whose first byte is neither 0 nor 1, and the stream stays open.
        await peer.say(frame(DATA, 0, 1, b"\0" + b"\xff" * 1000))
        await until(lambda: served.echo.quota.streams[1].over)
        assert served.echo.quota.streams[1].received == 0
        await peer.say(opened(3), frame(DATA, 0, 3, message(b"x")), b"\xee" * 100_000)
        await peer.rest()


@pytest.mark.parametrize("wire", WIRES)
async def test_messages_that_are_announced_and_never_come(wire: str) -> None:
    """Of 50 streams with four megabytes each, what comes is kept, and nothing else."""
    async with serve(wire) as served, neighbour(served), peer_of(served) as peer:
        before = resident()
        for stream in range(1, 101, 2):
            await peer.say(opened(stream), frame(DATA, 0, stream, message(b"x", length=4 * MB)))
        await until(lambda: served.server.open_bidi_streams == 51)
        assert resident() - before < 50 * MB


@pytest.mark.parametrize("wire", WIRES)
async def test_large_messages_do_not_stay(wire: str) -> None:
    """50 streams have sent four megabytes each."""
    async with serve(wire) as served, neighbour(served), served.channel() as channel:
        calls = [bidi(channel) for _ in range(50)]
        before = resident()
        for number, call in enumerate(calls):
            await call.write(b"silent " + b"x" * (4 * MB - 100))
            await until(lambda number=number: served.echo.quota.received == number + 2)
        assert resident() - before < 80 * MB
        for call in calls:
            call.cancel()


async def test_nor_while_a_byte_of_the_next_message_is_here(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.say(hello=True)
    frames = in_frames(message(b"silent " + b"x" * 2 * MB) + b"\0", 0)
    before = resident()
    for stream in range(1, 101, 2):
        bench.say(opened(stream), *[each[:5] + stream.to_bytes(4) + each[9:] for each in frames])
    assert bench.echo.quota.received == 50
    assert bench.server.open_bidi_streams == 50
    assert resident() - before < 40 * MB


@pytest.mark.parametrize("wire", WIRES)
async def test_a_peer_whose_window_is_closed(wire: str) -> None:
    """What waits for it is bounded, and goes after a time, with the stream."""
    limits = Limits(stall_seconds=1, bidi_queue_bytes=MB)
    hello = HELLO + settings(window=0)
    async with serve(wire, limits) as served, neighbour(served), peer_of(served, hello) as peer:
        pings = asyncio.create_task(_answer_pings(peer))
        for stream in range(1, 41, 2):
            await peer.say(opened(stream), frame(DATA, 0, stream, message(b"silent")))
        await until(lambda: served.echo.quota.received == 21)
        before = resident()
        full, *stalled = served.echo.quota.streams[1:]
        for each in stalled:
            each.wire.send(b"x")
        while not full.over:
            full.wire.send(b"x" * 100_000)
            await asyncio.sleep(0)
        assert resident() - before < 50 * MB
        await until(lambda: all(each.over for each in stalled))
        await until(lambda: served.server.open_bidi_streams == 1)
        pings.cancel()


async def _answer_pings(peer: Peer) -> None:
    while True:
        ping = await peer.hear(PING, 600)
        if not ping.flags & ACK:
            await peer.say(frame(PING, ACK, 0, ping.payload))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_flood_of_tiny_messages(wire: str) -> None:
    """As many as fit into the connection, whatever the window says. Others are answered."""
    limits = Limits(bidi_messages_per_second=1_000, bidi_messages_burst=2_000)
    async with serve(wire, limits) as served, flooded(served) as channel:
        loop = asyncio.get_running_loop()
        start, before = loop.time(), resident()
        for _ in range(50):
            assert await channel.unary_unary(NOW)(b"x", timeout=20) == b"x"
            await asyncio.sleep(0.01)
        took = loop.time() - start
        assert served.echo.quota.received < 2_000 + 1_000 * (took + 2)
        assert resident() - before < 100 * MB


@contextlib.asynccontextmanager
async def flooded(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    """A neighbour of somebody who sends tiny messages without an end."""
    data = b"".join(in_frames(message(b"silent") * 5_000))
    async with neighbour(served) as channel, peer_of(served) as peer:
        await peer.say(opened(1))
        reading = asyncio.create_task(peer.rest(60))

        async def flood() -> None:
            while True:
                await peer.say(data)
                await asyncio.sleep(0)

        flooding = asyncio.create_task(flood())
        await until(lambda: served.echo.quota.received > 1)
        yield channel
        flooding.cancel()
        reading.cancel()
        await asyncio.gather(flooding, reading, return_exceptions=True)


@pytest.mark.parametrize("wire", WIRES)
async def test_ten_thousand_streams(wire: str) -> None:
    """Some are opened; the others are refused, or the peer is sent away for ignoring that."""
    limits = Limits(bidi_streams=50)
    async with serve(wire, limits) as served, neighbour(served), peer_of(served) as peer:
        reading = asyncio.create_task(peer.rest(60))
        before = resident()
        await peer.say(frame(SETTINGS, ACK))
        with contextlib.suppress(ConnectionError):
            for stream in range(1, 20_001, 2):
                await peer.say(opened(stream))
                if stream % 100 == 1:
                    await asyncio.sleep(0)
            await asyncio.sleep(0.2)
        assert served.server.open_bidi_streams <= 51
        assert len(served.echo.quota.streams) <= 51
        assert resident() - before < 100 * MB
        reading.cancel()
