"""The bidirectional streams of one connection: opened, fed, confirmed, and closed with it.

A confirmation is a PING that is sent when all messages of the stream are written. The peer reads
frames in order, so its answer proves that it has read the messages. One PING is on its way at a
time; requests that come meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from penstock.service.grpc_status import (
    INVALID_ARGUMENT,
    OK,
    UNAVAILABLE,
    GrpcError,
    check_status,
)
from penstock.service.rlqs.interface import QuotaStream
from penstock.wires.grpc.h2._nghttp2 import Session
from penstock.wires.grpc.methods import OpenStream

log = logging.getLogger("penstock.server")

LEAVING = "the server is closing this connection"
OURS = b"pens"  # how our PINGs begin
Delivered = Callable[[], None]


class BidiStreams:
    """Streams by number. ``changed`` is called when something is ready to be sent."""

    def __init__(
        self,
        transport: asyncio.BaseTransport,
        changed: Callable[[], None],
        now: Callable[[], int],
    ) -> None:
        self._transport = transport
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, BidiStream] = {}
        self._leaving = False
        self._written: list[tuple[BidiStream, Delivered]] = []  # for the next PING
        self._asked: list[tuple[BidiStream, Delivered]] = []  # for the one on its way
        self._pings = 0
        self.changed = changed
        self.session: Session | None = None  # comes soon after, goes with the connection
        self.asked = 0  # when the PING on its way was sent; 0 if there is none

    # Called by the session

    def open(self, stream: int, method: OpenStream, fields: bytes) -> None:
        if self._leaving:
            raise GrpcError(UNAVAILABLE, LEAVING)
        opened = self._open[stream] = BidiStream(self, stream)
        try:
            receiver = method(opened, metadata_of(fields), peer_of(self._transport))
        except BaseException:
            self._open.pop(stream, None)
            raise
        if self._open.get(stream) is opened:
            opened.receiver = receiver
        else:
            tell_closed(receiver)  # the connection was lost meanwhile

    def receive(self, stream: int, message: bytes) -> None:
        opened = self._open.get(stream)
        if opened is None or opened.receiver is None:
            return
        try:
            opened.receiver.receive(message)
        except ValueError as error:
            raise GrpcError(INVALID_ARGUMENT, str(error)) from error

    def later(self, stream: int) -> None:
        """There is more to be received, when others have had their turn."""
        self._loop.call_soon(self._go_on, stream)

    def over(self, stream: int) -> None:
        """The stream ends, or is gone."""
        opened = self._open.pop(stream, None)
        if opened is not None and opened.receiver is not None:
            tell_closed(opened.receiver)

    def written(self, stream: int) -> None:
        """All that the stream was to send is written."""
        opened = self._open.get(stream)
        if opened is None:
            return
        self._written += [(opened, each) for each in opened.unwritten]
        opened.unwritten.clear()
        self._ask()

    def answered(self) -> None:
        """The peer has answered the PING."""
        asked, self._asked, self.asked = self._asked, [], 0
        for stream, delivered in asked:
            if self.is_open(stream):
                try:
                    delivered()
                except Exception:
                    log.exception("a confirmation failed")
        self._ask()

    # Called by the protocol

    def leave(self) -> None:
        """End all streams, so that gateways open others elsewhere; accept no more."""
        self._leaving = True
        for stream in list(self._open.values()):
            stream.close(UNAVAILABLE, LEAVING)

    def close(self) -> None:
        """The connection is gone."""
        self.session = None
        self._leaving = True
        for stream in list(self._open):
            self.over(stream)
        self._written.clear()
        self._asked.clear()

    # Called by streams

    def is_open(self, stream: BidiStream) -> bool:
        return self._open.get(stream.number) is stream

    def _go_on(self, stream: int) -> None:
        if self.session is not None:
            self.session.go_on(stream)
            self.changed()

    def _ask(self) -> None:
        if self.session is None or self._asked:
            return
        self._asked = [each for each in self._written if self.is_open(each[0])]
        self._written = []
        if self._asked:
            self._pings += 1
            self.asked = self._now()
            self.session.ask(OURS + (self._pings % 2**32).to_bytes(4))
            self.changed()


class BidiStream:
    """One stream for its service: a `QuotaWire`."""

    __slots__ = ("_streams", "number", "receiver", "unwritten")

    def __init__(self, streams: BidiStreams, number: int) -> None:
        self._streams = streams
        self.number = number
        self.receiver: QuotaStream | None = None  # comes when the method has returned
        self.unwritten: list[Delivered] = []  # until what was sent before them is written

    def send(self, message: bytes) -> None:
        session = self._streams.session
        if session is not None and self._streams.is_open(self):
            session.push(self.number, message)
            self._streams.changed()

    def close(self, status: int = OK, reason: str = "") -> None:
        session = self._streams.session
        check_status(status)
        if session is not None and self._streams.is_open(self):
            session.end(self.number, status, reason)
            self._streams.changed()

    def confirm(self, delivered: Delivered) -> bool:
        session = self._streams.session
        if session is None or not self._streams.is_open(self) or not session.confirm(self.number):
            return False
        self.unwritten.append(delivered)
        self._streams.changed()
        return True


def tell_closed(stream: QuotaStream) -> None:
    try:
        stream.closed()
    except Exception:
        log.exception("a closed stream failed")


def metadata_of(fields: bytes) -> Mapping[str, str]:
    """Names and values, each with a 0 behind it. Binary fields are left out."""
    metadata: dict[str, str] = {}
    parts = fields.split(b"\0")
    for name, value in zip(parts[0::2], parts[1::2], strict=False):
        key = name.decode("latin-1")
        if key.endswith("-bin"):
            continue
        text = decoded(value)
        metadata[key] = f"{metadata[key]},{text}" if key in metadata else text
    return metadata


def decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def peer_of(transport: asyncio.BaseTransport) -> str:
    """As gRPC writes it: ``ipv4:192.0.2.1:50000``, ``ipv6:[::1]:50000``."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return f"unix:{id(transport):x}"
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
