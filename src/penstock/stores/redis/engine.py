"""Engine: all that a store does in one event loop.

Every ticket has the same patience, so tickets run out in the order in which they came: one
timer, for the first of them, is enough for all.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from penstock.errors import StoreUnavailable
from penstock.stores.redis.cluster import ClusterRouter
from penstock.stores.redis.node import Node
from penstock.stores.redis.router import Router
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.ticket import Ticket


class Engine:
    """Tickets in; each is settled within its deadline, whatever the servers do."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        kind = ClusterRouter if settings.target.kind == "cluster" else Router
        self.router: Router | ClusterRouter = kind(settings, loop)
        self._settings = settings
        self._patience = settings.deadline
        self._open: deque[Ticket] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, ticket: Ticket) -> None:
        ticket.due = time.monotonic() + self._patience
        self.forget_settled()
        self._open.append(ticket)
        if self._timer is None:
            self._timer = self.loop.call_later(self._patience, self._expire)
        self.router.put(ticket)

    @property
    def has_news(self) -> bool:
        """Whether a server said something that nobody has read, or left."""
        return any(node.link is not None and node.link.has_news for node in self.router.nodes)

    def flush(self) -> None:
        """Send what waits, without waiting for the end of this turn."""
        for node in self.router.nodes:
            node.flush()

    def forget_settled(self) -> None:
        """Let go of tickets that need no timer any more, a few at a time."""
        waiting = self._open
        while waiting and waiting[0].settled:
            waiting.popleft()

    def _expire(self) -> None:
        waiting, now = self._open, time.monotonic()
        late: list[Ticket] = []
        while waiting and (waiting[0].settled or waiting[0].due <= now):
            ticket = waiting.popleft()
            if not ticket.settled:
                late.append(ticket)
        self._timer = None
        if waiting:
            self._timer = self.loop.call_later(waiting[0].due - now, self._expire)
        for node in {ticket.node for ticket in late}:
            if node is not None:
                node.missed(now)
        for ticket in late:
            self._settings.degrade(ticket, f"no answer within {self._patience * 1e3:g} ms")

    async def connect(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.router.connect()
        except TimeoutError:
            raise StoreUnavailable(
                f"{self._settings.target} did not answer within {seconds:g} s"
            ) from None

    def close(self) -> None:
        self.router.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hang_up(self) -> None:
        """Its loop is closed already: at least the servers shall know."""
        for node in self.nodes:
            if node.link is not None:
                node.link.hang_up()

    @property
    def nodes(self) -> list[Node]:
        return [*self.router.nodes]
