"""What a client may ask of the proxy, how long a server may take, and why not more."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.wires.http.limits import HttpLimits

# Of a body, on its way, in memory: while the server is not there yet, or does not read.
MOST_HELD = 65_536
# Read at once, where there may be many requests in it, or chunks.
HEAD_BITE, BODY_BITE = 4_096, 16_384
# Of a body that nobody wants: read to its end, to keep the connection.
MOST_DISCARDED = 65_536
# After an answer that came before the request was whole: for the client to read it.
LINGER = 2.0
# The fields of a response, all together.
MOST_RESPONSE_FIELDS, MOST_RESPONSE_BYTES = 256, 65_536


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """Times in seconds."""

    client: HttpLimits = field(default_factory=HttpLimits)
    # A client that stops in the middle of a body, or sends fewer than client.least_rate bytes a
    # second of it.
    body_time: float = 30.0
    connect_time: float = 5.0
    # A server that is asked, and says nothing; also in the middle of a response.
    response_time: float = 60.0
    # A connection to the server that nobody uses. Servers close theirs after 5 s (uvicorn).
    rest_time: float = 4.0
    # What cannot be said twice goes over a connection that was used so lately, or a new one.
    fresh_time: float = 1.0
    most_resting: int = 256
    # A tunnel that nothing passes through.
    tunnel_time: float = 3_600.0
    # Protocols that a connection may change to. Not h2c: no request in it would be counted.
    upgrades: frozenset[bytes] = frozenset({b"websocket"})
