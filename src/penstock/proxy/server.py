"""ProxyServer: all connections on both sides, the rules, and time-outs."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate

from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.identity import X_FORWARDED_FOR
from penstock.integrations.deciding.outcome import FromGate, Outcome
from penstock.proxy.client import ClientConnection
from penstock.proxy.limits import ProxyLimits
from penstock.proxy.pool import Pool
from penstock.proxy.request import ProxyRequest
from penstock.proxy.target import Target
from penstock.service.service import Observer
from penstock.wires.http.messages import HttpRequest, HttpResponse, encoded


class ProxyServer:
    """A reverse proxy in front of one server.

    - ``checkpoint``: decides, as in middleware, and says which proxies are trusted
    - ``forwarded``: the header that trusted proxies set, as configured in the checkpoint
    - ``observer``: called for every decision of the rules, with ``domain``
    """

    def __init__(
        self,
        checkpoint: HttpCheckpoint,
        target: Target | str,
        *,
        limits: ProxyLimits | None = None,
        forwarded: str = X_FORWARDED_FOR,
        observer: Observer | None = None,
        domain: str = "",
    ) -> None:
        self.checkpoint = checkpoint
        self.limits = limits or ProxyLimits()
        self.pool = Pool(Target(target) if isinstance(target, str) else target, self.limits)
        self.forwarded = forwarded
        self.connections: set[ClientConnection] = set()
        self.draining = False
        self.requests = 0
        self.refused = 0  # requests, by rules
        self.failed = 0  # requests, because of the server
        self.turned_away = 0  # connections, above the limit
        self.cut_off = 0  # connections, too slow
        self._observer = observer
        self._domain = domain
        self._date = (0, b"")
        self._sweeping: asyncio.TimerHandle | None = None

    def factory(self) -> ClientConnection:
        """The protocol factory for ``loop.create_server``."""
        return ClientConnection(self)

    async def check(self, request: ProxyRequest) -> Outcome | None:
        observer = self._observer
        if observer is None:
            return await self.checkpoint.check_async(request)
        start = time.perf_counter()
        outcome = await self.checkpoint.check_async(request)
        if isinstance(outcome, FromGate):
            observer.decided(self._domain, outcome.verdict, time.perf_counter() - start)
        return outcome

    def encoded(
        self, response: HttpResponse, request: ProxyRequest | HttpRequest, keeps: bool
    ) -> bytes:
        """The bytes of our own response."""
        plain = HttpRequest(request.peer)
        plain.method, plain.version = request.method, request.version
        return encoded(response, plain, self._now(), keeps)

    def _now(self) -> bytes:
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    # Connections ---------------------------------------------------------------------------

    def joined(self, connection: ClientConnection) -> bool:
        """Register a connection; False if there are too many."""
        if self.draining or len(self.connections) >= self.limits.client.connections:
            self.turned_away += 1
            return False
        self.connections.add(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(1.0, self.sweep)
        return True

    def left(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)

    def sweep(self) -> None:
        """Close connections that are too slow, once a second: no timer for each request."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [*self.connections]:
            connection.judge(now)
        self.pool.judge(now)
        busy = bool(self.connections or self.pool.connections)
        self._sweeping = loop.call_later(1.0, self.sweep) if busy else None

    async def drain(self, grace: float) -> None:
        """Finish exchanges in progress, accept no more, and close. Close the listeners before."""
        self.draining = True
        loop = asyncio.get_running_loop()
        end = loop.time() + grace
        for connection in [*self.connections]:
            connection.close_when_idle()
        while self.connections and loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in [*self.connections]:
            connection.abort()
        self.pool.close()
        while (self.connections or self.pool.connections) and loop.time() < end + 1:
            await asyncio.sleep(0.01)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
