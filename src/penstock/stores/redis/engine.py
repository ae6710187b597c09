"""Engine: all that a store does in one event loop.

All calls get the same time, so they become late in the order in which they came. One timer, for
the first of them, is enough.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from penstock.errors import StoreUnavailable
from penstock.stores.redis.pending_call import PendingCall
from penstock.stores.redis.router import ClusterRouter, Router
from penstock.stores.redis.settings import Settings


class Engine:
    """Ensures that each call is settled within its deadline, whatever the servers do."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        kind = ClusterRouter if settings.target.kind == "cluster" else Router
        self.router: Router | ClusterRouter = kind(settings, loop)
        self._settings = settings
        self._patience = settings.deadline
        self._open: deque[PendingCall] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, call: PendingCall) -> None:
        call.due = time.monotonic() + self._patience
        self.forget_settled()
        self._open.append(call)
        if self._timer is None:
            self._timer = self.loop.call_later(self._patience, self._expire)
        self.router.put(call)

    @property
    def has_input(self) -> bool:
        """Whether a server sent something that was not read yet, or closed its connection."""
        connections = [node.server.connection for node in self.router.nodes]
        return any(connection and connection.has_input for connection in connections)

    def flush(self) -> None:
        """Send what is queued now, not at the end of this turn of the loop."""
        for node in self.router.nodes:
            node.flush()

    def forget_settled(self) -> None:
        """Drop calls that need no timer any more, a few at a time."""
        waiting = self._open
        while waiting and waiting[0].settled:
            waiting.popleft()

    def _expire(self) -> None:
        waiting, now = self._open, time.monotonic()
        late: list[PendingCall] = []
        while waiting and (waiting[0].settled or waiting[0].due <= now):
            call = waiting.popleft()
            if not call.settled:
                late.append(call)
        self._timer = None
        if waiting:
            self._timer = self.loop.call_later(waiting[0].due - now, self._expire)
        for missed in {call.missed for call in late}:
            if missed is not None:
                missed(now)
        for call in late:
            self._settings.fallback.degrade(call, f"no answer within {self._patience * 1e3:g} ms")

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
        """Its loop is closed already: close the sockets, so that the servers notice."""
        for node in self.router.nodes:
            if node.server.connection is not None:
                node.server.connection.hang_up()
