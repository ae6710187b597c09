"""Server: one server, its clock, the connection to it, and whether it can be used.

A new connection must pass the handshake before any decision is sent over it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis

from penstock.circuit import CLOSED
from penstock.clock import SECOND, WallClock
from penstock.errors import StoreUnavailable
from penstock.stores.redis.address import Address
from penstock.stores.redis.connection import Connection
from penstock.stores.redis.reconnect import Reconnector
from penstock.stores.redis.script import Script
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.wire import decode, encode


class ServerClock(WallClock):
    """Estimates a server's time: never ahead of it, and behind by the network delay at most.

    An answer contains the server's time when it was written, which was before it arrived. So
    ``server - here`` is at most the true difference of the clocks. The largest of the last
    second is the best bound; older ones are dropped, as clocks get set. Before the first
    answer this is the machine's wall clock.
    """

    def __init__(self) -> None:
        self._ahead: int | None = None
        self._since = 0

    def seen(self, server: int, here: int) -> None:
        """It was ``server`` there, some time before it was ``here`` (monotonic) here."""
        ahead = server - here
        if self._ahead is None or ahead > self._ahead or here - self._since > SECOND:
            self._ahead = ahead
            self._since = here

    def at(self, here: int) -> int:
        """What the server's clock shows at least when it is ``here`` (monotonic)."""
        return time.time_ns() if self._ahead is None else self._ahead + here

    def now(self) -> int:
        return self.at(time.monotonic_ns())


class Server:
    """Connects, and reconnects after the connection is lost or answers are late.

    ``on_connected`` is called when calls can be sent, ``on_disconnected`` with the reason when
    they cannot. ``on_trouble`` is called when another server may have to take its place.
    """

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        name: str,
        resolve: Callable[[], Awaitable[Address]],
        on_connected: Callable[[], None],
        on_disconnected: Callable[[str], None],
        on_trouble: Callable[[], None],
    ) -> None:
        self.connection: Connection | None = None
        self.clock = ServerClock()
        self.closed = False
        self.reconnector = Reconnector(settings, loop, name, self._connect, self.down)
        self.breaker = self.reconnector.breaker
        self.on_trouble = on_trouble
        self._settings = settings
        self._resolve = resolve
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected

    def missed(self, now: float) -> None:
        """The deadline of a call has passed."""
        if self.breaker.missed(now) and self.breaker.state == CLOSED:
            self.down(f"no answer within {self._settings.deadline * 1e3:g} ms")

    def down(self, reason: str) -> None:
        """Stop sending, and try to reconnect."""
        self._disconnect(self.reconnector.trip(reason))
        self.reconnector.start()
        self.on_trouble()

    def set_clocks(self, now: int) -> None:
        """An answer says that it was ``now`` in the server."""
        here = time.monotonic_ns()
        self.clock.seen(now, here)
        if isinstance(self._settings.clock, ServerClock):
            self._settings.clock.seen(now, here)

    async def connected(self) -> None:
        """Wait for the first connection, or raise the reason why there is none."""
        if self.connection is None:
            await self.reconnector.wait()

    def retire(self) -> None:
        """Other servers have taken its place; it no longer counts as down."""
        self.close()
        self.reconnector.succeed()

    def close(self) -> None:
        self.closed = True
        self.reconnector.stop()
        self._disconnect("the store was closed")

    async def _connect(self) -> None:
        settings = self._settings
        async with asyncio.timeout(settings.connect_timeout):
            address = await self._resolve()
            connection = Connection(await address.open(settings.connect_timeout))
            try:
                self.set_clocks(await _handshake(connection, settings.script, settings.deadline))
            except BaseException:
                connection.close()
                raise
        self.connection = connection
        connection.on_lost = self._lost
        self.reconnector.succeed()
        self._on_connected()

    def _lost(self, reason: Exception) -> None:
        """The connection ended by itself: try a new one before the server counts as down."""
        self.connection = None
        self.reconnector.start()

    def _disconnect(self, reason: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.on_lost = None
            connection.close()
        self._on_disconnected(reason)


async def _handshake(connection: Connection, script: Script, deadline: float) -> int:
    """Check that the server can decide, has the script, and answers in time.

    Returns the server's time, in nanoseconds since 1970.
    """
    role = await _if_permitted(connection.call("ROLE"))
    if type(role) is list and role and role[0] != b"master":
        raise StoreUnavailable("READONLY it is a replica")
    loaded = await _if_permitted(connection.call("SCRIPT", "LOAD", script.text))
    command = ("EVALSHA", script.sha) if loaded else ("EVAL", script.text)
    no_operations = [*encode([], 0), *script.more_arguments()]
    try:
        async with asyncio.timeout(deadline):
            reply = await connection.call(*command, *no_operations)
    except TimeoutError:
        raise StoreUnavailable("it answers, but slower than the deadline") from None
    return decode(reply, [])[0]


async def _if_permitted(call: Awaitable[Any]) -> Any:
    """The reply; None if an access list forbids the command, as it need not forbid the script."""
    try:
        return await call
    except hiredis.ReplyError as error:
        if str(error).startswith("NOPERM"):
            return None
        raise
