"""HTTP/1.1: one connection of the load generator."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlsplit

import httptools

from penstock.loadgen.scheduler import Connection, Scheduler


class HttpTarget:
    """The address, and a prepared request for each key."""

    def __init__(
        self, url: str, method: str, bodies: Sequence[bytes], headers: Sequence[tuple[str, str]]
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"URL must be like http://127.0.0.1:8080/v1/check, not {url!r:.200}")
        self.host = parts.hostname
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        self.port = port or (443 if self.tls else 80)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.requests = [self._request(method, target, body, headers) for body in bodies]

    def _request(
        self, method: str, target: str, body: bytes, headers: Sequence[tuple[str, str]]
    ) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}:{self.port}"]
        names = {name.lower() for name, _ in headers}
        if body or method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {len(body)}")
            if "content-type" not in names:
                lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    async def connect(self, scheduler: Scheduler) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: HttpConnection(scheduler, self), self.host, self.port, ssl=self.tls
        )
        return connection


class HttpConnection(asyncio.Protocol):
    """2xx is allowed, 429 is refused, everything else an error. In order, as they were sent."""

    def __init__(self, scheduler: Scheduler, target: HttpTarget) -> None:
        self._scheduler = scheduler
        self._requests = target.requests
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._under_way: deque[tuple[int, float]] = deque()
        self._most = scheduler.load.streams
        self._closes = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @property
    def room(self) -> int:
        return 0 if self._transport is None else self._most - len(self._under_way)

    def send(self, requests: list[tuple[int, float]]) -> None:
        self._under_way.extend(requests)
        if self._transport is not None:
            self._transport.write(b"".join([self._requests[key] for key, _ in requests]))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end("not HTTP")
            return
        if self._closes:
            self._end("closed")
        else:
            self._scheduler.ready(self)

    def on_message_complete(self) -> None:
        if not self._under_way:
            return
        key, due = self._under_way.popleft()
        status = self._parser.get_status_code()
        scheduler = self._scheduler
        if 200 <= status < 300 or status == 429:
            scheduler.counts.answered(key, scheduler.now() - due, status != 429)
        else:
            scheduler.counts.failed(f"HTTP {status}")
        if not self._parser.should_keep_alive():
            self._closes = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end("connection lost" if exc is None else str(exc) or "connection lost")

    def _end(self, why: str) -> None:
        under_way = len(self._under_way)
        self._under_way.clear()
        self._scheduler.lost(self, under_way, why)
        self.close()

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
