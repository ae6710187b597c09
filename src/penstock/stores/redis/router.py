"""Routers: which node decides on a ticket, and who is the master now.

One server is a cluster of one node. Behind sentinels it is the same, but for its
address, which is asked for on every connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from penstock.errors import StoreUnavailable
from penstock.stores.redis.address import Address, Target
from penstock.stores.redis.breaker import CLOSED
from penstock.stores.redis.link import Link
from penstock.stores.redis.node import Node
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.ticket import Ticket


class Router:
    """One node for all."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._node = Node(settings, loop, str(settings.target), self._master)

    def put(self, ticket: Ticket) -> None:
        ticket.node = self._node
        self._node.put(ticket)

    @property
    def refusal(self) -> str | None:
        """Why nobody is asked now, if so; may be read in any thread."""
        breaker = self._node.breaker
        return None if breaker.state == CLOSED else breaker.reason

    @property
    def connecting(self) -> bool:
        return self._node.connecting

    async def connect(self) -> None:
        """Return when decisions can be made, or raise `StoreUnavailable`."""
        await self._node.connected()

    @property
    def nodes(self) -> Iterable[Node]:
        return (self._node,)

    def close(self) -> None:
        self._node.close()

    async def _master(self) -> Address:
        target = self._settings.target
        if target.kind == "single":
            return target.seeds[0]
        return await ask_sentinels(target, self._settings.connect_timeout)


async def ask_sentinels(target: Target, seconds: float) -> Address:
    """The master by the first sentinel that knows one."""
    assert target.master is not None
    wrong = []
    # Each gets its part of the time: the first ones may be dead, without saying so.
    patience = seconds / len(target.seeds)
    for seed in target.seeds:
        try:
            link = Link(await seed.open(patience))
            try:
                found = await link.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service)
            finally:
                link.close()
            if found:
                return target.master.at(found[0].decode(), int(found[1]))
            wrong.append(f"{seed} does not know {target.service!r}")
        except Exception as error:  # as in Keeper: whatever it is, this one is of no use
            wrong.append(f"{seed}: {type(error).__name__} {error}")
    raise StoreUnavailable(f"no sentinel names a master: {'; '.join(wrong)}")
