"""RequestReader: parses the bytes of a client's connection into requests, as they arrive.

Received data is parsed in portions, because a request may be followed by a thousand more: while
one of them waits, the rest stays unparsed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import httptools

from penstock.proxy.exchange import Exchange
from penstock.proxy.limits import BODY_BITE, HEAD_BITE, ProxyLimits
from penstock.proxy.request import ProxyRequest
from penstock.wires.http.framing import (
    AROUND_A_CHUNK,
    CHUNKED,
    MOST_BLANK,
    NONE,
    BadMessage,
    Field,
    resumed_parser,
)
from penstock.wires.http.pace import Pace

logger = logging.getLogger("penstock.proxy")

NOTHING = memoryview(b"")


class Owner(Protocol):
    """The connection that owns the reader."""

    peer: str | None
    scheme: str

    @property
    def stops(self) -> bool:
        """Whether there is no room for more."""

    def begun(self, request: ProxyRequest, keeps: bool) -> Exchange:
        """The head of a request is complete."""

    def refused(self, error: BadMessage) -> None:
        """Nothing more can be read."""


class RequestReader:
    """Reads one connection.

    ``body_of`` is the exchange whose body is being read, ``in_head`` says that a head is, and
    ``raw`` that what follows is not HTTP: it goes to ``last``, the last exchange.
    """

    def __init__(self, owner: Owner, limits: ProxyLimits) -> None:
        self._owner = owner
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self.body_of: Exchange | None = None
        self.last: Exchange | None = None
        self.raw = False
        self.closed = False
        self.deadline = self._loop.time() + limits.client.idle_time
        self.unread = NOTHING
        self._busy = False
        self._fields: list[Field] = []
        self._url = b""
        self._size = 0
        self._head: int | None = None  # bytes of it so far, while it is being read
        self._blank = 0  # bytes of empty lines, since the last request
        self._body = 0  # bytes of a body, the number of pieces,
        self._count = 0
        self._lines = 0  # and bytes of its framing: chunk sizes, extensions, trailers
        self.pace = Pace(limits.client.least_rate)  # of a body
        self._pieces: list[bytes] = []  # of a body, since the last portion

    @property
    def in_head(self) -> bool:
        return self._head is not None

    def close(self) -> None:
        """Ignore all further data."""
        self.closed = True
        self.unread = NOTHING
        self._head = None
        self.body_of = None

    def put(self, data: bytes) -> None:
        """Add received data."""
        if not self.closed:
            self.unread = memoryview(bytes(self.unread) + data) if self.unread else memoryview(data)
            self.read()

    def read(self) -> None:
        """Parse as far as there is room for it."""
        if self._busy:
            return
        self._busy = True
        try:
            while self.unread and not self._owner.stops and not self.closed:
                if self.raw:
                    bite, self.unread = self.unread, NOTHING
                    if self.last is not None:
                        self.last.from_client(bytes(bite))
                    break
                size = self._bite()
                bite, self.unread = self.unread[:size], self.unread[size:]
                self._read(bite)
        finally:
            self._busy = False

    def _bite(self) -> int:
        if self.body_of is None:
            return HEAD_BITE
        length = self.body_of.request.length
        return BODY_BITE if length == CHUNKED else max(1, length - self.body_of.received)

    def _read(self, bite: memoryview) -> None:
        try:
            if self._head is not None:
                # The parser buffers a line until it ends, however long that is.
                self._head += len(bite)
                if self._head > self._limits.client.url + self._limits.client.headers:
                    raise BadMessage(431, "the headers are too many or too long")
            before, body, last = self.body_of, self._body, self.last
            self._feed(bite)
            if before is not None and before is self.body_of:
                self._measure(len(bite), self._body - body)
            elif self._head is None and last is self.last and before is None:
                self._blank += len(bite)
                if self._blank > MOST_BLANK:
                    raise BadMessage(400, "too many empty lines before a request")
            self._pass_on()
        except BadMessage as error:
            self._owner.refused(error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, BadMessage):
                logger.error("a request could not be read", exc_info=cause)
            bad = cause if isinstance(cause, BadMessage) else BadMessage(400, str(error))
            self._owner.refused(bad)

    def _measure(self, came: int, body: int) -> None:
        """Bound the framing of a body: all of this data belongs to one."""
        self.pace.moved(body)
        self._lines += came - body
        if self._lines > self._limits.client.headers + AROUND_A_CHUNK * self._count:
            raise BadMessage(431, "the trailers or chunk extensions are too long")

    def _feed(self, bite: memoryview) -> None:
        try:
            self._parser.feed_data(bite)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser stops where the protocol would change.
            self.unread = memoryview(bytes(bite[upgrade.args[0] :]) + bytes(self.unread))
            if self.raw:
                return
            # We continue with HTTP.
            length = NONE if self.body_of is None else self.body_of.request.length
            self._parser = resumed_parser(self, length)

    def _pass_on(self) -> None:
        """Pass on the received part of a body, in one piece, however small its chunks."""
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            if self.body_of is not None:
                self.body_of.body(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    # From the parser -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._fields = []
        self._url = b""
        self._size = 0
        self._head = self._blank = 0
        self.deadline = self._loop.time() + self._limits.client.request_time

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > self._limits.client.url:
            raise BadMessage(414, f"the URL is longer than {self._limits.client.url} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        limits = self._limits.client
        self._fields.append((name, value))
        self._size += len(name) + len(value)
        if self._size > limits.headers or len(self._fields) > limits.header_count:
            raise BadMessage(431, "the headers are too many or too long")

    def on_headers_complete(self) -> None:
        self._head = None
        parser, owner = self._parser, self._owner
        method = parser.get_method().decode("latin-1")
        version = parser.get_http_version()
        request = ProxyRequest(method, self._url, version, self._fields, owner.peer, owner.scheme)
        self._fields = []  # trailers follow
        self._size = self._body = self._count = self._lines = 0
        self.pace.start(self._loop.time(), self._limits.body_time)
        if parser.should_upgrade():
            wanted = (request.header("upgrade") or "").strip().lower().encode("latin-1")
            if wanted in self._limits.upgrades and request.length == NONE:
                request.upgrade = wanted
                self.raw = True
        self.body_of = self.last = owner.begun(request, parser.should_keep_alive())

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._body += len(piece)
        self._count += 1

    def on_message_complete(self) -> None:
        self._pass_on()
        exchange = self.body_of
        if exchange is None:
            return
        if self._parser.should_upgrade() and exchange.request.length != NONE:
            return  # the parser treated it as the end
        self.body_of = None
        exchange.body_end()
