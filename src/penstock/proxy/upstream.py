"""UpstreamConnection: a connection to the server. One exchange at a time, then idle in the pool."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol, cast

import httptools

from penstock.proxy.fields import tokens
from penstock.proxy.limits import MOST_RESPONSE_BYTES, MOST_RESPONSE_FIELDS, ProxyLimits
from penstock.proxy.request import ProxyRequest
from penstock.proxy.target import Unreachable
from penstock.wires.http.framing import (
    AROUND_A_CHUNK,
    NONE,
    UNTIL_CLOSE,
    BadMessage,
    Field,
    response_length,
)


class ResponseHead(NamedTuple):
    status: int
    reason: bytes
    version: str
    fields: list[Field]
    length: int  # of the body, CHUNKED or UNTIL_CLOSE


class Pool(Protocol):
    """Where connections are kept between exchanges."""

    limits: ProxyLimits

    def joined(self, upstream: UpstreamConnection) -> None: ...
    def left(self, upstream: UpstreamConnection) -> None: ...
    def rest(self, upstream: UpstreamConnection) -> None: ...


class Exchange(Protocol):
    """Receives a response as it arrives."""

    request: ProxyRequest
    request_done: bool

    def interim(self, head: ResponseHead) -> None: ...
    def head(self, head: ResponseHead) -> None: ...
    def piece(self, piece: bytes) -> None: ...
    def end(self, fields: list[Field]) -> None: ...
    def flush(self) -> None: ...
    def release(self) -> None:
        """The response is complete, and the connection is no longer needed."""

    def open_tunnel(self) -> None: ...
    def from_server(self, data: bytes) -> None: ...
    def server_ended(self) -> None: ...
    def read_or_not(self) -> None:
        """The server reads again, or no longer."""

    def lost(self, error: Unreachable) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """Reads responses and passes them to its exchange as they arrive."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self.used = False  # by an exchange before this one
        self.rested_at = 0.0
        self.blocked = False  # the server does not read
        self._held = False  # the client does not read, so we do not either
        self._raw = False  # a tunnel
        self._deadline = 0.0
        self._anew()

    def _anew(self) -> None:
        self._fields: list[Field] = []
        self._reason = b""
        self._size = 0
        self._body = 0  # bytes of the body, the number of pieces,
        self._count = 0
        self._lines = 0  # and bytes around it; before: bytes of the head
        self._length = 0
        self._in_head = True
        self._interim = False
        self._complete = False
        self._keeps = False
        self.heard = False  # anything from the server in this exchange

    # From an exchange ----------------------------------------------------------------------

    def begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._anew()
        self._touch()

    def send(self, pieces: list[bytes]) -> None:
        if self._transport is not None and pieces and self.alive:
            self._touch()
            self._transport.writelines(pieces)

    def send_eof(self) -> None:
        if self._transport is not None and self.alive and self._transport.can_write_eof():
            self._transport.write_eof()

    def hold(self, held: bool) -> None:
        """Pause or resume reading the response."""
        if held == self._held or self._transport is None or self._transport.is_closing():
            return
        self._held = held
        if held:
            self._transport.pause_reading()
        else:
            self._touch()
            self._transport.resume_reading()

    def close(self) -> None:
        """Close after what was written."""
        self._exchange = None
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """Close at once: the response is not needed."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # From the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pool.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pool.left(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        whole = not self._in_head and self._length == UNTIL_CLOSE and exc is None
        if whole and not self._raw:
            exchange.end([])
            exchange.release()
        else:
            exchange.lost(Unreachable(502, "the server closed the connection"))

    def eof_received(self) -> bool:
        if self._raw and self._exchange is not None:
            self._exchange.server_ended()
            return True
        return False

    def pause_writing(self) -> None:
        self.blocked = True
        if self._exchange is not None:
            self._exchange.read_or_not()

    def resume_writing(self) -> None:
        self.blocked = False
        self._touch()
        if self._exchange is not None:
            self._exchange.read_or_not()

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.drop()  # data without a request
            return
        self.heard = True
        self._touch()
        if self._raw:
            exchange.from_server(data)
            return
        try:
            in_head, body = self._in_head, self._body
            self._parser.feed_data(data)
            if in_head == self._in_head:
                # The parser buffers a line until it ends, however long that is.
                self._lines += len(data) - (self._body - body)
                if self._lines > 2 * MOST_RESPONSE_BYTES + AROUND_A_CHUNK * self._count:
                    raise BadMessage(502, "the fields, trailers or chunk extensions are too long")
        except httptools.HttpParserUpgrade as upgraded:
            self._raw = True
            exchange.open_tunnel()
            if rest := data[upgraded.args[0] :]:
                exchange.from_server(rest)
            return
        except BadMessage as error:
            self._fail(error)
            return
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._fail(cause if isinstance(cause, BadMessage) else BadMessage(502, str(error)))
            return
        if self._complete:
            self._exchange = None
            exchange.release()
            self._rest(exchange.request_done)
        else:
            exchange.flush()

    def _fail(self, error: BadMessage) -> None:
        exchange, self._exchange = self._exchange, None
        self.drop()
        if exchange is None:
            return
        if self._complete:  # the data after the response is invalid, not the response
            exchange.release()
            return
        exchange.lost(Unreachable(502, f"the server's response is invalid: {error}"))

    def _rest(self, whole: bool) -> None:
        """Return to the pool, if the connection can be reused."""
        if not (self._keeps and whole) or self._transport is None:
            self.drop()
            return
        self.hold(False)
        self._parser = httptools.HttpResponseParser(self)  # after HEAD the parser waits for a body
        self.used = True
        self._pool.rest(self)

    # From the parser -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise BadMessage(502, "more than one response")
        self._fields = []
        self._reason = b""
        self._in_head = True
        self._interim = False

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))
        self._size += len(name) + len(value)
        if len(self._fields) > MOST_RESPONSE_FIELDS or self._size > 2 * MOST_RESPONSE_BYTES:
            raise BadMessage(502, "the header fields are too many or too long")

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        status: int = self._parser.get_status_code()
        version: str = self._parser.get_http_version()
        fields = self._fields
        self._in_head = False
        self._size = self._lines = 0
        self._fields = []  # trailers follow
        if status < 200:
            if status == 101 and not exchange.request.upgrade:
                raise BadMessage(502, "101 without a request to upgrade")
            self._interim = True
            exchange.interim(ResponseHead(status, self._reason, version, fields, NONE))
            return
        method = exchange.request.method
        self._length = response_length(method, status, version, fields)
        closes = b"close" in tokens(fields, b"connection")
        self._keeps = version == "1.1" and not closes and self._length != UNTIL_CLOSE
        exchange.head(ResponseHead(status, self._reason, version, fields, self._length))
        if method == "HEAD":
            # The parser waits for the body that the fields describe.
            self._complete = True
            exchange.end([])

    def on_body(self, piece: bytes) -> None:
        if self._complete:
            raise BadMessage(502, "data after the end of the body")
        self._body += len(piece)
        self._count += 1
        if self._exchange is not None:
            self._exchange.piece(piece)

    def on_message_complete(self) -> None:
        if self._interim or self._complete or self._exchange is None:
            return
        self._complete = True
        self._exchange.end(self._fields)

    # Time-outs -----------------------------------------------------------------------------

    def _touch(self) -> None:
        limits = self._pool.limits
        seconds = limits.tunnel_time if self._raw else limits.response_time
        self._deadline = self._loop.time() + seconds

    def judge(self, now: float) -> None:
        """Fail if the server is too slow."""
        if self._exchange is None or self._held or now < self._deadline:
            return
        exchange, self._exchange = self._exchange, None
        self.drop()
        exchange.lost(Unreachable(504, "the server did not respond in time"))
