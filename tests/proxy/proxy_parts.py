"""A proxy, servers behind it, and a client that says exactly what it wants to say."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httptools
import uvicorn

from penstock.async_gate import AsyncGate
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.proxy.limits import ProxyLimits
from penstock.proxy.server import ProxyServer

OPEN = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "1000000/second"}]}
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Running:
    """A proxy that listens."""

    proxy: ProxyServer
    port: int
    listener: asyncio.Server


@contextlib.asynccontextmanager
async def running(
    upstream: int | str,
    rules: Any = OPEN,
    limits: ProxyLimits | None = None,
    forwarded: str = "x-forwarded-for",
    **options: Any,
) -> AsyncIterator[Running]:
    target = f"http://127.0.0.1:{upstream}" if isinstance(upstream, int) else upstream
    gate = AsyncGate.from_rules(rules)
    checkpoint = HttpCheckpoint(asynchronous=True, gate=gate, forwarded=forwarded, **options)
    proxy = ProxyServer(checkpoint, target, limits=limits, forwarded=forwarded)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(proxy.factory, "127.0.0.1", 0)
    try:
        yield Running(proxy, listener.sockets[0].getsockname()[1], listener)
    finally:
        listener.close()
        await proxy.drain(0.2)
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def scripted(serve: Serve) -> AsyncIterator[int]:
    """A server that does what the test says; its port."""

    tasks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def app_server(app: Any, **options: Any) -> AsyncIterator[int]:
    """A real server (uvicorn) of an ASGI application, in this loop; its port."""

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Any:
            yield

    config = uvicorn.Config(
        app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, loop="none", **options
    )
    server = Quiet(config)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)


def replying(response: bytes) -> Serve:
    """Says the same to every request that has no body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
            await writer.drain()

    return serve


@dataclass
class Response:
    """A whole response."""

    status: int = 0
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        found = self.get(name)
        assert found is not None, f"no {name} in {self.fields}"
        return found

    def get(self, name: str) -> str | None:
        found = [value for key, value in self.fields if key.lower() == name.lower()]
        return ", ".join(found) if found else None


class Client:
    """A connection to the proxy, of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._rest = b""

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, port: int) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self, n: int = 65_536) -> bytes:
        return await asyncio.wait_for(self.reader.read(n), 60)

    async def ask(self, data: bytes, head: bool = False) -> Response:
        await self.send(data)
        return await self.response(head)

    async def get(self, path: str = "/", *fields: str) -> Response:
        lines = "".join(f"{field}\r\n" for field in fields)
        return await self.ask(f"GET {path} HTTP/1.1\r\nHost: example.com\r\n{lines}\r\n".encode())

    async def response(self, head: bool = False) -> Response:
        """The next one; ConnectionError if it is not whole. ``head``: it has no body."""
        found = Response()
        done = False

        class Events:
            def on_header(self, name: bytes, value: bytes) -> None:
                pair = (name.decode("latin-1"), value.decode("latin-1"))
                (found.trailers if found.status else found.fields).append(pair)

            def on_headers_complete(self) -> None:
                nonlocal done
                status = parser.get_status_code()
                if status < 200:
                    found.interim.append(status)
                    found.fields.clear()
                else:
                    found.status = status
                    done = done or head

            def on_body(self, body: bytes) -> None:
                found.body += body

            def on_message_complete(self) -> None:
                nonlocal done
                done = done or bool(found.status)

        parser = httptools.HttpResponseParser(Events())
        while not done:
            data = await self.read()
            if not data:
                framed = found.get("content-length") or found.get("transfer-encoding")
                if found.status and not framed:
                    return found  # until the end
                raise ConnectionError(f"not whole: {found}")
            parser.feed_data(data)
        return found

    async def ended(self) -> bool:
        """Whether the proxy closes the connection, with nothing more to say."""
        try:
            return await self.read() == b""
        except ConnectionError:
            return True
