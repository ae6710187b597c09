"""RequestReader: from the bytes of a connection to whole requests.

Whatever a client sends is bounded, also what no callback of the parser tells of until a line is
over: the head, chunk extensions and trailers, blank lines between two requests.
"""

from __future__ import annotations

from typing import Protocol

import httptools

from penstock.server.wires.http.framing import (
    AROUND_A_CHUNK,
    MOST_BLANK,
    NONE,
    BadMessage,
    check_host,
    check_version,
    made_up_head,
    request_length,
)
from penstock.server.wires.http.limits import HttpLimits
from penstock.server.wires.http.messages import HttpRequest

# Of names that are looked at.
_LENGTHS = frozenset({len("host"), len("expect"), len("content-length")})


class Owner(Protocol):
    """The connection that is read from."""

    def begun(self) -> None:
        """The first byte of a request is here."""

    def expected(self) -> None:
        """The client waits to be told to go on with the body."""

    def whole(self, request: HttpRequest) -> None:
        """A request is complete."""


class RequestReader:
    """Reads one connection. ``reading`` is the request that is not whole yet."""

    def __init__(self, owner: Owner, limits: HttpLimits) -> None:
        self._owner = owner
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self.peer: str | None = None
        self.reading: HttpRequest | None = None
        self._muted = False  # the parser is being told what we know
        self._begun = False  # a request, in this bite
        self._blank = 0
        self._url = b""
        self._in_head = False
        self._hosts: list[bytes] = []
        self._host = b""  # the last one that was looked at, and was fine
        self._expects = False
        self._size = 0  # bytes of header fields, then of the body
        self._lines = 0  # bytes of a head whose lines are not whole, or of a body's framing
        self._trailers = 0
        self._length = NONE  # of a body that the parser does not know of
        self._pieces = 0  # of the body
        self._body: bytes | bytearray = b""

    def feed(self, data: bytes) -> None:
        """What has come. `BadMessage`: nothing more can be read."""
        before, in_head, size = self.reading, self._in_head, self._size
        self._begun = False
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is None:
                raise BadMessage(400, f"not HTTP/1.1: {error}") from None
            raise cause from None
        if before is not None and before is self.reading and in_head is self._in_head:
            self._measure(len(data), size)
        elif before is None and not self._begun:
            self._blank += len(data)
            if self._blank > MOST_BLANK:
                raise BadMessage(400, "empty lines, and no request")

    def _measure(self, came: int, size: int) -> None:
        """All that came was of one head, or of one body. A line is kept until it ends."""
        limits = self._limits
        if self._in_head:
            self._lines += came
            if self._lines > limits.url + limits.headers:
                raise BadMessage(431, "too many headers, or too long ones")
        else:
            self._lines += came - (self._size - size)
            if self._lines > limits.headers + AROUND_A_CHUNK * self._pieces:
                raise BadMessage(431, "the trailers are too long, or the chunk extensions")

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as wish:
                # Nobody has to follow it: what comes is a body, or the next request. The parser
                # has stopped for good, so take another.
                data = data[wish.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
                if self._length != NONE:
                    self._muted = True
                    self._parser.feed_data(made_up_head(self._length))
                    self._muted = False
                    self._length = NONE

    # From the parser -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._muted:
            return
        self.reading = HttpRequest(self.peer)
        self._begun = self._in_head = True
        self._url = b""
        self._hosts = []
        self._expects = False
        self._size = self._lines = self._trailers = self._blank = self._pieces = 0
        self._body = b""
        self._owner.begun()

    def on_url(self, url: bytes) -> None:
        if self._muted:
            return
        self._url += url
        if len(self._url) > self._limits.url:
            raise BadMessage(414, f"the URL is longer than {self._limits.url} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._muted or self.reading is None:
            return
        if not self._in_head:
            # Trailers are read and forgotten: nobody asked for them, and as headers they would
            # say things after the fact.
            self._trailers += 1
            if self._trailers > self._limits.header_count:
                raise BadMessage(431, "too many trailers")
            return
        self._size += len(name) + len(value)
        raw = self.reading.raw
        if self._size > self._limits.headers or len(raw) >= self._limits.header_count:
            raise BadMessage(431, "too many headers, or too long ones")
        raw.append((name, value))
        if len(name) in _LENGTHS:
            self._notice(name.lower(), value)

    def _notice(self, name: bytes, value: bytes) -> None:
        """Fields that say how to go on."""
        if name == b"host":
            self._hosts.append(value)
        elif name == b"expect":
            if value.lower() != b"100-continue":
                raise BadMessage(417, "the only thing to expect is 100-continue")
            self._expects = True
        elif name == b"content-length" and value.isdigit():
            self._check_size(int(value))

    def on_headers_complete(self) -> None:
        request = self.reading
        if self._muted or request is None:
            return
        parser = self._parser
        request.version = version = parser.get_http_version()
        check_version(version)
        if len(self._hosts) != 1 or self._hosts[0] != self._host:
            check_host(version, self._hosts)
            self._host = self._hosts[0] if self._hosts else b""
        request.method = parser.get_method().decode("latin-1")
        request.keep_alive = parser.should_keep_alive()
        path, _, query = self._url.partition(b"?")
        request.path, request.query = path.decode("latin-1"), query.decode("latin-1")
        self._in_head = False
        self._size = self._lines = 0
        if parser.should_upgrade():
            if request.method == "CONNECT":
                raise BadMessage(405, "CONNECT is for proxies")
            # The parser takes the end of the head for the end of the request.
            self._length = request_length(version, request.raw)
        has_body = self._expects and request_length(version, request.raw) != NONE
        if has_body and version == "1.1":
            self._owner.expected()

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        self._check_size(self._size)
        self._pieces += 1
        if self._pieces == 1:
            self._body = body
        else:
            if self._pieces == 2:
                self._body = bytearray(self._body)
            self._body += body

    def _check_size(self, size: int) -> None:
        if size > self._limits.body:
            raise BadMessage(413, f"the body is longer than {self._limits.body} bytes")

    def on_message_complete(self) -> None:
        request = self.reading
        if request is None or self._length != NONE:
            return
        self.reading = None
        request.body = bytes(self._body)  # the same one, if it came in one piece
        self._owner.whole(request)
