"""ClientConnection: a client's connection, and its exchanges, one after the other.

A request that arrives during another one waits, and meanwhile nothing more is read. A client
that closes its side has disconnected: as in most proxies, its request is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from socket import SO_LINGER, SOL_SOCKET
from typing import cast

from penstock.proxy.base import ProxyBase
from penstock.proxy.exchange import Exchange
from penstock.proxy.limits import LINGER
from penstock.proxy.reader import RequestReader
from penstock.proxy.request import ProxyRequest
from penstock.wires.http.framing import BadMessage
from penstock.wires.http.messages import HttpRequest, as_error
from penstock.wires.http.pace import ReadingPace


class ClientConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: ProxyBase) -> None:
        self.server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(self, server.limits)
        self._transport: asyncio.Transport | None = None
        self.peer: str | None = None
        self.scheme = "http"
        self.blocked = False  # the client does not read
        self._paused = False  # we do not
        self._current: Exchange | None = None
        self.waiting: deque[Exchange] = deque()
        self._refusal: BadMessage | None = None  # sent when those are done
        self._ending = False
        self._lingering = False
        self._reading_pace = ReadingPace(server.limits.client.least_rate)

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    # From the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self.server.joined(self):
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else None
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.server.left(self)
        self._gone()

    def eof_received(self) -> bool:
        current = self._current
        if current is not None and current.tunnel:
            current.client_ended()
            return self.scheme == "http"  # TLS has no half-closed state
        self._gone()
        return False

    def _gone(self) -> None:
        current, self._current = self._current, None
        self.waiting.clear()
        self._reader.close()
        if current is not None:
            current.gone()

    def data_received(self, data: bytes) -> None:
        self._reader.put(data)
        self.read_or_not()

    def pause_writing(self) -> None:
        self.blocked = True
        if self._transport is not None:
            now, period = self._loop.time(), self._limits.client.write_time
            self._reading_pace.start(self._transport, now, period)
        self._hold_upstream(True)

    def resume_writing(self) -> None:
        self.blocked = False
        self._rest()
        self._hold_upstream(False)

    def _hold_upstream(self, held: bool) -> None:
        if self._current is not None and self._current.upstream is not None:
            self._current.upstream.hold(held)

    # From the reader -----------------------------------------------------------------------

    def begun(self, request: ProxyRequest, keeps: bool) -> Exchange:
        exchange = Exchange(self, request, keeps)
        self.server.requests += 1
        self.waiting.append(exchange)
        self._go_on()
        return exchange

    def refused(self, error: BadMessage) -> None:
        """Nothing more from this client can be read."""
        self._refusal = error
        broken = self._reader.body_of
        self._reader.close()
        if broken is not None:
            if broken is self._current:
                broken.broken(error)
                return
            self.waiting.remove(broken)
        self._go_on()

    @property
    def stops(self) -> bool:
        if self._lingering:
            return False
        return bool(self.waiting) or (self._current is not None and self._current.full)

    def read_or_not(self) -> None:
        """Read, if there is room for more."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        stops = self.stops
        if not stops and self._reader.unread:
            self._loop.call_soon(self._read_on)  # first what was received
        elif stops != self._paused:
            self._paused = stops
            if stops:
                transport.pause_reading()
            else:
                self._rest()
                transport.resume_reading()

    def _read_on(self) -> None:
        if self._transport is not None and self._reader.unread:
            self._reader.read()
            self.read_or_not()

    # One after the other -------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._current is None and self.waiting:
            self._current = self.waiting.popleft()
            self._current.start()
        elif self._current is None and self._refusal is not None:
            answer = as_error(self._refusal.status, str(self._refusal))
            self.send([self.server.encoded(answer, HttpRequest(self.peer), False)])
            self._linger()
            return
        self.read_or_not()

    def over(self, exchange: Exchange) -> None:
        """An exchange was answered; its request was read, or is now."""
        if exchange is not self._current:
            return
        if not exchange.keeps or self._ending:
            self._current = None
            if exchange.request_done and self._refusal is None:
                self.close()
            else:
                self._linger()
        elif exchange.request_done:
            self._current = None
            self._rest()
            self._go_on()
        elif not exchange.rest_is_short():
            self._current = None
            self._linger()
        else:
            self.read_or_not()

    # Writing -------------------------------------------------------------------------------

    def send(self, pieces: list[bytes]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    def send_eof(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """Reset the connection: the client must not take this end for the end of the response."""
        if self._transport is not None:
            socket = self._transport.get_extra_info("socket")
            with contextlib.suppress(OSError):  # Unix sockets have no such option
                socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def _linger(self) -> None:
        """Close after a delay, so that the client can read: its further data causes a reset."""
        transport = self._transport
        if transport is None or self._lingering or transport.is_closing():
            return
        self._lingering = True
        self.waiting.clear()
        self._reader.close()
        self._reader.deadline = self._loop.time() + LINGER
        if transport.can_write_eof():
            transport.write_eof()
            self.read_or_not()
        else:
            transport.close()

    # Time-outs -----------------------------------------------------------------------------

    def _rest(self) -> None:
        """Wait for the rest of a body or for the next request."""
        reader, limits, now = self._reader, self._limits, self._loop.time()
        reader.deadline = now + limits.client.idle_time
        reader.pace.start(now, limits.body_time)

    def judge(self, now: float) -> None:
        """Close the connection if it is too slow."""
        transport, reader = self._transport, self._reader
        if transport is None:
            return
        if self.blocked:
            if self._reading_pace.is_late(transport, now):
                self.server.cut_off += 1
                self.abort()
            return
        if reader.body_of is not None:
            if not self._paused and reader.pace.is_late(now):
                self._too_slow()
        elif now < reader.deadline:
            return
        elif self._lingering:
            self.abort()
        elif reader.in_head:
            self._too_slow()
        elif self._current is None:
            self.close()  # idle

    def _too_slow(self) -> None:
        self.server.cut_off += 1
        self.refused(BadMessage(408, "the request was not received in time"))

    def close_when_idle(self) -> None:
        """Close after the exchanges in progress."""
        self._ending = True
        if self._current is None and not self._reader.in_head:
            self.close()
