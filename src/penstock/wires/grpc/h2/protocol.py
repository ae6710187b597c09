"""One connection as asyncio sees it: bytes between a transport and a session, and patience.

Sending has a back-pressure of its own: while the transport is full nothing is pulled from
the session, and what waits there is bounded; beyond that bound nothing more is read from
this peer. Once a second the connection looks at itself: who has not said hello, who is
silent, who does not read, who has been idle.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from penstock.durations import SECOND
from penstock.wires.grpc.h2._nghttp2 import Session
from penstock.wires.grpc.h2.calls import Calls

if TYPE_CHECKING:
    from penstock.wires.grpc.h2.server import H2Server

TICK = 1.0  # seconds
FULL = 64 * 1024  # what the session gives at once, if it has so much
WRITE_BUFFER = 128 * 1024

HTTP_1_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ")
HTTP_1_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n"
    b"content-length: 44\r\n\r\nThis port speaks gRPC (HTTP/2), not HTTP/1.\n"
)


class H2Protocol(asyncio.Protocol):
    """Made by `H2Server.factory`, once for every connection."""

    def __init__(self, server: H2Server) -> None:
        self._server = server
        self._limits = server.limits
        self._now = server.clock.now
        self._born = self._heard = self._now()
        self._pinged = 0  # when, and 0 for not
        self._session: Session | None = None  # made with the first bytes: many never send any
        self._calls: Calls | None = None
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._full_since = 0  # since when the transport takes no more, and 0 when it does
        self._reading = True
        self._flushing = False
        self._flush_planned = False
        self._idle_ticks = 0  # since the peer was told that it is idle
        self._gone_by = 0  # lingers until then, and takes nothing more

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's has all of a Transport's methods and is none.
        self._transport = transport = cast(asyncio.Transport, transport)
        if not self._server.enter(self):
            self._gone_by = self._born
            transport.close()
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._tick_later()

    def data_received(self, data: bytes) -> None:
        if self._gone_by:
            return
        self._heard = now = self._now()
        session = self._session or self._begin()
        session.feed(data, now)
        if session.foreign and data.startswith(HTTP_1_METHODS):
            self._transport.write(HTTP_1_ANSWER)
            self._linger()
            return
        self.flush()

    def pause_writing(self) -> None:
        self._full_since = self._now()

    def resume_writing(self) -> None:
        self._full_since = 0
        self.flush()

    def eof_received(self) -> None:
        """The transport closes itself: a peer that sends no more cannot end a stream, either."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._calls is not None:
            self._calls.close()
        if self._session is not None:
            self._session.close()
        self._session = self._calls = None
        self._gone_by = self._gone_by or self._born
        self._server.left(self)

    # Going in and out

    def _begin(self) -> Session:
        self._calls = Calls(self._flush_soon)
        self._session = self._calls.session = Session(self._server.wire, self._calls)
        return self._session

    def flush(self) -> None:
        """Send what is there to be sent, as far as the transport takes it."""
        session, transport = self._session, self._transport
        if session is None or self._flushing or self._gone_by or transport.is_closing():
            return
        self._flushing = True
        try:
            while True:
                while not self._full_since:
                    chunk = session.pending()
                    if chunk:
                        transport.write(chunk)
                    if len(chunk) < FULL:
                        break
                if not session.tend():
                    break
        finally:
            self._flushing = False
        if session.done:
            self._linger()
        elif self._full_since:
            if self._reading and session.backlog > self._limits.queued_bytes:
                self._reading = False
                transport.pause_reading()
        elif not self._reading:
            self._reading = True
            transport.resume_reading()

    def _flush_soon(self) -> None:
        """Once for all answers that come in this turn of the loop."""
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_planned = False
        self.flush()

    def _linger(self) -> None:
        """Close, but let the peer read our last words: a reset would take them from it."""
        self._gone_by = self._now() + int(self._limits.linger_seconds * SECOND)
        if not self._transport.can_write_eof():
            self._close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the peer is gone, and the loop has not seen it yet
            self._transport.abort()
            return
        if not self._reading:
            self._transport.resume_reading()

    def _close(self) -> None:
        # Once: asyncio's TLS transport cannot be aborted after a second time.
        if not self._transport.is_closing():
            self._transport.close()

    # Going away

    @property
    def transport(self) -> asyncio.BaseTransport:
        return self._transport

    @property
    def open(self) -> int:
        """Streams that are open."""
        return 0 if self._session is None else self._session.open

    def warn(self) -> None:
        """Ask the peer to go elsewhere; what it has sent by then is still answered."""
        if self._session is None:
            self._close()
        else:
            self._session.warn()
            self.flush()

    def leave(self) -> None:
        """Take no more; the connection closes when all that is open has been answered."""
        if self._session is None:
            self._close()
        else:
            self._session.leave()
            self.flush()

    def stop(self) -> None:
        """Close now; calls that are still at work end with UNAVAILABLE."""
        if self._calls is not None:
            self._calls.stop()
            self.flush()
        self._close()

    def abort(self) -> None:
        self._transport.abort()

    # Patience

    def _tick_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._tick_later()
        self.look()

    def look(self) -> None:
        """Whether the peer still deserves our patience. Once a second."""
        limits, now, session = self._limits, self._now(), self._session
        if self._gone_by:
            if now >= self._gone_by:
                self._transport.abort()
            return
        if session is None or not session.greeted:
            if self._is_over(self._born, limits.handshake_seconds, now):
                self._server.slow += 1
                self._transport.abort()
            return
        if self._full_since:
            if self._is_over(self._full_since, limits.stall_seconds, now):
                self._server.slow += 1
                self._transport.abort()
                return
        elif self._heard < self._pinged:
            if self._is_over(self._pinged, limits.keepalive_timeout, now):
                self._server.slow += 1
                self._transport.abort()
                return
        elif self._is_over(self._heard, limits.keepalive_seconds, now):
            self._pinged = now
            session.ping()
        session.sweep(now)
        if self._idle_ticks:
            self._idle_ticks += 1
            if self._idle_ticks == 2:
                session.leave()
        elif session.open == 0 and self._is_over(session.used, limits.idle_seconds, now):
            self._idle_ticks = 1
            session.warn()
        self.flush()

    @staticmethod
    def _is_over(since: int, seconds: float, now: int) -> bool:
        return now - since > seconds * SECOND
