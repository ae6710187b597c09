"""Routers: which node gets a call, and which server is the master now.

A single server is one node for all keys. So is a master behind sentinels, which are asked for its
address before each connection. In a cluster, each master is a node, found by the key's slot. The
map of slots is fetched once, and again when a node reports that a slot has moved, or stops
answering. Until the map is there, calls wait, no longer than their deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from redis.crc import key_slot

from penstock.circuit import CLOSED
from penstock.errors import StoreUnavailable
from penstock.stores.redis.address import Address
from penstock.stores.redis.connection import Connection
from penstock.stores.redis.node import Node
from penstock.stores.redis.pending_call import PendingCall
from penstock.stores.redis.reconnect import Reconnector
from penstock.stores.redis.settings import Settings

SLOTS = 16384
# Seconds between two fetches of the map: many calls may learn of a move at once.
FETCH_EVERY = 0.1

Place = tuple[str, int]


class Router:
    """One node for all calls."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._node = Node(settings, loop, str(settings.target), self._master)
        self.nodes: Iterable[Node] = (self._node,)
        self.put = self._node.put

    @property
    def refusal(self) -> str | None:
        """Why no server is asked now, if so; may be read in any thread."""
        breaker = self._node.server.breaker
        return None if breaker.state == CLOSED else breaker.reason

    @property
    def connecting(self) -> bool:
        return self._node.server.reconnector.active

    async def connect(self) -> None:
        """Return when decisions can be made, or raise `StoreUnavailable`."""
        await self._node.server.connected()

    def close(self) -> None:
        self._node.server.close()

    async def _master(self) -> Address:
        """The server's address, or the master's from the first sentinel that knows it."""
        target = self._settings.target
        if target.master is None:
            return target.seeds[0]
        problems = []
        # Each gets its part of the time: the first ones may be dead and never answer.
        timeout = self._settings.connect_timeout / len(target.seeds)
        for seed in target.seeds:
            try:
                connection = Connection(await seed.open(timeout))
                try:
                    place = await connection.call(
                        "SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service
                    )
                finally:
                    connection.close()
                if place:
                    return target.master.at(place[0].decode(), int(place[1]))
                problems.append(f"{seed} does not know {target.service!r}")
            except Exception as error:  # as in Reconnector: this sentinel does not help
                problems.append(f"{seed}: {type(error).__name__} {error}")
        raise StoreUnavailable(f"no sentinel names a master: {'; '.join(problems)}")


