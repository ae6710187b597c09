"""Connections: those of one or several listeners, with their time-outs and their end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Generic, Protocol, TypeVar

# Seconds for a TLS handshake.
HANDSHAKE = 10.0


class Connection(Protocol):
    @property
    def transport(self) -> asyncio.Transport | None:
        """None once the connection is closed."""

    def judge(self, now: float) -> None:
        """Close the connection if it is too slow."""

    def close_when_idle(self) -> None:
        """Close after the requests in progress."""

    def abort(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Connections(Generic[C]):
    """At most ``most`` at a time; further ones are turned away."""

    def __init__(self, most: int) -> None:
        self.connections: set[C] = set()
        self.draining = False
        self.requests = 0
        self.turned_away = 0  # connections, above the limit
        self.cut_off = 0  # connections, too slow
        self._most = most
        self._date = (0, b"")
        self._sweeping: asyncio.TimerHandle | None = None

    def date(self) -> bytes:
        """The value of the Date field."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    def joined(self, connection: C) -> bool:
        """Register a connection; False if there are too many."""
        if self.draining or len(self.connections) >= self._most:
            self.turned_away += 1
            return False
        self.connections.add(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(1.0, self.sweep)
        return True

    def left(self, connection: C) -> None:
        self.connections.discard(connection)

    def sweep(self) -> None:
        """Close connections that are too slow, once a second: no timer for each request."""
        loop = asyncio.get_running_loop()
        self.judge(loop.time())
        self._sweeping = loop.call_later(1.0, self.sweep) if self.is_open() else None

    def judge(self, now: float) -> None:
        for connection in [*self.connections]:
            connection.judge(now)

    def is_open(self) -> bool:
        return bool(self.connections)

    async def readmit(
        self, admits: Callable[[asyncio.BaseTransport], bool], handshake: float = HANDSHAKE
    ) -> None:
        """Close the connections that would no longer be accepted, after their open requests.

        Once now, and once more when handshakes in progress must have ended.
        """
        for wait in (0.0, handshake):
            await asyncio.sleep(wait)
            for connection in [*self.connections]:
                transport = connection.transport
                if transport is not None and not admits(transport):
                    connection.close_when_idle()

    async def drain(self, grace: float) -> None:
        """Answer requests in progress, accept no more, and close. Close the listeners before."""
        self.draining = True
        for connection in [*self.connections]:
            connection.close_when_idle()
        loop = asyncio.get_running_loop()
        end = loop.time() + grace
        while self.connections and loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in [*self.connections]:
            connection.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
