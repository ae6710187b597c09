"""HTTP/1.1: one connection, whole requests in, whole responses out, in order.

A handler returns a response or an awaitable. While it is awaited, further requests wait, and
when enough of them wait, the connection is not read: a peer can only queue up a bounded number.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import Any, cast

from penstock.wires.http.connections import Connections
from penstock.wires.http.framing import BadMessage
from penstock.wires.http.limits import HttpLimits
from penstock.wires.http.messages import (
    Handler,
    HttpRequest,
    HttpResponse,
    as_error,
    encoded,
)
from penstock.wires.http.pace import ReadingPace
from penstock.wires.http.reader import RequestReader

logger = logging.getLogger("penstock.http")


class HttpServer(Connections["HttpProtocol"]):
    """Serves ``handler`` on one or several listeners."""

    def __init__(self, handler: Handler, limits: HttpLimits | None = None) -> None:
        self.handler = handler
        self.limits = limits or HttpLimits()
        super().__init__(self.limits.connections)

    def factory(self) -> HttpProtocol:
        """The protocol factory for ``loop.create_server``."""
        return HttpProtocol(self)


class HttpProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(self, self._limits)
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self._owes_continue = False  # a client waits for 100 Continue
        # Whole requests, in order; a rejected one with its response.
        self._waiting: deque[tuple[HttpRequest, HttpResponse | None]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._paused = False  # the peer does not read
        self._stopped = False  # we do not read
        self._ending = False  # after the requests in progress
        self._failed = False  # further input cannot be read
        self._closing = False  # now
        self._reading_pace = ReadingPace(self._limits.least_rate)
        self._deadline = self._loop.time() + self._limits.idle_time

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    # From the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._server.joined(self):
            self._transport.abort()
            return
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        peer = transport.get_extra_info("peername")
        self._reader.peer = peer[0] if isinstance(peer, tuple) else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.left(self)
        self._transport = None
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._closing or self._failed or self._transport is None:
            return
        try:
            self._reader.feed(data)
        except BadMessage as error:
            if not self._closing:
                self._fail(error.status, str(error))
        self._flush()

    def eof_received(self) -> bool:
        """Half-closed: answer the requests so far, then close. TLS has no half-closed state."""
        self.close_when_idle()
        return self._busy and not self._is_tls

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None:
            now, period = self._loop.time(), self._limits.write_time
            self._reading_pace.start(self._transport, now, period)
        self._read_on()

    def resume_writing(self) -> None:
        self._paused = False
        self._rest()
        self._go_on()
        self._flush()

    # From the reader -----------------------------------------------------------------------

    def begun(self) -> None:
        self._deadline = self._loop.time() + self._limits.request_time

    def expected(self) -> None:
        self._owes_continue = True
        self._tell_to_go_on()

    def _tell_to_go_on(self) -> None:
        """Send 100 Continue once earlier requests are answered: it must not overtake them."""
        if self._owes_continue and self._task is None and not self._waiting:
            self._owes_continue = False
            self._out.append(b"HTTP/1.1 100 Continue\r\n\r\n")

    def whole(self, request: HttpRequest) -> None:
        if self._closing:
            return
        self._owes_continue = False
        self._server.requests += 1
        if self._server.draining:
            request.keep_alive = False
        self._waiting.append((request, None))
        self._rest()
        self._go_on()

    # Responding ----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Handle waiting requests until one has to be awaited."""
        while self._waiting and self._task is None and not self._paused and not self._closing:
            request, refusal = self._waiting.popleft()
            if refusal is not None:
                self._respond(request, refusal)
                continue
            try:
                response: Any = self._server.handler(request)
            except Exception:
                logger.exception("%s %.200s failed", request.method, request.path)
                response = as_error(500, "internal error")
            if isinstance(response, HttpResponse):
                self._respond(request, response)
            else:
                self._task = self._loop.create_task(self._later(request, response))
        if self._owes_continue:
            self._tell_to_go_on()
        self._read_on()

    async def _later(self, request: HttpRequest, waiting: Awaitable[HttpResponse]) -> None:
        try:
            response = await waiting
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("%s %.200s failed", request.method, request.path)
            response = as_error(500, "internal error")
        self._task = None
        if self._transport is None:
            return
        self._respond(request, response)
        self._rest()
        self._go_on()
        self._flush()

    def _respond(self, request: HttpRequest, response: HttpResponse) -> None:
        last = self._server.draining or (self._ending and not self._waiting)
        keep = request.keep_alive and not last
        self._out.append(encoded(response, request, self._server.date(), keep))
        if not keep:
            self._closing = True
            self._waiting.clear()

    def _fail(self, status: int, error: str) -> None:
        """Input is invalid: answer earlier requests, then send the error, and close."""
        request = self._reader.reading or HttpRequest(self._reader.peer)
        request.keep_alive = False
        self._reader.reading = None
        self._failed = True
        response = as_error(status, error)
        if self._task is None and not self._waiting:
            self._respond(request, response)
        else:
            self._waiting.append((request, response))
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

    # Flow control and time-outs ------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return self._task is not None or bool(self._waiting) or bool(self._out)

    def _read_on(self) -> None:
        """Read or pause, depending on how much waits to be answered or sent."""
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
        """Wait for the next request of the peer."""
        self._deadline = self._loop.time() + self._limits.idle_time

    def judge(self, now: float) -> None:
        """Close the connection if it is too slow."""
        transport = self._transport
        if transport is None:
            return
        if self._paused:
            if self._reading_pace.is_late(transport, now):
                self._server.cut_off += 1
                transport.abort()
            return
        if now < self._deadline or self._task is not None:  # the peer is not late, or we are
            return
        self._server.cut_off += 1
        if self._reader.reading is not None and not self._closing:
            self._fail(408, "the request was not received in time")
            self._flush()
            return
        transport.abort()

    def close_when_idle(self) -> None:
        """Close after the requests in progress."""
        self._ending = True
        if not self._busy and self._reader.reading is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