class ClusterRouter:
    """Sends each call to the master of its slot."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._login = settings.target.seeds[0]
        self._nodes: dict[Place, Node] = {}
        self._masters: list[Node | None] = [None] * SLOTS
        self._waiting: deque[PendingCall] = deque()
        self._loop = loop
        self._fetched_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._known = False
        self._degrade = settings.fallback.degrade
        self._reconnector = Reconnector(
            settings, loop, str(settings.target), self._fetch, self._fetch_failed
        )
        self.breaker = self._reconnector.breaker

    @property
    def nodes(self) -> Iterable[Node]:
        return self._nodes.values()

    @property
    def refusal(self) -> str | None:
        """Why no node is asked now, if so; may be read in any thread."""
        return None if self._known or self.breaker.state == CLOSED else self.breaker.reason

    @property
    def connecting(self) -> bool:
        return (
            self._reconnector.active
            or self._timer is not None
            or any(node.server.reconnector.active for node in [*self._nodes.values()])
        )

    def put(self, call: PendingCall) -> None:
        call.slot = key_slot(call.first.key)
        node = self._masters[call.slot]
        if node is not None:
            node.put(call)
        elif self._known:
            self._degrade(call, f"no node serves slot {call.slot}")
            self.fetch_soon()
        elif self.breaker.state != CLOSED:
            self._degrade(call, self.breaker.reason)
        elif len(self._waiting) >= self._settings.max_pending:
            self._degrade(call, "too many decisions are waiting already")
        else:
            self._waiting.append(call)
            self._reconnector.start()

    async def connect(self) -> None:
        if not self._known:
            await self._reconnector.wait()
        await asyncio.gather(*(node.server.connected() for node in self._nodes.values()))

    def close(self) -> None:
        self._reconnector.stop()
        if self._timer is not None:
            self._timer.cancel()
        for node in self._nodes.values():
            node.server.close()
        while self._waiting:
            self._degrade(self._waiting.popleft(), "the store was closed")

    def redirect(self, call: PendingCall, slot: int, host: str, port: int, once: bool) -> None:
        """Send a call to the node that another one named."""
        node = self._node(host or self._login.place[0], port)
        call.asking = call.alone = once
        if not once:
            self._masters[slot] = node
            self.fetch_soon()
        node.put(call)

    def _node(self, host: str, port: int) -> Node:
        node = self._nodes.get((host, port))
        if node is None:
            address = self._login.at(host, port)

            async def resolve() -> Address:
                return address

            node = Node(
                self._settings, self._loop, str(address), resolve, self.redirect, self.fetch_soon
            )
            self._nodes[host, port] = node
        return node

    def fetch_soon(self) -> None:
        """Fetch the map soon, but not too often."""
        if self._timer is None:
            wait = max(0.0, self._fetched_at + FETCH_EVERY - time.monotonic())
            self._timer = self._loop.call_later(wait, self._fetch_now)

    def _fetch_now(self) -> None:
        self._timer = None
        self._fetched_at = time.monotonic()
        self._reconnector.start()

    async def _fetch(self) -> None:
        problems: list[str] = []
        for connection, place, is_new in await self._to_ask(problems):
            try:
                async with asyncio.timeout(self._settings.connect_timeout):
                    self._learn(await connection.call("CLUSTER", "SLOTS"), place)
                break
            except Exception as error:  # as in Reconnector
                problems.append(f"{place[0]}:{place[1]}: {type(error).__name__} {error}")
            finally:
                if is_new:
                    connection.close()
        else:
            raise StoreUnavailable(f"no node tells the map of slots: {'; '.join(problems)}")
        self._known = True
        self._reconnector.succeed()
        while self._waiting:
            self.put(self._waiting.popleft())
        if any(node.server.breaker.state != CLOSED for node in self._masters_now()):
            self.fetch_soon()  # until another node has taken its place

    async def _to_ask(self, problems: list[str]) -> list[tuple[Connection, Place, bool]]:
        """Connections to nodes that should know the map: the open ones, or a new one."""
        is_open = [
            (node.server.connection, place, False)
            for place, node in self._nodes.items()
            if node.server.connection is not None
        ]
        if is_open:
            return is_open
        places = [*(seed.place for seed in self._settings.target.seeds), *self._nodes]
        for place in dict.fromkeys(places):
            try:
                writer = await self._login.at(*place).open(self._settings.connect_timeout)
            except Exception as error:  # as in Reconnector
                problems.append(f"{place[0]}:{place[1]}: {type(error).__name__} {error}")
            else:
                return [(Connection(writer), place, True)]
        return []

    def _learn(self, slots: list[Any], place: Place) -> None:
        masters: list[Node | None] = [None] * SLOTS
        for start, end, master, *_ in slots:
            host = master[0].decode() if master[0] else place[0]
            node = self._node(host, int(master[1]))
            masters[start : end + 1] = [node] * (end + 1 - start)
        self._masters = masters
        current = set(self._masters_now())
        for address, node in [*self._nodes.items()]:
            if node not in current and not node.busy:
                del self._nodes[address]
                node.server.retire()

    def _masters_now(self) -> set[Node]:
        return {node for node in self._masters if node is not None}

    def _fetch_failed(self, reason: str) -> None:
        # Once there is a map, it stays in use: each node has its own breaker.
        reason = self._reconnector.trip(reason, silent=self._known)
        while self._waiting:
            self._degrade(self._waiting.popleft(), reason)
