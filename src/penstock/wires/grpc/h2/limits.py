"""The limits on what one peer may use, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, fields

KB = 1024
MB = 1024 * KB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a gRPC server. The defaults suit gateways; a public port should have lower ones."""

    connections: int = 20_000
    """At a time; further ones are closed at once. An idle one takes about 16 KB."""

    streams: int = 1_000
    """Open at a time on a connection. A gateway that needs more opens another connection."""

    header_bytes: int = 16 * KB
    """Of a request, counted as in RFC 9113: 32 more for each field. gRPC's default is 8 KB. A
    request with more is refused; with twice as much, or twice the fields, the connection is
    closed."""

    header_count: int = 100
    """Fields of a request. Each costs time even when its bytes are few."""

    continuations: int = 8
    """CONTINUATION frames of a header block. 16 KB fit into one frame."""

    message_bytes: int = 1 * MB
    """Of one message. A request with a dozen keys has less than 2 KB."""

    stream_bytes: int = 64 * KB
    """Waiting to be sent on a stream before it accepts no more messages."""

    held_bytes: int = 16 * MB
    """In and out together, on a connection: what a peer can make us buffer."""

    queued_bytes: int = 256 * KB
    """Waiting to be sent to a peer that does not read, before we stop reading from it."""

    bidi_streams: int = 100
    """Bidirectional streams, which stay open, at a time on a connection. An Envoy has one for each
    domain."""

    bidi_streams_total: int = 10_000
    """The same on all connections together."""

    bidi_message_bytes: int = 4 * MB
    """Of one message on a bidirectional stream. Envoy reports all buckets in one message, of about
    41 bytes each."""

    bidi_queue_bytes: int = 8 * MB
    """Waiting to be sent on a bidirectional stream; beyond that it is reset. The answer to a report
    has about twice its size."""

    bidi_messages_per_second: int = 1_000
    bidi_messages_burst: int = 10_000
    """Messages on the bidirectional streams of a connection; further ones have to wait. Envoy sends
    one for each new bucket, and one every five seconds."""

    resets_per_second: int = 500
    resets_burst: int = 2_000
    """Streams that a peer resets, or makes us reset. A gateway with a time-out of 20 ms resets
    many when we are slow, and must not lose its connection; an attack has 100 times as
    many."""

    controls_per_second: int = 100
    controls_burst: int = 1_000
    """PING, SETTINGS, PRIORITY and empty DATA: frames that request nothing. gRPC's own bandwidth
    probing sends about ten a second."""

    handshake_seconds: float = 10.0
    """To send the HTTP/2 preface."""

    request_seconds: float = 15.0
    """For a message to be complete, from its first byte, or from the start of the stream."""

    stall_seconds: float = 30.0
    """That a peer may leave responses unread; then the stream or the connection is closed."""

    idle_seconds: float = 900.0
    """Without any stream; then the connection is closed gracefully."""

    keepalive_seconds: float = 60.0
    """Of silence, after which a PING is sent."""

    keepalive_timeout: float = 20.0
    """To answer the PING."""

    linger_seconds: float = 1.0
    """To read the last data before the connection is closed."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            whole = each.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                kind = "whole number" if whole else "number"
                raise TypeError(f"{each.name} must be a {kind}, as {each.default}, not {value!r}")
            most = 2**31 - 1 if whole else 10**8
            if not 0 < value <= most:
                raise ValueError(
                    f"{each.name}={value!r} must be above 0 and at most {most}: "
                    f"the default is {each.default}"
                )
