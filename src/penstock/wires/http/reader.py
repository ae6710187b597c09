"""RequestReader: from the bytes of a connection to whole requests.

Everything that a client sends is bounded, including what the parser reports only at the end of a
line: the head, chunk extensions and trailers, and empty lines between two requests.
"""

from __future__ import annotations

from typing import Protocol

import httptools

from penstock.wires.http.framing import (
    AROUND_A_CHUNK,
    MOST_BLANK,
    NONE,
    BadMessage,
    check_host,
    check_version,
    request_length,
    resumed_parser,
)
from penstock.wires.http.limits import HttpLimits
from penstock.wires.http.messages import HttpRequest


class Owner(Protocol):
    """The connection that is read from."""

    def begun(self) -> None:
        """The first byte of a request was received."""

    def expected(self) -> None:
        """The client waits for 100 Continue."""

    def whole(self, request: HttpRequest) -> None:
        """A request is complete."""


class RequestReader:
    """Reads one connection. ``reading`` is the incomplete request."""

    def __init__(self, owner: Owner, limits: HttpLimits) -> None:
        self._owner = owner
        self._limits = limits
        self._digits = len(str(limits.body))
        self._parser = httptools.HttpRequestParser(self)
        self.peer: str | None = None
        self.reading: HttpRequest | None = None
        self._begun = False  # a request began in this read
        self._ended = False  # by a request that closes the connection
        self._blank = 0
        self._url = b""
        self._in_head = False
        self._hosts = 0
        self._host = b""  # the last complete request
        self._expects = False
        self._size = 0  # bytes of the header fields, then of the body
        self._lines = 0  # bytes of incomplete lines of the head, or of the framing of the body
        self._trailers = 0
        self._length = NONE  # left of a body that the parser does not know of
        self._pieces = 0  # of the body
        self._body: bytes | bytearray = b""

    def feed(self, data: bytes) -> None:
        """Read received data. After `BadMessage` nothing more can be read."""
        before, in_head, size = self.reading, self._in_head, self._size
        self._begun = False
        upgrade: int | None = None
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as wish:
                upgrade = wish.args[0]
            if upgrade is not None:
                self._read_on(data[upgrade:])
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is None:
                raise BadMessage(400, f"not HTTP/1.1: {error}") from None
            raise cause from None
        if before is None:
            if not self._begun:
                self._blank += len(data)
                if self._blank > MOST_BLANK:
                    raise BadMessage(400, "too many empty lines before a request")
        elif before is self.reading and in_head is self._in_head:
            self._measure(len(data), size)

    def _measure(self, came: int, size: int) -> None:
        """Bound the data of one head or body: the parser buffers a line until it ends."""
        limits = self._limits
        if self._in_head:
            self._lines += came
            if self._lines > limits.url + limits.headers:
                raise BadMessage(431, "the headers are too many or too long")
        else:
            self._lines += came - (self._size - size)
            if self._lines > limits.headers + AROUND_A_CHUNK * self._pieces:
                raise BadMessage(431, "the trailers or chunk extensions are too long")

    def _read_on(self, data: bytes) -> None:
        """Ignore a request to upgrade: what follows is a body or the next request.

        The parser has stopped for good, so use a new one.
        """
        upgrade: int | None = 0
        while upgrade is not None:
            data, upgrade = data[upgrade:], None
            self._parser = resumed_parser(self, self._length)
            self._length = NONE
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as wish:
                upgrade = wish.args[0]

    # From the parser -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._ended:  # a parser that was resumed does not know
            raise BadMessage(400, "a request after the one that closes the connection")
        self.reading = HttpRequest(self.peer)
        self._begun = self._in_head = True
        self._url = self._body = b""
        self._expects = False
        self._hosts = self._size = self._lines = self._trailers = self._blank = self._pieces = 0
        self._owner.begun()

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > self._limits.url:
            raise BadMessage(414, f"the URL is longer than {self._limits.url} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        length = len(name)
        if not self._in_head or self.reading is None:
            self._trailer()
            return
        self._size += length + len(value)
        raw = self.reading.raw
        if self._size > self._limits.headers or len(raw) >= self._limits.header_count:
            raise BadMessage(431, "the headers are too many or too long")
        raw.append((name, value))
        if length == 4:
            if name.lower() == b"host":
                self._hosts += 1
                if value != self._host:
                    check_host(value)
                    self._host = value
        elif length == 6:
            if name.lower() == b"expect":
                if value.lower() != b"100-continue":
                    raise BadMessage(417, "the only supported Expect is 100-continue")
                self._expects = True
        elif length == 14 and len(value) >= self._digits and name.lower() == b"content-length":
            self._check_size(int(value))  # the parser only accepts digits

    def _trailer(self) -> None:
        """Trailers are read and ignored: they come too late to be headers."""
        self._trailers += 1
        if self._trailers > self._limits.header_count:
            raise BadMessage(431, "too many trailers")

    def on_headers_complete(self) -> None:
        request = self.reading
        if request is None:
            return
        parser = self._parser
        request.version = version = parser.get_http_version()
        if version != "1.1" or self._hosts != 1:
            check_version(version, self._hosts)
        request.method = parser.get_method().decode("latin-1")
        request.keep_alive = parser.should_keep_alive()
        path, _, query = self._url.partition(b"?")
        request.path, request.query = path.decode("latin-1"), query.decode("latin-1")
        self._in_head = False
        self._size = self._lines = 0
        if parser.should_upgrade():
            if request.method == "CONNECT":
                raise BadMessage(405, "CONNECT is not supported")
            # The parser treats the end of the head as the end of the request.
            self._length = request_length(version, request.raw)
        if self._expects and version == "1.1" and request_length(version, request.raw) != NONE:
            self._owner.expected()

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._limits.body:
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
        self._ended = not request.keep_alive
        body = self._body
        request.body = body if type(body) is bytes else bytes(body)
        self._owner.whole(request)
