"""A server of the HTTP wire, and a client that says exactly what it wants to say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from penstock.wires.http.limits import HttpLimits
from penstock.wires.http.messages import HttpRequest, HttpResponse, as_json, as_text
from penstock.wires.http.protocol import HttpServer

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
SMALL = HttpLimits(
    url=100, headers=400, header_count=8, body=1000, request_time=60.0, idle_time=60.0,
    write_time=60.0, pipeline=4, connections=50,
)  # fmt: skip


class Handler:
    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.seen: list[str] = []
        self.cancelled = 0

    def __call__(self, request: HttpRequest) -> Any:
        self.seen.append(request.path)
        if request.path.startswith("/slow"):
            return self._slow(request)
        if request.path == "/boom":
            raise RuntimeError("as asked")
        if request.path == "/boom-later":
            return self._boom()
        if request.path == "/big":
            return as_text("x" * 10_000_000)
        told = [request.method, request.path, request.query, len(request.body)]
        return as_json(told, headers=[("x-a", request.header("a") or "-")])

    async def _slow(self, request: HttpRequest) -> HttpResponse:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return as_text(request.path)

    async def _boom(self) -> HttpResponse:
        raise RuntimeError("as asked")


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, head: bool = False) -> tuple[int, dict[str, str], bytes]:
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)
        first, *lines = raw.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        length = 0 if head else int(headers.get("content-length", 0))
        return int(first.split()[1]), headers, await self.reader.readexactly(length)

    async def closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), 60) == b""
        except ConnectionError:
            return True


@contextlib.asynccontextmanager
async def serving(limits: HttpLimits = SMALL) -> AsyncIterator[tuple[HttpServer, Handler, Any]]:
    handler = Handler()
    server = HttpServer(handler, limits)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(server.factory, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
        return clients[-1]

    try:
        yield server, handler, connect
    finally:
        listener.close()
        handler.gate.set()
        await server.drain(1.0)
        for client in clients:
            client.writer.close()
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()
        assert not server.connections


def get(path: str = "/", *headers: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/{version}", "Host: x", *headers, "", ""]).encode()


class Sink(asyncio.Transport):
    """Takes everything."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: Any) -> None:
        assert data.startswith(b"HTTP/1.1 ")

    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
