"""The methods of a gRPC wire by path, from message bytes to message bytes.

A wire does not know the content of messages, and a method does not know the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.service.rlqs.interface import QuotaStream, QuotaWire

Unary = Callable[[bytes], bytes | Awaitable[bytes]]
Watch = Callable[[bytes], AsyncIterator[bytes]]
OpenStream = Callable[[QuotaWire, Mapping[str, str], str], QuotaStream]


@dataclass(frozen=True, slots=True)
class Methods:
    """Methods by path, as in ``"/grpc.health.v1.Health/Check"``. Any may raise `GrpcError`.

    ``unary``: one message in, one out; returns bytes or an awaitable.
    ``each``: a stream both ways; called for every message, returns one.
    ``watch``: one message in, any number out.
    ``bidi``: messages both ways at any time; called when a stream opens, with the wire's side of
    it, the metadata and the peer.
    """

    unary: Mapping[str, Unary] = field(default_factory=dict)
    each: Mapping[str, Unary] = field(default_factory=dict)
    watch: Mapping[str, Watch] = field(default_factory=dict)
    bidi: Mapping[str, OpenStream] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for path in self.paths():
            if not path.startswith("/") or path.count("/") != 2 or not path.isascii():
                raise ValueError(
                    f"{path!r} is not the path of a method: write /package.Service/Method"
                )
            if path in seen:
                raise ValueError(f"{path!r} is given twice: a method has one kind")
            seen.add(path)

    def paths(self) -> Iterator[str]:
        for kind in (self.unary, self.each, self.watch, self.bidi):
            yield from kind
