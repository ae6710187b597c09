"""ClusterRouter: a node for each master of a Redis Cluster, found by the key's slot.

The map of slots is asked for once, and again when a node says that a slot has moved, or
stops answering. Until it is there, tickets wait, no longer than their deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from redis.crc import key_slot

from penstock.errors import StoreUnavailable
from penstock.events import StoreDown, StoreUp
from penstock.stores.redis.address import Address
from penstock.stores.redis.breaker import CLOSED, Breaker
from penstock.stores.redis.keeper import Keeper
from penstock.stores.redis.link import Link
from penstock.stores.redis.node import Node
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.ticket import Ticket

SLOTS = 16384
# Between two looks at the map, in seconds: many tickets may hear of a move at once.
LOOK_EVERY = 0.1

Place = tuple[str, int]


class ClusterRouter:
    """Sends each ticket to the master of its slot."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._login = settings.target.seeds[0]
        self._nodes: dict[Place, Node] = {}
        self._masters: list[Node | None] = [None] * SLOTS
        self._waiting: deque[Ticket] = deque()
        self._wakers: list[asyncio.Future[None]] = []
        self._loop = loop
        self._looked_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._known = False
        self.breaker = Breaker(settings.deadline)
        self._keeper = Keeper(loop, self.breaker, self._look, self._blind)

    @property
    def nodes(self) -> Iterable[Node]:
        return self._nodes.values()

    @property
    def refusal(self) -> str | None:
        """Why nobody is asked now, if so; may be read in any thread."""
        return None if self._known or self.breaker.state == CLOSED else self.breaker.reason

    @property
    def connecting(self) -> bool:
        return (
            self._keeper.active
            or self._timer is not None
            or any(node.connecting for node in [*self._nodes.values()])
        )

    def put(self, ticket: Ticket) -> None:
        ticket.slot = key_slot(ticket.key)
        node = self._masters[ticket.slot]
        if node is not None:
            ticket.node = node
            node.put(ticket)
        elif self._known:
            self._settings.degrade(ticket, f"no node serves slot {ticket.slot}")
            self.look_again()
        elif self.breaker.state != CLOSED:
            self._settings.degrade(ticket, self.breaker.reason)
        elif len(self._waiting) >= self._settings.max_pending:
            self._settings.degrade(ticket, "too many decisions are waiting already")
        else:
            self._waiting.append(ticket)
            self._keeper.start()

    async def connect(self) -> None:
        if not self._known:
            waker: asyncio.Future[None] = self._loop.create_future()
            self._wakers.append(waker)
            self._keeper.start()
            await waker
        await asyncio.gather(*(node.connected() for node in self._nodes.values()))

    def close(self) -> None:
        self._keeper.stop()
        if self._timer is not None:
            self._timer.cancel()
        for node in self._nodes.values():
            node.close()
        while self._waiting:
            self._settings.degrade(self._waiting.popleft(), "the store was closed")

    # Redirections ----------------------------------------------------------------------

    def redirect(self, ticket: Ticket, slot: int, host: str, port: int, once: bool) -> None:
        """A node says that another one decides on this ticket."""
        node = self._node(host or self._login.place[0], port)
        ticket.node = node
        ticket.asking = ticket.alone = once
        if not once:
            self._masters[slot] = node
            self.look_again()
        node.put(ticket)

    def _node(self, host: str, port: int) -> Node:
        found = self._nodes.get((host, port))
        if found is None:
            address = self._login.at(host, port)

            async def resolve() -> Address:
                return address

            found = Node(
                self._settings, self._loop, str(address), resolve, self.redirect, self.look_again
            )
            self._nodes[host, port] = found
        return found

    # The map ----------------------------------------------------------------------------

    def look_again(self) -> None:
        """Ask for the map soon, but not more often than now and then."""
        if self._timer is None:
            wait = max(0.0, self._looked_at + LOOK_EVERY - time.monotonic())
            self._timer = self._loop.call_later(wait, self._look_now)

    def _look_now(self) -> None:
        self._timer = None
        self._looked_at = time.monotonic()
        self._keeper.start()

    async def _look(self) -> None:
        wrong: list[str] = []
        for link, name, own in await self._to_ask(wrong):
            try:
                async with asyncio.timeout(self._settings.connect_timeout):
                    self._learn(await link.call("CLUSTER", "SLOTS"), name)
                break
            except Exception as error:  # as in Keeper
                wrong.append(f"{name[0]}:{name[1]}: {type(error).__name__} {error}")
            finally:
                if own:
                    link.close()
        else:
            raise StoreUnavailable(f"no node tells the map of slots: {'; '.join(wrong)}")
        if self.breaker.state != CLOSED and not self._known:
            seconds = time.monotonic() - self.breaker.opened_at
            self._settings.emit(StoreUp(str(self._settings.target), seconds))
        self.breaker.close()
        self._known = True
        for waker in self._wakers:
            if not waker.done():
                waker.set_result(None)
        self._wakers.clear()
        while self._waiting:
            self.put(self._waiting.popleft())
        if any(node.breaker.state != CLOSED for node in self._masters_now()):
            self.look_again()  # until somebody else has taken its place

    async def _to_ask(self, wrong: list[str]) -> list[tuple[Link, Place, bool]]:
        """Links to nodes that should know, the open ones first."""
        found = [
            (node.link, place, False)
            for place, node in self._nodes.items()
            if node.link is not None
        ]
        if found:
            return found
        places = [*(seed.place for seed in self._settings.target.seeds), *self._nodes]
        for place in dict.fromkeys(places):
            try:
                writer = await self._login.at(*place).open(self._settings.connect_timeout)
            except Exception as error:  # as in Keeper
                wrong.append(f"{place[0]}:{place[1]}: {type(error).__name__} {error}")
            else:
                return [(Link(writer), place, True)]
        return []

    def _learn(self, told: list[Any], asked: Place) -> None:
        masters: list[Node | None] = [None] * SLOTS
        for start, end, master, *_ in told:
            host = master[0].decode() if master[0] else asked[0]
            node = self._node(host, int(master[1]))
            masters[start : end + 1] = [node] * (end + 1 - start)
        self._masters = masters
        current = set(self._masters_now())
        for place, node in [*self._nodes.items()]:
            if node not in current and not node.busy:
                del self._nodes[place]
                node.retire()

    def _masters_now(self) -> set[Node]:
        return {node for node in self._masters if node is not None}

    def _blind(self, reason: str) -> None:
        reason = self._settings.hide(reason)
        name = str(self._settings.target)
        if self._known:  # the old map is better than none; the nodes' own breakers see to it
            self.breaker.trip(time.monotonic(), reason)
            return
        if self.breaker.trip(time.monotonic(), reason):
            self._settings.emit(StoreDown(name, reason))
        while self._waiting:
            self._settings.degrade(self._waiting.popleft(), reason)
        for waker in self._wakers:
            if not waker.done():
                waker.set_exception(StoreUnavailable(f"{name}: {reason}"))
        self._wakers.clear()
