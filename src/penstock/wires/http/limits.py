"""What a peer may ask of the HTTP wire, and why not more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Sizes in bytes, times in seconds."""

    url: int = 8_192
    # All of them together; proxies in front send up to 16 kB. Also for trailers, together with
    # chunk extensions.
    headers: int = 32_768
    header_count: int = 128
    body: int = 1_048_576  # hundreds of descriptors take some ten kB
    # A request that is not whole by then is a slow-loris.
    request_time: float = 10.0
    # Between requests. Proxies keep connections for a minute or more.
    idle_time: float = 120.0
    # A peer that does not read its answers, or reads fewer than least_rate bytes a second of
    # them. The proxy asks for the same rate of request bodies. Kestrel has the same default.
    write_time: float = 30.0
    least_rate: float = 240.0
    # Requests that were read and not answered, on one connection: then it is not read on.
    pipeline: int = 64
    connections: int = 10_000
