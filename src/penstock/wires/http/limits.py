"""The limits of the HTTP wire on its peers, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Sizes in bytes, times in seconds."""

    url: int = 8_192
    # All header fields together; proxies in front send up to 16 kB. Also for trailers together
    # with chunk extensions.
    headers: int = 32_768
    header_count: int = 128
    body: int = 1_048_576  # hundreds of descriptors take about ten kB
    # A request that is not complete by then counts as a slowloris attack.
    request_time: float = 10.0
    # Between requests. Proxies keep connections for a minute or more.
    idle_time: float = 120.0
    # For a peer that does not read its responses, or reads fewer than least_rate bytes a second.
    # The proxy requires the same rate of request bodies. Kestrel has the same default.
    write_time: float = 30.0
    least_rate: float = 240.0
    # Unanswered requests on one connection, before it is not read any more.
    pipeline: int = 64
    connections: int = 10_000
