"""Bidirectional streams as a gRPC client sees them, the same over nghttp2 and over grpcio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc
import grpc.aio
import pytest

from penstock.service.grpc_status import UNAUTHENTICATED, GrpcError
from penstock.wires.grpc.h2.limits import Limits
from wires.grpc.kit import BIDI, NOW
from wires.grpc.serving import WIRES, Served, serve

Call = grpc.aio.StreamStreamCall[bytes, bytes]


def bidi(channel: grpc.aio.Channel, **options: object) -> Call:
    return channel.stream_stream(BIDI)(**options)  # type: ignore[call-overload,no-any-return]  # the stubs know no keywords


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def ended(call: Call) -> tuple[grpc.StatusCode, str | None]:
    """How it ends, whatever comes before that."""
    try:
        while await call.read() != grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()
    return await call.code(), await call.details()


async def test_messages_go_both_ways_at_any_time(served: Served) -> None:
    async with served.channel() as channel:
        call = bidi(channel)
        for message in (b"1", b"", b"three" * 20_000, b"4"):
            await call.write(message)
            assert await call.read() == message
        [stream] = served.echo.quota.streams
        stream.wire.send(b"unasked")
        stream.wire.send(b"twice")
        assert [await call.read(), await call.read()] == [b"unasked", b"twice"]
        await call.write(b"silent")
        await until(lambda: stream.received == 5)
        assert stream.over == 0
        assert served.server.open_bidi_streams == 1
        assert await channel.unary_unary(NOW)(b"beside it") == b"beside it"
        await call.done_writing()
        assert await call.read() == grpc.aio.EOF
        assert await call.code() == grpc.StatusCode.OK
        await until(lambda: stream.over)
    assert stream.over == 1
    stream.wire.send(b"nobody hears it")
    stream.wire.close(14, "nor that")
    for status in (-1, 17):
        with pytest.raises(ValueError, match="0 to 16"):
            stream.wire.close(status)
    assert stream.wire.confirm(lambda: None) is False
    await until(lambda: served.server.open_bidi_streams == 0)


async def test_a_report_of_ten_thousand_buckets(served: Served) -> None:
    async with served.channel(("grpc.max_receive_message_length", -1)) as channel:
        call = bidi(channel)
        for size in (409_000, 4 * 1024 * 1024):
            await call.write(b"z" * size)
            assert len(await call.read()) == size  # type: ignore[arg-type]  # or EOF, which has none
        call.cancel()


async def test_a_stream_knows_who_opened_it(served: Served) -> None:
    async with served.channel() as channel:
        metadata = (("x-node-id", "edge-1"), ("x-zone", "a"), ("x-zone", "b"), ("y-bin", b"\0\1"))
        call = bidi(channel, metadata=metadata)
        await call.write(b"x")
        await call.read()
        [stream] = served.echo.quota.streams
        assert stream.metadata["x-node-id"] == "edge-1"
        assert stream.metadata["x-zone"].replace(" ", "") == "a,b"
        assert not {"y-bin", "te", "content-type", ":path", "grpc-timeout"} & set(stream.metadata)
        assert stream.peer.startswith("ipv4:127.0.0.1:")
        other = bidi(channel)
        await other.write(b"x")
        await other.read()
        assert served.echo.quota.streams[1].peer == stream.peer  # of one connection
        call.cancel()
        other.cancel()


async def test_a_stream_is_open_before_its_first_message(served: Served) -> None:
    async with served.channel() as channel:
        call = bidi(channel, metadata=(("x-hello", "welcome"),))
        assert await call.read() == b"welcome"
        call.cancel()
        await until(lambda: served.echo.quota.streams[0].over)


ENDS = [
    (b"close 0", grpc.StatusCode.OK, ""),
    (b"close 14", grpc.StatusCode.UNAVAILABLE, "as you say"),
    (b"status 9", grpc.StatusCode.FAILED_PRECONDITION, "it is so"),
    (b"malformed", grpc.StatusCode.INVALID_ARGUMENT, "this message is malformed"),
    (b"raise", grpc.StatusCode.INTERNAL, "internal error"),
]


@pytest.mark.parametrize(("message", "code", "details"), ENDS)
async def test_how_a_stream_ends(
    served: Served,
    message: bytes,
    code: grpc.StatusCode,
    details: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served.channel() as channel:
        call = bidi(channel)
        await call.write(b"before")
        await call.write(message)
        assert await call.read() == b"before"
        assert await ended(call) == (code, details)
        [stream] = served.echo.quota.streams
        await until(lambda: stream.over)
        assert (stream.over, stream.received) == (1, 2)
        assert await channel.unary_unary(NOW)(b"still here") == b"still here"
    failed = [record for record in caplog.records if record.name == "penstock.server"]
    assert len(failed) == (message == b"raise")


async def test_a_service_that_does_not_open_a_stream(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with served.channel() as channel:
        served.echo.quota.refuse = GrpcError(UNAUTHENTICATED, "who are you?")
        assert await ended(bidi(channel)) == (grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        with caplog.at_level(logging.CRITICAL, "penstock.server"):
            served.echo.quota.refuse = RuntimeError("a secret")
            assert await ended(bidi(channel)) == (grpc.StatusCode.INTERNAL, "internal error")
        served.echo.quota.refuse = None
        call = bidi(channel, metadata=(("x-close", "5"),))
        assert await ended(call) == (grpc.StatusCode.NOT_FOUND, "closed while it opened")
        assert [stream.over for stream in served.echo.quota.streams] == [1]
    await until(lambda: served.server.open_bidi_streams == 0)


async def test_a_stream_that_is_cancelled(served: Served) -> None:
    async with served.channel() as channel:
        call = bidi(channel)
        await call.write(b"x")
        await call.read()
        call.cancel()
        [stream] = served.echo.quota.streams
        await until(lambda: stream.over)
    await until(lambda: served.server.open_bidi_streams == 0)
    assert stream.over == 1


async def test_a_connection_that_is_lost(served: Served) -> None:
    async with served.channel() as channel:
        for _ in range(3):
            call = bidi(channel)
            await call.write(b"x")
            await call.read()
    await until(lambda: served.server.open_bidi_streams == 0)
    assert [stream.over for stream in served.echo.quota.streams] == [1] * 3


async def test_a_deadline_ends_a_stream(served: Served) -> None:
    async with served.channel() as channel:
        call = bidi(channel, timeout=0.3)
        await call.write(b"x")
        await call.read()
        code, _ = await ended(call)
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: served.echo.quota.streams[0].over)


async def test_confirmations_are_for_nghttp2(served: Served) -> None:
    async with served.channel() as channel:
        call = bidi(channel)
        for number in range(3):
            await call.write(b"confirm %d" % number)
        for _ in range(3):
            await call.read()
        [stream] = served.echo.quota.streams
        await until(lambda: len(stream.notes) == 3)
        word = "delivered" if served.wire == "h2" else "no proof of"
        assert stream.notes == [f"{word} {number}" for number in range(3)]
        call.cancel()


@pytest.mark.parametrize("wire", WIRES)
async def test_drain_ends_streams_at_once(wire: str) -> None:
    """Otherwise every stop would take all of the grace period."""
    async with serve(wire) as served, served.channel() as channel:
        calls = [bidi(channel) for _ in range(3)]
        for call in calls:
            await call.write(b"x")
            await call.read()
        async with asyncio.timeout(20):
            assert await served.server.drain(30) is True
        for call in calls:
            code, _ = await ended(call)
            assert code == grpc.StatusCode.UNAVAILABLE
        assert [stream.over for stream in served.echo.quota.streams] == [1] * 3


@pytest.mark.parametrize("wire", WIRES)
async def test_streams_beyond_the_limit(wire: str) -> None:
    limits = Limits(bidi_streams=2, bidi_streams_total=3)
    async with serve(wire, limits) as served:
        channel, other = served.channel(), served.channel()
        async with channel, other:
            calls = [bidi(channel) for _ in range(2)]
            for call in calls:
                await call.write(b"x")
                await call.read()
            exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
            text = "too many streams are open on this {}"
            assert await ended(bidi(channel)) == (exhausted, text.format("connection"))
            third = bidi(other)
            await third.write(b"x")
            assert await third.read() == b"x"
            assert await ended(bidi(other)) == (exhausted, text.format("server"))
            calls[0].cancel()
            await until(lambda: served.server.open_bidi_streams == 2)
            again = bidi(channel)
            await again.write(b"x")
            assert await again.read() == b"x"
            assert await channel.unary_unary(NOW)(b"x") == b"x"
    assert [stream.over for stream in served.echo.quota.streams] == [1] * 4


@pytest.mark.parametrize("wire", WIRES)
async def test_sizes_have_limits_of_their_own(wire: str) -> None:
    """A report is larger than any request."""
    limits = Limits(message_bytes=1000, bidi_message_bytes=2000)
    async with serve(wire, limits) as served, served.channel() as channel:
        call = bidi(channel)
        await call.write(b"x" * 2000)
        assert await call.read() == b"x" * 2000
        await call.write(b"x" * 2001)
        code, _ = await ended(call)
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        await until(lambda: served.echo.quota.streams[0].over)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(NOW)(b"x" * 1001)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await channel.unary_unary(NOW)(b"x" * 1000) == b"x" * 1000


@pytest.mark.parametrize("wire", WIRES)
async def test_a_peer_that_never_reads(wire: str) -> None:
    """So much is kept for it, and no more; others do not notice."""
    async with serve(wire, Limits(bidi_queue_bytes=1_000_000)) as served:
        async with served.channel(("grpc.http2.bdp_probe", 0)) as channel:
            call = bidi(channel)
            await call.write(b"silent")
            await until(lambda: served.echo.quota.received == 1)
            [stream] = served.echo.quota.streams
            sent = 0
            while not stream.over:
                stream.wire.send(b"x" * 100_000)
                sent += 1
                assert sent < 300
                await asyncio.sleep(0.001)
            assert sent > 10
            assert await channel.unary_unary(NOW)(b"x") == b"x"
            code, _ = await ended(call)
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        await until(lambda: served.server.open_bidi_streams == 0)
    assert stream.over == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_a_flood_of_messages_is_slowed_down(wire: str) -> None:
    """And others have their turns."""
    limits = Limits(bidi_messages_per_second=100, bidi_messages_burst=500)
    async with serve(wire, limits) as served:
        channel, other = served.channel(), served.channel()
        async with channel, other:
            call = bidi(channel)

            async def flood() -> None:
                while True:
                    await call.write(b"silent")

            flooding = asyncio.create_task(flood())
            await until(lambda: served.echo.quota.received >= 500)
            begun, start = served.echo.quota.received, asyncio.get_running_loop().time()
            for _ in range(20):
                assert await other.unary_unary(NOW)(b"x", timeout=10) == b"x"
                await asyncio.sleep(0.02)
            took = asyncio.get_running_loop().time() - start
            assert served.echo.quota.received - begun <= 100 * (took + 1) + 100
            flooding.cancel()
            call.cancel()
            await until(lambda: served.server.open_bidi_streams == 0)
