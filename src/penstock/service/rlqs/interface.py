"""What a wire and the quota service know of each other: streams of whole messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class QuotaStream(Protocol):
    """The service's end of a stream."""

    def receive(self, message: bytes) -> None:
        """One whole message. `ValueError` if it is malformed: INVALID_ARGUMENT ends the stream."""

    def closed(self) -> None:
        """The stream is over, whoever ended it. Called exactly once."""


class QuotaWire(Protocol):
    """The wire's end of a stream."""

    def send(self, message: bytes) -> None:
        """Queue one message. Never blocks; does nothing after the end."""

    def close(self, status: int = 0, reason: str = "") -> None:
        """End the stream with this gRPC status."""

    def confirm(self, delivered: Callable[[], None]) -> bool:
        """Call back when the peer is proven to have received all that was sent so far.

        False if this wire cannot know.
        """


class QuotaService(Protocol):
    """What a wire calls for every new stream."""

    def open(self, wire: QuotaWire, metadata: Mapping[str, str], peer: str) -> QuotaStream: ...
