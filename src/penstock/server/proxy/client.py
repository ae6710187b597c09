"""ClientConnection: a client's connection. Reads requests, and passes them on as they come.

A request that comes while another is under way waits, and while it waits nothing more is
read. A client that closes its side has left: as with most proxies, its request is taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections import deque
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, cast

import httptools

from penstock.server.proxy.exchange import Exchange
from penstock.server.proxy.framing import CHUNKED, NONE, BadMessage, Field
from penstock.server.proxy.limits import BODY_BITE, HEAD_BITE, LINGER
from penstock.server.proxy.request import ProxyRequest
from penstock.server.wires.http.messages import HttpRequest, as_error

if TYPE_CHECKING:
    from penstock.server.proxy.server import ProxyServer

logger = logging.getLogger("penstock.proxy")

NOTHING = memoryview(b"")


class ClientConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: ProxyServer) -> None:
        self.server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._peer: str | None = None
        self._scheme = "http"
        self.blocked = False  # the client does not read
        self._stopped = False  # we do not
        self._fields: list[Field] = []
        self._url = b""
        self._size = 0
        self._head: int | None = None  # bytes of it so far, while it is being read
        self._reading: Exchange | None = None  # the one whose body is being read
        self._current: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._refusal: BadMessage | None = None  # to be said when those are done
        self._muted = False  # the parser is being told what we know
        self._unread = NOTHING
        self._parsing = False
        self._pieces: list[bytes] = []  # of a body, since the last bite
        self._raw = False
        self._ending = False
        self._lingering = False
        self._backlog = 0
        self._deadline = self._loop.time() + self._limits.client.idle_time

    # From the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self.server.joined(self):
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else None
        if transport.get_extra_info("sslcontext") is not None:
            self._scheme = "https"

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.server.left(self)
        self._gone()

    def eof_received(self) -> bool:
        current = self._current
        if current is not None and current.tunnel:
            current.client_ended()
            return True
        self._gone()
        return False

    def _gone(self) -> None:
        current, self._current = self._current, None
        self._waiting.clear()
        if current is not None:
            current.gone()

    def pause_writing(self) -> None:
        self.blocked = True
        self._backlog = 2**62
        self._hold_link(True)

    def resume_writing(self) -> None:
        self.blocked = False
        self._rest()
        self._hold_link(False)

    def _hold_link(self, held: bool) -> None:
        if self._current is not None and self._current.link is not None:
            self._current.link.hold(held)

    def data_received(self, data: bytes) -> None:
        if self._lingering or self._refusal is not None or self._transport is None:
            return
        self._unread = memoryview(bytes(self._unread) + data) if self._unread else memoryview(data)
        self._parse()

    def _parse(self) -> None:
        """Read what has come, in bites: behind a request there may be a thousand more.

        While one waits for its turn, the rest is left as it is.
        """
        if self._parsing:
            return
        self._parsing = True
        try:
            while self._unread and not self._stop and self._refusal is None:
                if self._raw:
                    bite, self._unread = self._unread, NOTHING
                    if self._last is not None:
                        self._last.from_client(bytes(bite))
                    break
                size = self._bite()
                bite, self._unread = self._unread[:size], self._unread[size:]
                self._read(bite)
        finally:
            self._parsing = False
        if self._refusal is not None or self._lingering:
            self._unread = NOTHING
        if self._reading is not None:
            self._deadline = self._loop.time() + self._limits.body_time
        self.read_or_not()

    def _bite(self) -> int:
        if self._reading is None:
            return HEAD_BITE
        length = self._reading.request.length
        return BODY_BITE if length == CHUNKED else max(1, length - self._reading.received)

    def _read(self, bite: memoryview) -> None:
        try:
            if self._head is not None:
                # The parser keeps a line until it ends, however long that takes.
                self._head += len(bite)
                if self._head > self._limits.client.url + self._limits.client.headers:
                    raise BadMessage(431, "too many headers, or too long ones")
            self._feed(bite)
            self._pass_on()
        except BadMessage as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, BadMessage):
                logger.error("a request could not be read", exc_info=cause)
            found = cause if isinstance(cause, BadMessage) else BadMessage(400, str(error))
            self._refuse(found)

    def _feed(self, bite: memoryview) -> None:
        try:
            self._parser.feed_data(bite)
        except httptools.HttpParserUpgrade as upgrade:
            # It stops where the protocol would change.
            rest = bite[upgrade.args[0] :]
            self._unread = memoryview(bytes(rest) + bytes(self._unread))
            if self._raw:
                return
            # We go on in this one.
            self._parser = httptools.HttpRequestParser(self)
            if self._reading is not None:
                self._tell_parser(self._reading.request.length)

    def _pass_on(self) -> None:
        """What came of a body, in one piece, however small its chunks."""
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            if self._reading is not None:
                self._reading.body(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    @property
    def _last(self) -> Exchange | None:
        """The last one that was read."""
        return self._waiting[-1] if self._waiting else self._current

    def _tell_parser(self, length: int) -> None:
        """That it is in the middle of a request, with a body of which it knows nothing."""
        chunked = length == CHUNKED
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % length
        self._muted = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
        self._muted = False

    # From the parser -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._muted:
            return
        self._fields = []
        self._url = b""
        self._size = 0
        self._head = 0
        self._deadline = self._loop.time() + self._limits.client.request_time

    def on_url(self, url: bytes) -> None:
        if self._muted:
            return
        self._url += url
        if len(self._url) > self._limits.client.url:
            raise BadMessage(414, f"the URL is longer than {self._limits.client.url} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._muted:
            return
        limits = self._limits.client
        self._fields.append((name, value))
        self._size += len(name) + len(value)
        if self._size > limits.headers or len(self._fields) > limits.header_count:
            raise BadMessage(431, "too many headers, or too long ones")

    def on_headers_complete(self) -> None:
        if self._muted:
            return
        self._head = None
        parser = self._parser
        request = ProxyRequest(
            parser.get_method().decode("latin-1"),
            self._url,
            parser.get_http_version(),
            self._fields,
            self._peer,
            self._scheme,
        )
        self._fields = []  # what comes now are trailers
        self._size = 0
        if parser.should_upgrade():
            wanted = (request.header("upgrade") or "").strip().lower().encode("latin-1")
            if wanted in self._limits.upgrades and request.length == NONE:
                request.upgrade = wanted
                self._raw = True
        exchange = Exchange(self, request, parser.should_keep_alive())
        self._reading = exchange
        self.server.requests += 1
        self._waiting.append(exchange)
        self._go_on()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self._pass_on()
        reading = self._reading
        if reading is None:
            return
        if self._parser.should_upgrade() and reading.request.length != NONE:
            return  # the parser took it for the end
        self._reading = None
        reading.body_end(self._fields)

    # One after the other -------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            self._current.start()
        elif self._current is None and self._refusal is not None:
            refusal = self._refusal
            request = HttpRequest(self._peer)
            self.send([self.server.encoded(as_error(refusal.status, str(refusal)), request, False)])
            self._linger()
            return
        self.read_or_not()

    def over(self, exchange: Exchange) -> None:
        """It was answered; and read, or that comes now."""
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

    def _refuse(self, error: BadMessage) -> None:
        """Nothing more of what this client sends can be read."""
        self._refusal = error
        self._head = None
        reading, self._reading = self._reading, None
        if reading is not None:
            if reading is self._current:
                reading.broken(error)
                return
            self._waiting.remove(reading)
        self._go_on()

    @property
    def _stop(self) -> bool:
        """Whether there is no room for what comes."""
        if self._lingering:
            return False
        return bool(self._waiting) or (self._current is not None and self._current.full)

    def read_or_not(self) -> None:
        """Read, if there is room for what comes."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._parsing:
            return
        stop = self._stop
        if not stop and self._unread:
            self._loop.call_soon(self._parse)  # first what is here
            return
        if stop != self._stopped:
            self._stopped = stop
            if stop:
                transport.pause_reading()
            else:
                self._rest()
                transport.resume_reading()

    # Writing -------------------------------------------------------------------------------

    def send(self, pieces: list[bytes]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    def send_eof(self) -> None:
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """So that the client sees an error, where it would take the end for the end."""
        if self._transport is not None:
            socket = self._transport.get_extra_info("socket")
            with contextlib.suppress(OSError):  # a Unix socket has no such thing
                socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def _linger(self) -> None:
        """Close, after the client had time to read: what it still sends would reset it."""
        transport = self._transport
        if transport is None or self._lingering:
            return
        self._lingering = True
        self._waiting.clear()
        self._deadline = self._loop.time() + LINGER
        if transport.can_write_eof():
            transport.write_eof()
            self.read_or_not()
        else:
            transport.close()

    # How long ------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Nothing is owed by the client, but the rest of a body or its next request."""
        seconds = self._limits.client.idle_time if self._reading is None else self._limits.body_time
        self._deadline = self._loop.time() + seconds

    def judge(self, now: float) -> None:
        """Cut it off if it is too slow."""
        transport = self._transport
        if transport is None:
            return
        if self.blocked:
            left = transport.get_write_buffer_size()
            if left < self._backlog:
                self._backlog = left
                self._deadline = now + self._limits.client.write_time
            elif now > self._deadline:
                self._cut_off()
            return
        if now < self._deadline:
            return
        if self._lingering:
            self.abort()
        elif self._head is not None or (self._reading is not None and not self._stopped):
            self.server.cut_off += 1
            self._refuse(BadMessage(408, "the request did not come in time"))
        elif self._current is None:
            self.close()  # idle

    def _cut_off(self) -> None:
        self.server.cut_off += 1
        self.abort()

    def close_when_idle(self) -> None:
        """Close after what is under way; at once if nothing is."""
        self._ending = True
        if self._current is None and self._head is None:
            self.close()
