"""Exchange: one request and its response, from a client's connection to the server and back.

Nothing is buffered that can be passed on: data is forwarded as it arrives. A side that does not
read pauses the other side, which is not read from and so stops sending.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from penstock.integrations.deciding.outcome import Outcome
from penstock.proxy.base import ProxyBase
from penstock.proxy.fields import to_server
from penstock.proxy.limits import MOST_DISCARDED, MOST_HELD
from penstock.proxy.request import IDEMPOTENT, ProxyRequest
from penstock.proxy.response import ResponseWriter
from penstock.proxy.target import Unreachable
from penstock.proxy.upstream import ResponseHead, UpstreamConnection
from penstock.rules.deciding.store_calls import let_finish
from penstock.wires.http.framing import CHUNKED, NONE, BadMessage, Field, chunk, last_chunk, written
from penstock.wires.http.messages import HttpResponse, as_error

logger = logging.getLogger("penstock.proxy")


class Client(Protocol):
    """The connection that a request came by."""

    server: ProxyBase
    blocked: bool  # the client does not read

    def read_or_not(self) -> None: ...
    def send(self, pieces: list[bytes]) -> None: ...
    def send_eof(self) -> None: ...
    def over(self, exchange: Exchange) -> None: ...
    def close(self) -> None: ...
    def reset(self) -> None: ...


class Exchange:
    """From the head of a request to the end of its response."""

    def __init__(self, client: Client, request: ProxyRequest, keeps: bool) -> None:
        self.client = client
        self.request = request
        self._server = client.server
        self.keeps = keeps  # the client's connection, when this is over
        self.upstream: UpstreamConnection | None = None
        self.request_done = False
        self._done = False
        self._outcome: Outcome | None = None
        self.tunnel = False
        self._task: asyncio.Task[None] | None = None
        self._retried = False
        self._ours: list[tuple[str, str]] = []
        self._early: list[bytes] = []  # of the body, while there is no connection
        self._held = 0  # bytes of it
        self.received = 0  # of the body
        self._continued = False  # sent 100 Continue to the client
        self._begun = False  # sent a final response to the client
        self._response = ResponseWriter(request)
        self._ends = 0  # sides of a tunnel that have ended

    @property
    def done(self) -> bool:
        """Whether nothing more is to come from the server, or is wanted."""
        return self._done

    @done.setter
    def done(self, done: bool) -> None:
        self._done = done
        outcome, self._outcome = self._outcome, None
        if outcome is not None and outcome.holds_slots:
            released = outcome.release(asynchronous=True)
            assert released is not None
            let_finish(released)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._go())

    async def _go(self) -> None:
        try:
            outcome = await self._server.check(self.request)
            if outcome is not None:
                if not outcome.allowed:
                    self._refuse(outcome)
                    return
                self._outcome = outcome
                self._ours = self._server.checkpoint.headers(outcome)
            if self.request.is_for_us:
                allow = ("Allow", ", ".join(sorted(IDEMPOTENT)))
                self.respond(HttpResponse(200, headers=[allow, *self._ours]))
                return
            await self._reach(new=False)
        except Exception:
            logger.exception("%s %.200s failed", self.request.method, self.request.path)
            self.respond(as_error(500, "internal error"))

    async def _reach(self, new: bool) -> None:
        """Forward the request, over a new connection or any."""
        request, server = self.request, self._server
        try:
            upstream = await server.pool.take(request.repeatable, new)
        except Unreachable as error:
            self._fail(error)
            return
        if self.done:  # answered meanwhile: its body was invalid
            upstream.drop()
            return
        upstream.begin(self)
        self.upstream = upstream
        upstream.hold(self.client.blocked)
        head = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.target)
        fields = to_server(request, server.checkpoint.trust, server.forwarded)
        if request.length == CHUNKED:
            fields.append((b"Transfer-Encoding", b"chunked"))
        elif request.length or request.header("content-length") is not None:
            fields.append((b"Content-Length", b"%d" % request.length))
        early, self._early, self._held = self._early, [], 0
        upstream.send([head, written(fields), b"\r\n"])
        for piece in early:
            self._up(upstream, piece)
        if self.request_done:
            self._end_up(upstream)
        self.client.read_or_not()

    # From the client -----------------------------------------------------------------------

    def body(self, piece: bytes) -> None:
        self.received += len(piece)
        if self.done:
            return  # no longer needed
        if self.upstream is None:
            self._early.append(piece)
            self._held += len(piece)
            self.client.read_or_not()
        else:
            self._up(self.upstream, piece)

    def _up(self, upstream: UpstreamConnection, piece: bytes) -> None:
        upstream.send([*chunk(piece)] if self.request.length == CHUNKED else [piece])

    def body_end(self) -> None:
        self.request_done = True
        if self.upstream is not None:
            self._end_up(self.upstream)
        if self.done:
            self.client.over(self)

    def _end_up(self, upstream: UpstreamConnection) -> None:
        if self.request.length == CHUNKED:
            # Without its trailers: a server that treats them as header fields would see what
            # no rule has seen.
            upstream.send([last_chunk(())])

    def from_client(self, data: bytes) -> None:
        """Send through the tunnel, or buffer until it is open."""
        if self.tunnel and self.upstream is not None:
            self.upstream.send([data])
        else:
            self._early.append(data)
            self._held += len(data)
            self.client.read_or_not()

    def client_ended(self) -> None:
        if self.upstream is not None:
            self.upstream.send_eof()
        self._ended()

    @property
    def full(self) -> bool:
        """Whether reading from the client should pause."""
        if self.upstream is not None and (self.tunnel or not self.request.upgrade):
            return self.upstream.blocked
        return self._held > MOST_HELD and not self.done

    def broken(self, error: BadMessage) -> None:
        """The rest of the request cannot be read."""
        self.keeps = False
        if self._begun:
            self._cut()
        else:
            self.respond(as_error(error.status, str(error)))

    def gone(self) -> None:
        """The client has disconnected: cancel the request."""
        self.done = True
        if self._task is not None:
            self._task.cancel()
        self._drop_upstream()

    # From the server -----------------------------------------------------------------------

    def interim(self, head: ResponseHead) -> None:
        continues = head.status == 100
        if self.request.version == "1.0" or (continues and not self.request.expects):
            return
        self._continued = self._continued or continues
        self._response.interim(head, self._ours)

    def head(self, head: ResponseHead) -> None:
        request = self.request
        self._begun = True
        waits = request.expects and not self._continued and not self.received
        if request.upgrade or waits or self._server.draining:
            # A client that waits for 100 Continue may not send its body.
            self.keeps = False
        self.keeps = self._response.head(head, self._ours, self.keeps)

    def piece(self, piece: bytes) -> None:
        self._response.piece(piece)

    def end(self, fields: Iterable[Field]) -> None:
        self._response.end(fields)
        self.done = True

    def flush(self) -> None:
        """Write what was received; after the end, continue with the next exchange."""
        out = self._response.take()
        if out:
            self.client.send(out)
        if self.done:
            self.client.over(self)

    def release(self) -> None:
        self.upstream = None
        self.flush()

    def read_or_not(self) -> None:
        self.client.read_or_not()

    def open_tunnel(self) -> None:
        self.tunnel = True
        self.request_done = True
        self.flush()
        early, self._early, self._held = self._early, [], 0
        if self.upstream is not None:
            self.upstream.send(early)
        self.client.read_or_not()

    def from_server(self, data: bytes) -> None:
        self.client.send([data])

    def server_ended(self) -> None:
        self.client.send_eof()
        self._ended()

    def _ended(self) -> None:
        self._ends += 1
        if self._ends == 2:
            self.done = True
            if self.upstream is not None:
                self.upstream.close()
            self.client.close()

    def lost(self, error: Unreachable) -> None:
        """The server is gone, and the response is incomplete."""
        upstream, self.upstream = self.upstream, None
        if self.done:
            return
        stale = (
            upstream is not None and upstream.used and not upstream.heard and error.status == 502
        )
        if stale and self.request.repeatable and not self._retried:
            self._retried = True
            self._task = asyncio.get_running_loop().create_task(self._reach(new=True))
        elif self._begun or self.tunnel:
            self._cut()
        else:
            self._fail(error)

    # Our own responses ---------------------------------------------------------------------

    def _refuse(self, outcome: Outcome) -> None:
        self._server.refused += 1
        answer = self._server.checkpoint.answer(outcome, self.request)
        headers = [header for header in answer.headers if header[0] != "Content-Type"]
        kind = dict(answer.headers)["Content-Type"]
        self.respond(HttpResponse(answer.status, answer.body, headers, kind))

    def _fail(self, error: Unreachable) -> None:
        self._server.failed += 1
        logger.warning("%s %.200s: %s", self.request.method, self.request.path, error)
        message = "Bad gateway" if error.status == 502 else "Gateway timeout"
        self.respond(as_error(error.status, message, self._ours))

    def respond(self, response: HttpResponse) -> None:
        """Send our own response instead of the server's."""
        if self.done:
            return
        self._begun = self.done = True
        self._drop_upstream()
        if not self.request_done and not self.rest_is_short():
            self.keeps = False
        if self.request.upgrade or self._server.draining:
            self.keeps = False
        self._response.replace(self._server.encoded(response, self.request, self.keeps))
        self.flush()

    def rest_is_short(self) -> bool:
        """Whether to read an unneeded body rather than to close the connection."""
        length = self.request.length
        return NONE <= length - self.received <= MOST_DISCARDED and not self.request.expects

    def _cut(self) -> None:
        """Fail in the middle of a response: the client must see that it is incomplete."""
        self.done = True
        self._drop_upstream()
        if self._response.framed:
            self.client.close()
        else:
            self.client.reset()

    def _drop_upstream(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.drop()
