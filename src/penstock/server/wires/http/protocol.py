"""HTTP/1.1 over httptools: one connection, whole requests in, whole answers out, in order.

A handler answers at once or later. While one is late, what came behind it waits, and when
enough waits, the connection is not read on: so a peer cannot queue up more than it may.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable
from email.utils import formatdate
from typing import Any, cast

import httptools

from penstock.server.wires.http.limits import HttpLimits
from penstock.server.wires.http.messages import (
    Handler,
    HttpAnswer,
    HttpRequest,
    as_error,
    encoded,
)

logger = logging.getLogger("penstock.http")


class HttpServer:
    """All connections of one listener or several, and the clock that they are judged by."""

    def __init__(self, handler: Handler, limits: HttpLimits | None = None) -> None:
        self.handler = handler
        self.limits = limits or HttpLimits()
        self.connections: set[HttpProtocol] = set()
        self.draining = False
        self.requests = 0
        self.refused = 0  # connections, for want of room
        self.cut_off = 0  # connections, for being slow
        self._date = (0, b"")
        self._sweeping: asyncio.TimerHandle | None = None

    def factory(self) -> HttpProtocol:
        """For ``loop.create_server``."""
        return HttpProtocol(self)

    def date(self) -> bytes:
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    def sweep(self) -> None:
        """Cut off who is too slow. Once a second, for all of them: no timer for each request."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [*self.connections]:
            connection.judge(now)
        self._sweeping = loop.call_later(1.0, self.sweep) if self.connections else None

    def joined(self, connection: HttpProtocol) -> None:
        self.connections.add(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(1.0, self.sweep)

    async def drain(self, grace: float) -> None:
        """Answer what is under way, take no more, and close. The listeners are closed already."""
        self.draining = True
        end = asyncio.get_running_loop().time() + grace
        for connection in [*self.connections]:
            connection.close_when_idle()
        while self.connections and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        for connection in [*self.connections]:
            connection.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None


class HttpProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._peer: str | None = None
        self._reading: HttpRequest | None = None  # not whole yet
        self._url = b""
        self._size = 0
        self._body: list[bytes] = []
        self._expects = False  # to be told to go on
        # Whole requests, in order; one that was refused has its answer with it.
        self._waiting: deque[tuple[HttpRequest, HttpAnswer | None]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._paused = False  # the peer does not read
        self._unread = 0
        self._stopped = False  # we do not read
        self._ending = False  # after what is under way
        self._closing = False  # now
        self._head: int | None = None  # bytes of it so far, while it is being read
        self._deadline = self._loop.time() + self._limits.idle_time

    # From the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        server = self._server
        if len(server.connections) >= self._limits.connections or server.draining:
            server.refused += 1
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else None
        server.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._transport = None
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._closing or self._transport is None:
            return
        reading = self._reading
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            if not self._closing:  # else it is one of our own refusals
                self._fail(as_error(400, f"not HTTP/1.1: {error}"))
        if self._head is not None and reading is not None and reading is self._reading:
            # All of it was of one head. The parser keeps a line until it ends, however long.
            self._head += len(data)
            if self._head > self._limits.url + self._limits.headers:
                self._fail(as_error(431, "too many headers, or too long ones"))
        self._flush()

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as wish:
                # Nobody has to follow it. The parser has stopped for good: take another.
                self._parser = httptools.HttpRequestParser(self)
                data = data[wish.args[0] :]

    def eof_received(self) -> bool:
        """Half-closed: answer what was asked, then close."""
        self.close_when_idle()
        return self._busy

    def pause_writing(self) -> None:
        self._paused = True
        self._unread = 0 if self._transport is None else self._transport.get_write_buffer_size()
        self._deadline = self._loop.time() + self._limits.write_time
        self._read_on()

    def resume_writing(self) -> None:
        self._paused = False
        self._rest()
        self._go_on()
        self._flush()

    # From the parser -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._reading = HttpRequest(self._peer)
        self._url = b""
        self._size = 0
        self._body = []
        self._expects = False
        self._head = 0
        self._deadline = self._loop.time() + self._limits.request_time

    def on_url(self, url: bytes) -> None:
        if self._reading is None:
            return  # it was refused, as in all that follows
        self._url += url
        if len(self._url) > self._limits.url:
            self._refuse(414, f"the URL is longer than {self._limits.url} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading is None:
            return
        self._size += len(name) + len(value)
        raw = self._reading.raw
        if self._size > self._limits.headers or len(raw) >= self._limits.header_count:
            self._refuse(431, "too many headers, or too long ones")
            return
        raw.append((name, value))
        if len(name) == 6 and name.lower() == b"expect":
            self._expects = True

    def on_headers_complete(self) -> None:
        request = self._reading
        self._head = None
        if request is None:
            return
        request.method = self._parser.get_method().decode("latin-1")
        request.version = self._parser.get_http_version()
        request.keep_alive = self._parser.should_keep_alive()
        path, _, query = self._url.partition(b"?")
        request.path, request.query = path.decode("latin-1"), query.decode("latin-1")
        self._size = 0
        if self._expects and request.version == "1.1":
            self._out.append(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._reading is None:
            return
        self._size += len(body)
        if self._size > self._limits.body:
            self._refuse(413, f"the body is longer than {self._limits.body} bytes")
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        request = self._reading
        self._reading = None
        if request is None or self._closing:
            return
        body = self._body
        request.body = body[0] if len(body) == 1 else b"".join(body)
        self._server.requests += 1
        if self._server.draining:
            request.keep_alive = False
        self._waiting.append((request, None))
        self._rest()
        self._go_on()

    # Answering -----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Answer what waits, until one takes its time."""
        while self._waiting and self._task is None and not self._paused and not self._closing:
            request, refusal = self._waiting.popleft()
            if refusal is not None:
                self._answer(request, refusal)
                continue
            try:
                answer: Any = self._server.handler(request)
            except Exception:
                logger.exception("%s %.200s failed", request.method, request.path)
                answer = as_error(500, "internal error")
            if isinstance(answer, HttpAnswer):
                self._answer(request, answer)
            else:
                self._task = self._loop.create_task(self._later(request, answer))
        self._read_on()

    async def _later(self, request: HttpRequest, waiting: Awaitable[HttpAnswer]) -> None:
        try:
            answer = await waiting
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("%s %.200s failed", request.method, request.path)
            answer = as_error(500, "internal error")
        self._task = None
        if self._transport is None:
            return
        self._answer(request, answer)
        self._rest()
        self._go_on()
        self._flush()

    def _answer(self, request: HttpRequest, answer: HttpAnswer) -> None:
        last = self._server.draining or (self._ending and not self._waiting)
        keep = request.keep_alive and not last
        self._out.append(encoded(answer, request, self._server.date(), keep))
        if not keep:
            self._closing = True
            self._waiting.clear()

    def _refuse(self, status: int, error: str) -> None:
        """The request that is being read is too much: say so, and read nothing more of it."""
        request = self._reading or HttpRequest(self._peer)
        request.keep_alive = False
        if self._task is None and not self._waiting:
            self._fail(as_error(status, error))
            return
        # What came before it is answered first.
        self._waiting.append((request, as_error(status, error)))
        self._reading = None
        self._stop_reading()

    def _fail(self, answer: HttpAnswer) -> None:
        request = self._reading or HttpRequest(self._peer)
        request.keep_alive = False
        self._reading = None
        if self._task is None and not self._waiting:
            self._answer(request, answer)
        else:
            self._waiting.append((request, answer))
            self._stop_reading()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            transport.write(data)
        if self._closing and self._task is None:
            transport.close()

    # How long, and how much ----------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return self._task is not None or bool(self._waiting) or bool(self._out)

    def _read_on(self) -> None:
        """Read, or not: it depends on how much is waiting to be answered, or to be read."""
        if self._paused or len(self._waiting) >= self._limits.pipeline:
            self._stop_reading()
        elif self._stopped and not self._closing and self._transport is not None:
            self._stopped = False
            self._transport.resume_reading()

    def _stop_reading(self) -> None:
        if not self._stopped and self._transport is not None:
            self._stopped = True
            self._transport.pause_reading()

    def _rest(self) -> None:
        """Nothing is owed by the peer but its next request."""
        self._deadline = self._loop.time() + self._limits.idle_time

    def judge(self, now: float) -> None:
        """Cut it off if it is too slow."""
        if now < self._deadline or self._transport is None:
            return
        if self._task is not None and not self._paused:
            return  # it is we who are slow
        if self._paused and self._transport.get_write_buffer_size() < self._unread:
            self.pause_writing()  # it reads, if slowly
            return
        self._server.cut_off += 1
        if self._reading is not None and not self._paused and not self._closing:
            self._fail(as_error(408, "the request did not come in time"))
            self._flush()
            return
        self._transport.abort()

    def close_when_idle(self) -> None:
        """Close after what is under way; at once if nothing is."""
        self._ending = True
        if not self._busy and self._reading is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
