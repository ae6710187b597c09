"""One connection as an asyncio protocol: bytes between a transport and a session, and time-outs.

Sending has its own back-pressure: while the transport is full nothing is pulled from the
session, and its queue is bounded; beyond that bound nothing more is read from the peer. Once a
second each connection is checked for peers that have not sent a preface, are silent, do not
read, or are idle.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from penstock.clock import Clock
from penstock.durations import SECOND
from penstock.wires.grpc.h2._nghttp2 import Session, Wire
from penstock.wires.grpc.h2.bidi import BidiStreams
from penstock.wires.grpc.h2.calls import Calls
from penstock.wires.grpc.h2.limits import Limits

TICK = 1.0  # seconds
FULL = 64 * 1024  # the most that the session returns at once
WRITE_BUFFER = 128 * 1024

HTTP_1_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ")
HTTP_1_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n"
    b"content-length: 44\r\n\r\nThis port speaks gRPC (HTTP/2), not HTTP/1.\n"
)


class Server(Protocol):
    """What the connections of a server share. ``slow`` counts the peers that were too slow."""

    limits: Limits
    clock: Clock
    wire: Wire
    slow: int

    def enter(self, protocol: H2Protocol) -> bool: ...
    def left(self, protocol: H2Protocol) -> None: ...


class H2Protocol(asyncio.Protocol):
    """Created by `H2Server.factory` for every connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits = server.limits
        self._now = server.clock.now
        self._born = self._heard = self._now()
        self._pinged = 0  # when, and 0 for not
        self._session: Session | None = None  # created with the first bytes: many send none
        self._calls: Calls | None = None
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._full_since = 0  # since when the transport is full; 0 if it is not
        self._reading = True
        self._flushing = False
        self._flush_planned = False
        self._idle_ticks = 0  # since the peer was told to go away for being idle
        self._gone_by = 0  # closes then; ignores everything until then

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's class has all methods of Transport but does not inherit from it.
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
        """The transport closes itself: a peer that sends no more cannot end its streams."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._calls is not None:
            self._calls.close()
            self._calls.bidi.close()
        if self._session is not None:
            self._session.close()
        self._session = self._calls = None
        self._gone_by = self._gone_by or self._born
        self._server.left(self)

    # Reading and writing

    def _begin(self) -> Session:
        bidi = BidiStreams(self._transport, self._flush_soon, self._now)
        self._calls = Calls(self._flush_soon, bidi)
        session = Session(self._server.wire, self._calls)
        self._session = self._calls.session = bidi.session = session
        return session

    def flush(self) -> None:
        """Send pending data, as far as the transport accepts it."""
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
        """Send once for all responses of this iteration of the loop."""
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_planned = False
        self.flush()

    def _linger(self) -> None:
        """Close after a delay, so that the peer can read the last data: a reset discards it."""
        self._gone_by = self._now() + int(self._limits.linger_seconds * SECOND)
        if not self._transport.can_write_eof():
            self._close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the peer is gone, but the loop has not noticed yet
            self._transport.abort()
            return
        if not self._reading:
            self._transport.resume_reading()

    def _close(self) -> None:
        # Only once: asyncio's TLS transport cannot be aborted twice.
        if not self._transport.is_closing():
            self._transport.close()

    # Closing

    @property
    def transport(self) -> asyncio.BaseTransport:
        return self._transport

    @property
    def open(self) -> int:
        """The number of open streams."""
        return 0 if self._session is None else self._session.open

    def warn(self) -> None:
        """Ask the peer to open another connection; requests sent until then are answered."""
        if self._session is None:
            self._close()
        else:
            self._session.warn()
            if self._calls is not None:
                self._calls.bidi.leave()
            self.flush()

    def leave(self) -> None:
        """Accept no more streams; the connection closes when all open ones are answered."""
        if self._session is None:
            self._close()
        else:
            self._session.leave()
            self.flush()

    def stop(self) -> None:
        """Close now; calls in progress end with UNAVAILABLE."""
        if self._calls is not None:
            self._calls.stop()
            self.flush()
        self._close()

    def abort(self) -> None:
        self._transport.abort()

    # Time-outs

    def _tick_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._tick_later()
        self.look()

    def look(self) -> None:
        """Close the connection if the peer is too slow. Called once a second."""
        limits, now, session = self._limits, self._now(), self._session
        if self._gone_by:
            if now >= self._gone_by:
                self._transport.abort()
            return
        if self._is_late(now):
            self._server.slow += 1
            self._transport.abort()
            return
        if session is None or not session.greeted:
            return
        silent = not self._full_since and self._heard >= self._pinged
        if silent and self._is_over(self._heard, limits.keepalive_seconds, now):
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

    def _is_late(self, now: int) -> bool:
        """Whether the peer has not sent a preface, does not read, or does not answer a PING."""
        limits = self._limits
        if self._session is None or not self._session.greeted:
            return self._is_over(self._born, limits.handshake_seconds, now)
        if self._full_since:
            return self._is_over(self._full_since, limits.stall_seconds, now)
        asked = 0 if self._calls is None else self._calls.bidi.asked
        if asked and self._is_over(asked, limits.keepalive_timeout, now):
            return True
        waits = self._heard < self._pinged
        return waits and self._is_over(self._pinged, limits.keepalive_timeout, now)

    @staticmethod
    def _is_over(since: int, seconds: float, now: int) -> bool:
        return now - since > seconds * SECOND
