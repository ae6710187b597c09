"""AdminServer: the admin API on a port of its own.

Without a token, it refuses to listen on an address that other machines can reach.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from penstock.admin.access import is_loopback
from penstock.admin.api import AdminApi
from penstock.errors import PenstockError
from penstock.running.event_loop import start_server
from penstock.running.sockets import Address, describe, listen
from penstock.wires.http.limits import HttpLimits
from penstock.wires.http.protocol import HttpServer

DEFAULT_PORT = 6070
# Enough for a few operators and a scraper.
LIMITS = HttpLimits(
    body=262_144, request_time=5.0, idle_time=60.0, write_time=10.0, pipeline=8, connections=256
)

logger = logging.getLogger("penstock.admin")


class AdminError(PenstockError, ValueError):
    """The admin API cannot listen there; the message says what is missing."""


class AdminServer:
    """Listens on one address or several. ``tls`` is a context for all of them."""

    def __init__(
        self, api: AdminApi, *, limits: HttpLimits = LIMITS, tls: ssl.SSLContext | None = None
    ) -> None:
        self._api = api
        self._tls = tls
        self._http = HttpServer(api, limits)
        self._servers: list[asyncio.Server] = []

    async def listen(self, address: Address) -> str:
        """``(host, port)`` or the path of a Unix socket; the address as people write it."""
        if isinstance(address, tuple):
            self._check(reachable(address[0]), address[0] or "all addresses")
        (listener,) = listen(address)
        try:
            return await self.serve(listener)
        except BaseException:
            listener.close()
            raise

    async def serve(self, listener: socket.socket) -> str:
        """Like `listen`, on a socket that already listens."""
        if listener.family != socket.AF_UNIX:
            host = listener.getsockname()[0]
            self._check(not is_loopback(host), host)
            if not is_loopback(host) and self._tls is None:
                logger.warning(
                    "the admin API on %s has no TLS: its token is sent in the clear",
                    describe(listener),
                )
        options: dict[str, Any] = {}
        if self._tls is not None:
            limit = self._http.limits.request_time
            options = {"ssl": self._tls, "ssl_handshake_timeout": limit, "ssl_shutdown_timeout": 1}
        self._servers.append(await start_server(self._http.factory, listener, **options))
        return describe(listener)

    def _check(self, outside: bool, host: str) -> None:
        if outside and not self._api.access.tokens:
            raise AdminError(
                f"the admin API on {host} can be reached from other machines and has no token: give"
                " it one (admin_token_file), or let it listen on 127.0.0.1"
            )

    async def readmit(self, admits: Callable[[asyncio.BaseTransport], bool]) -> None:
        """Close the connections that would no longer be accepted."""
        await self._http.readmit(admits, self._http.limits.request_time)

    async def close(self, grace: float = 1.0) -> None:
        """Stop accepting, answer open requests, and finish changes in progress."""
        for server in self._servers:
            server.close()
        await self._http.drain(grace)
        await self._api.settle()
        self._servers.clear()


def reachable(host: str) -> bool:
    """Whether other machines can reach an address of this name; "" stands for all addresses."""
    if not host:
        return True
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AdminError(f"the admin API cannot listen on {host!r:.100}: {error}") from None
    return not all(is_loopback(str(place[0])) for *_, place in addresses)
