"""The limits of the proxy on clients and servers, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.wires.http.limits import HttpLimits

# Of a body, buffered while the server is not connected yet or does not read.
MOST_HELD = 65_536
# Read at once, as it may contain many requests or chunks.
HEAD_BITE, BODY_BITE = 4_096, 16_384
# Of an unneeded body: read to its end, to keep the connection.
MOST_DISCARDED = 65_536
# For the client to read a response that was sent before the request was complete.
LINGER = 2.0
# All header fields of a response.
MOST_RESPONSE_FIELDS, MOST_RESPONSE_BYTES = 256, 65_536


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """Times in seconds."""

    client: HttpLimits = field(default_factory=HttpLimits)
    # For a client that stops in the middle of a body, or sends fewer than client.least_rate
    # bytes a second of it.
    body_time: float = 30.0
    connect_time: float = 5.0
    # For a server that does not respond, or stops in the middle of a response.
    response_time: float = 60.0
    # For an idle connection to the server. Servers close theirs after 5 s (uvicorn).
    rest_time: float = 4.0
    # A request that cannot be repeated uses a connection that was idle for less, or a new one.
    fresh_time: float = 1.0
    most_resting: int = 256
    # For an idle tunnel.
    tunnel_time: float = 3_600.0
    # Protocols that a connection may switch to. Not h2c: its requests would not be counted.
    upgrades: frozenset[bytes] = frozenset({b"websocket"})
