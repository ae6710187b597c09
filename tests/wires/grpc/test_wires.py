"""What a gRPC client sees, the same over nghttp2 and over grpcio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from penstock.wires.grpc.h2.limits import Limits
from wires.grpc.kit import (
    EACH,
    FUTURE,
    LARGE,
    LATE_STATUS,
    LATER,
    NOW,
    RAISE,
    STATUS,
    WAIT,
    WATCH,
    WRONG,
)
from wires.grpc.serving import WIRES, Served, serve

ALL_BYTES = bytes(range(256))


@pytest.mark.parametrize("path", [NOW, LATER, FUTURE])
@pytest.mark.parametrize(
    "message", [b"", b"x", ALL_BYTES, b"y" * 16384, b"z" * 200_000], ids=len
)  # fmt: skip
async def test_a_message_comes_back(served: Served, path: str, message: bytes) -> None:
    async with served.channel() as channel:
        assert await channel.unary_unary(path)(message) == message


async def test_a_blocking_client_works(served: Served) -> None:
    def call() -> list[bytes]:
        with grpc.insecure_channel(served.address) as channel:
            method = channel.unary_unary(NOW)
            return [method(b"%d" % number, timeout=10) for number in range(20)]

    assert await asyncio.to_thread(call) == [b"%d" % number for number in range(20)]


async def test_many_calls_at_once(served: Served) -> None:
    async with served.channel() as channel:
        method, later = channel.unary_unary(NOW), channel.unary_unary(LATER)
        asked = [b"%d" % number for number in range(300)]
        got = await asyncio.gather(*[(method, later)[i % 2](m) for i, m in enumerate(asked)])
    assert got == asked
    assert served.server.counts()["messages"] == 300


STATUSES = [
    (STATUS, b"3 bad domain", grpc.StatusCode.INVALID_ARGUMENT, "bad domain"),
    (STATUS, b"2 ", grpc.StatusCode.UNKNOWN, ""),
    (STATUS, b"16 who?", grpc.StatusCode.UNAUTHENTICATED, "who?"),
    (STATUS, "5 100 % gr\u00fc\u00df dich \u2603\r\n".encode(), grpc.StatusCode.NOT_FOUND,
     "100 % gr\u00fc\u00df dich \u2603\r\n"),
    (LATE_STATUS, b"8 too much", grpc.StatusCode.RESOURCE_EXHAUSTED, "too much"),
    (RAISE, b"", grpc.StatusCode.INTERNAL, "internal error"),
    (WRONG, b"", grpc.StatusCode.INTERNAL, "internal error"),
    ("/test.Echo/Missing", b"", grpc.StatusCode.UNIMPLEMENTED, None),
    ("/other.Service/Now", b"", grpc.StatusCode.UNIMPLEMENTED, None),
]  # fmt: skip


@pytest.mark.parametrize(("path", "message", "code", "text"), STATUSES)
async def test_how_a_call_ends(
    served: Served,
    path: str,
    message: bytes,
    code: grpc.StatusCode,
    text: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served.channel() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(path)(message)
        assert caught.value.code() == code
        assert text is None or caught.value.details() == text
        assert await channel.unary_unary(NOW)(b"still here") == b"still here"
    failed = [record for record in caplog.records if record.name == "penstock.server"]
    assert len(failed) == (path in (RAISE, WRONG))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False), (10**6, False)])
async def test_a_message_that_is_too_large(wire: str, size: int, fits: bool) -> None:
    async with serve(wire, Limits(message_bytes=1000)) as served, served.channel() as channel:
        call = channel.unary_unary(NOW)(b"x" * size)
        if fits:
            assert await call == b"x" * size
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await channel.unary_unary(NOW)(b"x") == b"x"


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 3_000_000])
async def test_an_answer_that_is_large(served: Served, size: int) -> None:
    async with served.channel() as channel:
        assert len(await channel.unary_unary(LARGE)(b"%d" % size)) == size


async def test_a_deadline_is_kept_and_the_work_is_dropped(served: Served) -> None:
    async with served.channel() as channel:
        await channel.channel_ready()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(WAIT)(b"", timeout=0.2)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        async with asyncio.timeout(10):
            while "cancelled" not in served.echo.notes:
                await asyncio.sleep(0.01)
    assert served.echo.notes == ["waits", "cancelled"]


async def test_a_cancelled_call_is_dropped(served: Served) -> None:
    async with served.channel() as channel:
        call = channel.unary_unary(WAIT)(b"")
        async with asyncio.timeout(60):
            while not served.echo.notes:
                await asyncio.sleep(0.01)
            call.cancel()
            while "cancelled" not in served.echo.notes:
                await asyncio.sleep(0.01)
        assert await channel.unary_unary(NOW)(b"x") == b"x"


async def test_each_message_has_its_answer_in_order(served: Served) -> None:
    sent = [b"1", b"later 2", b"3", b"", b"later 5" * 5000, b"6"]
    async with served.channel() as channel:
        call = channel.stream_stream(EACH)()
        for message in sent:  # one at a time
            await call.write(message)
            assert await call.read() == message
        await call.done_writing()
        assert await call.read() == grpc.aio.EOF
        assert await call.code() == grpc.StatusCode.OK

        async def all_at_once() -> AsyncIterator[bytes]:
            for message in sent * 20:
                yield message

        assert [m async for m in channel.stream_stream(EACH)(all_at_once())] == sent * 20
        assert [m async for m in channel.stream_stream(EACH)(iter([]))] == []


async def test_an_error_ends_a_stream_after_what_went_before(served: Served) -> None:
    async with served.channel() as channel:
        call = channel.stream_stream(EACH)()
        await call.write(b"1")
        assert await call.read() == b"1"
        await call.write(b"status 9 enough")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == "enough"


WATCHES = [
    (b"0 0", 0, grpc.StatusCode.OK, ""),
    (b"5 10", 5, grpc.StatusCode.OK, ""),
    (b"200 5000", 200, grpc.StatusCode.OK, ""),
    (b"2 10 fail", 2, grpc.StatusCode.FAILED_PRECONDITION, "no more"),
    (b"0 10 fail", 0, grpc.StatusCode.FAILED_PRECONDITION, "no more"),
    (b"2 10 raise", 2, grpc.StatusCode.INTERNAL, "internal error"),
    (b"nonsense", 0, grpc.StatusCode.INTERNAL, "internal error"),
]


@pytest.mark.parametrize(("message", "count", "code", "text"), WATCHES)
async def test_a_watch(
    served: Served, message: bytes, count: int, code: grpc.StatusCode, text: str
) -> None:
    got = []
    async with served.channel() as channel:
        call = channel.unary_stream(WATCH)(message)
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for each in call:
                got.append(each)
        assert (await call.code(), await call.details()) == (code, text)
    assert len(got) == count
    assert [each.rstrip(b"x") for each in got] == [b"%d" % number for number in range(count)]


async def test_a_watch_that_is_left_is_closed(served: Served) -> None:
    async with served.channel() as channel:
        call = channel.unary_stream(WATCH)(b"1 10 wait")
        assert (await call.read()).startswith(b"0")
        call.cancel()
        async with asyncio.timeout(60):
            while "closed" not in served.echo.notes:
                await asyncio.sleep(0.01)


async def test_a_watch_does_not_run_ahead_of_who_reads(served: Served) -> None:
    """1000 messages of 100 KB are not made for a client that has read one."""
    async with served.channel() as channel:
        call = channel.unary_stream(WATCH)(b"1000 100000")
        await call.read()
        before = -1
        async with asyncio.timeout(60):  # the client widens its window for a while
            while before != len(served.echo.notes):
                before = len(served.echo.notes)
                await asyncio.sleep(0.2)
        assert before < 700
        call.cancel()


@pytest.mark.parametrize("wire", WIRES)
async def test_drain_answers_what_is_open(wire: str) -> None:
    async with serve(wire) as served, served.channel() as channel:
        call = channel.unary_unary(WAIT)(b"mine")
        async with asyncio.timeout(60):
            while not served.echo.notes:
                await asyncio.sleep(0.01)
        drained = asyncio.create_task(served.server.drain(60))
        await asyncio.sleep(0.3)
        assert not drained.done()
        served.echo.go_on.set()
        assert await call == b"mine"
        assert await drained is True


@pytest.mark.parametrize("wire", WIRES)
async def test_drain_does_not_wait_for_ever(wire: str) -> None:
    async with serve(wire) as served, served.channel() as channel:
        call = channel.unary_unary(WAIT)(b"mine")
        async with asyncio.timeout(60):
            while not served.echo.notes:
                await asyncio.sleep(0.01)
        assert await served.server.drain(0.2) is False
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert served.echo.notes == ["waits", "cancelled"]
