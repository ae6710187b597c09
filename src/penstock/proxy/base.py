"""ProxyBase: what all connections of a proxy share: the rules, the pool, and counters."""

from __future__ import annotations

import asyncio
import time

from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.identity import X_FORWARDED_FOR
from penstock.integrations.deciding.outcome import FromGate, Outcome
from penstock.proxy.limits import ProxyLimits
from penstock.proxy.pool import Pool
from penstock.proxy.request import ProxyRequest
from penstock.proxy.target import Target
from penstock.service.service import Observer
from penstock.wires.http.connections import Connection, Connections
from penstock.wires.http.messages import HttpRequest, HttpResponse, encoded


class ProxyBase(Connections[Connection]):
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
        super().__init__(self.limits.client.connections)
        self.pool = Pool(Target(target) if isinstance(target, str) else target, self.limits)
        self.forwarded = forwarded
        self.refused = 0  # requests, by rules
        self.failed = 0  # requests, because of the server
        self._observer = observer
        self._domain = domain

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
        return encoded(response, plain, self.date(), keeps)

    def judge(self, now: float) -> None:
        super().judge(now)
        self.pool.judge(now)

    def is_open(self) -> bool:
        return bool(self.connections or self.pool.connections)

    async def drain(self, grace: float) -> None:
        """Finish exchanges in progress, accept no more, and close. Close the listeners before."""
        await super().drain(grace)
        self.pool.close()
        loop = asyncio.get_running_loop()
        end = loop.time() + 1
        while self.is_open() and loop.time() < end:
            await asyncio.sleep(0.01)
