"""A quota service that does as it is told, and notes what becomes of its streams."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.service.grpc_status import GrpcError
from penstock.service.rlqs.interface import QuotaWire

MOST = 5_000_000  # bytes of a message, whatever a fuzzer asks for


class QuotaEcho:
    """Opens streams that send back what they receive; see `EchoStream.receive`."""

    def __init__(self) -> None:
        self.streams: list[EchoStream] = []
        self.refuse: Exception | None = None  # raised when a stream is opened

    def open(self, wire: QuotaWire, metadata: Mapping[str, str], peer: str) -> EchoStream:
        if self.refuse is not None:
            raise self.refuse
        if "x-hello" in metadata:
            wire.send(metadata["x-hello"].encode())
        if "x-close" in metadata:
            wire.close(int(metadata["x-close"]), "closed while it opened")
        self.streams.append(EchoStream(wire, metadata, peer))
        return self.streams[-1]

    def start(self) -> None:
        """Called by a worker."""

    async def close(self) -> None:
        """The same."""

    @property
    def received(self) -> int:
        return sum(stream.received for stream in self.streams)


class EchoStream:
    def __init__(self, wire: QuotaWire, metadata: Mapping[str, str], peer: str) -> None:
        self.wire = wire
        self.metadata = metadata
        self.peer = peer
        self.received = 0
        self.over = 0  # how often it heard that it is
        self.notes: list[str] = []

    def receive(self, message: bytes) -> None:
        assert self.over == 0, "it was told that it is over"
        self.received += 1
        word, _, rest = message[:100].decode("latin-1").partition(" ")
        if word == "silent":
            pass
        elif word == "large":
            self.wire.send(b"x" * min(MOST, int(rest)))
        elif word == "many":
            for _ in range(min(1000, int(rest))):
                self.wire.send(b"y" * 1000)
        elif word == "close":
            self.wire.close(int(rest), "as you say")
        elif word == "status":
            raise GrpcError(int(rest), "it is so")
        elif word == "malformed":
            raise ValueError("this message is malformed")
        elif word == "raise":
            raise RuntimeError("a secret")
        elif word == "confirm":
            self.wire.send(message)
            self.confirm(rest)
        else:
            self.wire.send(message)

    def confirm(self, note: str) -> None:
        if not self.wire.confirm(lambda: self.notes.append(f"delivered {note}")):
            self.notes.append(f"no proof of {note}")

    def closed(self) -> None:
        self.over += 1
