"""What one peer may ask of us, and for how long. Each bound has its reason beside it."""

from __future__ import annotations

from dataclasses import dataclass, fields

KB = 1024
MB = 1024 * KB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a gRPC server. The defaults suit gateways; a public port wants less."""

    connections: int = 20_000
    """At a time; more are closed at once. An idle one takes some 16 KB."""

    streams: int = 1_000
    """Open at a time on a connection. A gateway that needs more opens another connection."""

    header_bytes: int = 16 * KB
    """Of a request, as RFC 9113 counts: 32 more for each field. gRPC's own default is 8 KB. A
    request with more is refused; with twice as much, or twice the fields, the connection ends."""

    header_count: int = 100
    """Fields of a request. Each costs time even when its bytes are few."""

    continuations: int = 8
    """Frames that may follow to finish a header block. 16 KB fit into one."""

    message_bytes: int = 1 * MB
    """Of one message. One that asks about a dozen keys has less than 2 KB."""

    stream_bytes: int = 64 * KB
    """To be sent on a stream before it stops taking messages in."""

    held_bytes: int = 16 * MB
    """In and out together, on a connection: what a peer can make us keep for it."""

    queued_bytes: int = 256 * KB
    """To be sent to a peer that does not read, before we stop reading from it."""

    resets_per_second: int = 500
    resets_burst: int = 2_000
    """Streams that a peer resets, or makes us reset. A gateway with a timeout of 20 ms resets
    many when we are slow, and must not lose its connection for that; an attack has 100 times
    as many."""

    controls_per_second: int = 100
    controls_burst: int = 1_000
    """PING, SETTINGS, PRIORITY and empty DATA: what asks for nothing. gRPC's own probing of the
    line sends some ten a second."""

    handshake_seconds: float = 10.0
    """To show that it speaks HTTP/2."""

    request_seconds: float = 15.0
    """For a message to come in whole, from its first byte, or from the stream's."""

    stall_seconds: float = 30.0
    """That a peer may leave answers unread; then the stream, or all of it, is cut off."""

    idle_seconds: float = 900.0
    """Without any stream; then the connection is closed in good manners."""

    keepalive_seconds: float = 60.0
    """Of silence, after which the peer is asked whether it is still there."""

    keepalive_timeout: float = 20.0
    """To say so."""

    linger_seconds: float = 1.0
    """To read our last words before the connection is gone."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            whole = each.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                kind = "whole number" if whole else "number"
                raise TypeError(f"{each.name} is a {kind}, as in {each.default}, not {value!r}")
            most = 2**31 - 1 if whole else 10**8
            if not 0 < value <= most:
                raise ValueError(
                    f"{each.name}={value!r} is not above 0 and at most {most}: "
                    f"the default is {each.default}"
                )
