"""Router: which node gets a call, and which server is the master now.

A single server is one node for all keys. So is a master behind sentinels, whose address they
are asked for before each connection. For a cluster see cluster.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from penstock.errors import StoreUnavailable
from penstock.stores.redis.address import Address, Target
from penstock.stores.redis.breaker import CLOSED
from penstock.stores.redis.connection import Connection
from penstock.stores.redis.node import Node
from penstock.stores.redis.settings import Settings


class Router:
    """One node for all calls."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._node = Node(settings, loop, str(settings.target), self._master)
        self.put = self._node.put

    @property
    def refusal(self) -> str | None:
        """Why no server is asked now, or None if one is; may be read in any thread."""
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
    """The master's address, from the first sentinel that knows it."""
    assert target.master is not None
    problems = []
    # Each gets its part of the time: the first ones may be dead and never answer.
    patience = seconds / len(target.seeds)
    for seed in target.seeds:
        try:
            connection = Connection(await seed.open(patience))
            try:
                place = await connection.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service)
            finally:
                connection.close()
            if place:
                return target.master.at(place[0].decode(), int(place[1]))
            problems.append(f"{seed} does not know {target.service!r}")
        except Exception as error:  # as in Reconnector: this sentinel does not help
            problems.append(f"{seed}: {type(error).__name__} {error}")
    raise StoreUnavailable(f"no sentinel names a master: {'; '.join(problems)}")
