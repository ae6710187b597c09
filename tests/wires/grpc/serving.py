"""Real servers of both wires, in this loop, and real clients for them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest

from penstock.clock import MONOTONIC, Clock
from penstock.wires.grpc import h2
from penstock.wires.grpc.h2.limits import Limits
from wires.grpc.frames import HELLO, Frame, Reader
from wires.grpc.kit import Echo

WIRES = ("h2", "grpcio")


@dataclass
class Served:
    """A server that runs, and what its methods were told."""

    wire: str
    port: int
    echo: Echo
    server: Any

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def channel(self, *options: tuple[str, Any]) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(
            self.address, options=[("grpc.use_local_subchannel_pool", 1), *options]
        )


@contextlib.asynccontextmanager
async def serve(
    wire: str,
    limits: Limits | None = None,
    *,
    tls: Any = None,
    echo: Echo | None = None,
    clock: Clock = MONOTONIC,
) -> AsyncIterator[Served]:
    echo = echo or Echo()
    if wire == "h2":
        if not h2.available():
            pytest.skip("the nghttp2 extension was not built")
        from penstock.wires.grpc.h2.server import H2Server

        server = H2Server(echo.methods, limits, clock=clock)
        listener = await asyncio.get_running_loop().create_server(
            server.factory,
            "127.0.0.1",
            0,
            **(tls.listening(server.limits.handshake_seconds) if tls else {}),
        )
        try:
            yield Served(wire, listener.sockets[0].getsockname()[1], echo, server)
        finally:
            listener.close()
            await server.drain(0)
            await listener.wait_closed()
            assert server.connections == 0
    else:
        from penstock.wires.grpc.grpcio import GrpcioServer, credentials

        other = GrpcioServer(echo.methods, limits)
        [port] = await other.start("127.0.0.1:0", credentials=tls and credentials(tls))
        try:
            yield Served(wire, port, echo, other)
        finally:
            await other.drain(0)


class Peer:
    """A raw connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = Reader()
        self._found: list[Frame] = []

    @classmethod
    async def to(cls, port: int, hello: bytes = HELLO, **options: Any) -> Peer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port, **options))
        await peer.say(hello)
        return peer

    async def say(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        await self.writer.drain()

    async def hear(self, kind: int, seconds: float = 10) -> Frame:
        """The next frame of this kind; what comes before it is dropped."""
        async with asyncio.timeout(seconds):
            while True:
                while self._found:
                    one = self._found.pop(0)
                    if one.kind == kind:
                        return one
                data = await self._reader.read(65536)
                if not data:
                    raise EOFError
                self._found += self._frames.read(data)

    async def rest(self, seconds: float = 10) -> bytes:
        """All until the server closes."""
        async with asyncio.timeout(seconds):
            return await self._reader.read(-1)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # it may have had more to say
            await self.writer.wait_closed()
