"""A worker with and without a quota service, over both wires."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

pytest.importorskip("httptools")

from penstock.rules.model import RuleSet
from penstock.running.listeners import Sockets
from penstock.running.settings import Settings, SettingsError
from penstock.running.sockets import listen
from penstock.running.worker import STREAM_QUOTAS, Worker
from penstock.wires.grpc import h2
from penstock.wires.grpc.protobuf_fields import delimited
from wires.grpc.quota_echo import QuotaEcho

WIRES = [
    pytest.param("nghttp2", marks=pytest.mark.skipif(not h2.available(), reason="not built")),
    "grpcio",
]
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


@contextlib.asynccontextmanager
async def served(
    wire: str, service: QuotaEcho | None, **options: int
) -> AsyncIterator[grpc.aio.Channel]:
    [listener] = listen(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = Settings(http="off", grpc=f"127.0.0.1:{port}", wire=wire, **options)
    worker: Any = Worker(settings, "memory", "0", None, RuleSet({}))
    worker.quota_service = service
    if wire == "grpcio":  # it opens its own socket
        listener.close()
    with listener:
        await worker.start(Sockets(None, listener if wire == "nghttp2" else None))
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel
        finally:
            await worker.drain(1)


async def code_of(channel: grpc.aio.Channel, *messages: bytes) -> grpc.StatusCode:
    call = channel.stream_stream(STREAM_QUOTAS)()
    with contextlib.suppress(grpc.aio.AioRpcError):
        for message in messages:
            await call.write(message)
        while await call.read() != grpc.aio.EOF:
            pass
    return await call.code()


async def services(channel: grpc.aio.Channel) -> bytes:
    call = channel.stream_stream(REFLECTION)()
    await call.write(delimited(7, b""))
    reply = await call.read()
    assert isinstance(reply, bytes)
    await call.done_writing()
    return reply


NAME = STREAM_QUOTAS.split("/")[1].encode()


@pytest.mark.parametrize("wire", WIRES)
async def test_without_a_quota_service(wire: str) -> None:
    async with served(wire, None) as channel:
        # A write would race with the answer, and grpcio's client then says INTERNAL.
        assert await code_of(channel) == grpc.StatusCode.UNIMPLEMENTED
        assert NAME not in await services(channel)


@pytest.mark.parametrize("wire", WIRES)
async def test_with_a_quota_service(wire: str) -> None:
    echo = QuotaEcho()
    async with served(wire, echo) as channel:
        call = channel.stream_stream(STREAM_QUOTAS)()
        await call.write(b"x")
        assert await call.read() == b"x"
        assert NAME in await services(channel)
        assert await code_of(channel, b"close 9") == grpc.StatusCode.FAILED_PRECONDITION
        assert [stream.over for stream in echo.streams] == [0, 1]
    assert [stream.over for stream in echo.streams] == [1, 1]


@pytest.mark.parametrize("wire", WIRES)
async def test_the_size_of_reports_is_a_setting(wire: str) -> None:
    async with served(wire, QuotaEcho(), rlqs_message_bytes=2_000) as channel:
        call = channel.stream_stream(STREAM_QUOTAS)()
        await call.write(b"x" * 2_000)
        assert await call.read() == b"x" * 2_000
        assert await code_of(channel, b"x" * 2_001) == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("size", [0, 1023, 2**28 + 1])
def test_sizes_that_make_no_sense(size: int) -> None:
    with pytest.raises(SettingsError, match="rlqs_message_bytes is from 1024 to 268435456"):
        Settings(rlqs_message_bytes=size)
