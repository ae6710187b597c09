"""gRPC over HTTP/2: one connection of the load generator, with many requests at once.

As light as Python allows: requests are prepared before the run and sent many in one write;
parts of an answer that equal those of the last one are not decoded again.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import cast

from hpack import Decoder, Encoder, HPACKError, NeverIndexedHeaderTuple

from penstock.loadgen.requests import overall_code
from penstock.loadgen.scheduler import Connection, Scheduler

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *(0, 1, 3, 4, 6, 7, 8, 9),
)
END_STREAM = ACK = 1
END_HEADERS = 4
PADDED = 8
PRIORITY = 32
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4
WINDOW = 2**30
FIRST_WINDOW = 65_535

_HEAD = struct.Struct(">IBI")  # length and type, flags, stream
_ID = struct.Struct(">I")


class GrpcTarget:
    """The address, and a prepared request for each key."""

    def __init__(self, address: str, messages: Sequence[bytes], method: str = METHOD) -> None:
        self.path: str | None = None
        self.host, self.port = "", 0
        if address.startswith("unix:"):
            self.path = address.removeprefix("unix:").removeprefix("//")
        else:
            host, colon, port = address.rpartition(":")
            if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
                raise ValueError(f"address must be HOST:PORT or unix:PATH, not {address!r:.200}")
            self.host, self.port = host.strip("[]"), int(port)
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost" if self.path is not None else address,
            "te": "trailers",
            "content-type": "application/grpc",
        }
        # Never indexed, so the same bytes serve every request of every connection.
        block = Encoder().encode([NeverIndexedHeaderTuple(*pair) for pair in headers.items()])
        self.first = frame(HEADERS, END_HEADERS, 0, block)[:5]
        # After a stream's number: the headers, and the beginning of the message; and after
        # its number again: the message.
        self.parts = []
        for message in messages:
            data = b"\0" + _ID.pack(len(message)) + message
            self.parts.append((block + frame(DATA, END_STREAM, 0, data)[:5], data))

    async def connect(self, scheduler: Scheduler) -> Connection:
        loop = asyncio.get_running_loop()

        def factory() -> GrpcConnection:
            return GrpcConnection(scheduler, self)

        if self.path is not None:
            _, connection = await loop.create_unix_connection(factory, self.path)
        else:
            _, connection = await loop.create_connection(factory, self.host, self.port)
        await connection.settled
        return connection


class GrpcConnection(asyncio.Protocol):
    """OK is allowed, OVER_LIMIT is refused, every other status an error."""

    def __init__(self, scheduler: Scheduler, target: GrpcTarget) -> None:
        self._scheduler = scheduler
        self._target = target
        self._transport: asyncio.Transport | None = None
        # Done when the server's settings were received.
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._most = scheduler.load.streams
        self._under_way: dict[int, tuple[int, float]] = {}
        self._messages: dict[int, bytes] = {}  # by stream, until it ends
        self._next_id = 1
        self._window = FIRST_WINDOW  # what the server accepts now
        self._to_give = 0  # received, not yet acknowledged
        self._rest = b""
        self._block: tuple[int, int, bytes] | None = None  # stream, flags, and the block so far
        self._decoder = Decoder()
        self._known: dict[bytes, str | None] = {}  # gRPC's status by the block of headers
        self._known_table: tuple[int, object] = (0, None)
        self._ending = False  # no new streams

    # From the scheduler ------------------------------------------------------------------------

    @property
    def room(self) -> int:
        if self._transport is None or self._ending:
            return 0
        free = self._most - len(self._under_way)
        if self._window < free * 1024:
            longest = max(len(data) for _, data in self._target.parts)
            free = min(free, self._window // max(1, longest))
        return free

    def send(self, requests: list[tuple[int, float]]) -> None:
        transport = self._transport
        if transport is None:
            return
        parts, first, under_way = self._target.parts, self._target.first, self._under_way
        stream = self._next_id
        out: list[bytes] = []
        for request in requests:
            number = _ID.pack(stream)
            head, data = parts[request[0]]
            out += (first, number, head, number, data)
            self._window -= len(data)
            under_way[stream] = request
            stream += 2
        self._next_id = stream
        transport.write(b"".join(out))

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # From the transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, WINDOW)
        grant = frame(WINDOW_UPDATE, 0, 0, _ID.pack(WINDOW - FIRST_WINDOW))
        self._transport.write(PREFACE + frame(SETTINGS, 0, 0, settings) + grant)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end("connection lost" if exc is None else str(exc) or "connection lost")

    def _end(self, why: str) -> None:
        if not self.settled.done():
            self.settled.set_exception(ConnectionError(f"not an HTTP/2 server: {why}"))
        under_way = len(self._under_way)
        self._under_way.clear()
        self._scheduler.lost(self, under_way, why)
        self.close()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        unpack = _HEAD.unpack_from
        try:
            while at + 9 <= end:
                length, flags, stream = unpack(data, at)
                kind = length & 255
                stop = at + 9 + (length >> 8)
                if stop > end:
                    break
                self._frame(kind, flags, stream, data[at + 9 : stop])
                at = stop
        except (HPACKError, ValueError, struct.error, IndexError) as error:
            self._end(f"not gRPC: {error}")
            return
        if end - at > 2**24 + 9 or (at == 0 and data[:5] == b"HTTP/"):
            self._end("it answers in HTTP/1.1")
            return
        self._rest = data[at:]
        if self._to_give > WINDOW // 2 and self._transport is not None:
            self._transport.write(frame(WINDOW_UPDATE, 0, 0, _ID.pack(self._to_give)))
            self._to_give = 0
        if self._ending and not self._under_way:
            self._end("GOAWAY")
        elif self.settled.done():
            self._scheduler.ready(self)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (HEADERS, CONTINUATION):
            self._headers(kind, flags, stream, payload)
        elif kind == DATA:
            self._to_give += len(payload)
            piece = _unpadded(flags, payload)
            if piece:
                before = self._messages.get(stream)
                self._messages[stream] = piece if before is None else before + piece
            if flags & END_STREAM:
                self._answered(stream, "no status")
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == WINDOW_UPDATE:
            if stream == 0:
                self._window += _ID.unpack(payload)[0]
        elif kind == PING and not flags & ACK and self._transport is not None:
            self._transport.write(frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM:
            self._answered(stream, f"RST_STREAM {_ID.unpack(payload)[0]}")
        elif kind == GOAWAY:
            self._ending = True

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            name, value = struct.unpack_from(">HI", payload, at)
            if name == MAX_CONCURRENT_STREAMS:
                self._most = max(1, min(self._most, value))
        if self._transport is not None:
            self._transport.write(frame(SETTINGS, ACK, 0, b""))
        if not self.settled.done():
            self.settled.set_result(None)

    def _headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            block = _unpadded(flags, payload)
            if flags & PRIORITY:
                block = block[5:]
        else:
            if self._block is None:
                raise ValueError("CONTINUATION of nothing")
            stream, before, begun = self._block
            flags |= before & END_STREAM
            block = begun + payload
        if not flags & END_HEADERS:
            self._block = (stream, flags, block)
            return
        self._block = None
        status = self._status(block)
        if flags & END_STREAM:
            self._answered(stream, status)

    def _status(self, block: bytes) -> str | None:
        """The error that the gRPC status says; None for OK."""
        known, decoder = self._known, self._decoder
        if block in known:
            return known[block]
        headers = dict(cast(list[tuple[str, str]], decoder.decode(block)))
        status = headers.get("grpc-status")
        error: str | None = "no status"
        if status == "0":
            error = None
        elif status is not None:
            error = f"gRPC {status}: {headers.get('grpc-message', '')}".rstrip(": ")
        elif headers.get(":status", "200") != "200":
            error = f"HTTP {headers[':status']}"
        entries = decoder.header_table.dynamic_entries
        table = (len(entries), entries[0] if entries else None)
        if table[0] != self._known_table[0] or table[1] is not self._known_table[1]:
            known.clear()  # the table has changed, and with it what the same bytes mean
            self._known_table = table
        elif len(known) < 1000:
            known[block] = error
        return error

    def _answered(self, stream: int, error: str | None) -> None:
        request = self._under_way.pop(stream, None)
        message = self._messages.pop(stream, b"")
        if request is None:
            return
        scheduler = self._scheduler
        code = overall_code(message[5:])
        if error is None and code in (1, 2):
            scheduler.counts.answered(request[0], scheduler.now() - request[1], code == 1)
        else:
            scheduler.counts.failed(error or "an answer without a code")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    return payload[1 : len(payload) - payload[0]]
