"""redis-py clients of a backend: one for all threads, and one for each event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import Any

from redis.exceptions import MovedError

from penstock.stores.redis.address import Target, read_target
from penstock.stores.redis.clients import COROUTINES, THREADS, Half, make_client

# More at once would open more connections than small values need.
_AT_ONCE = 8
# A step: a method of redis-py's clients and its arguments, or "on_primary".
Command = tuple[Any, ...]


class Clients:
    """Sends the commands of flows. Connects when the first one is sent."""

    def __init__(self, where: object, timeout: float) -> None:
        self.target = read_target(where)
        self.name = str(self.target)
        self._timeout = timeout
        self._inherited: list[Any] = []
        self._clean()

    def _clean(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._client: Any = None
        self._primaries: dict[tuple[str, int], Any] = {}
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._async_turns: weakref.WeakKeyDictionary[Any, asyncio.Semaphore]
        self._async_turns = weakref.WeakKeyDictionary()
        self._async_clients: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._async_primaries: dict[tuple[Any, str, int], Any] = {}

    def _start_over_if_forked(self) -> None:
        if self._process != os.getpid():  # connections of the parent are left as they are
            self._inherited.append((self._client, self._primaries, dict(self._async_clients)))
            self._clean()

    def hide(self, text: str) -> str:
        """``text`` without passwords."""
        for address in self.target.addresses:
            if password := address.settings.get("password"):
                text = text.replace(str(password), "***")
        return text

    def make(self, half: Half, target: Target | None = None) -> Any:
        return make_client(half, target or self.target, self._timeout, self._timeout)

    def single(self, host: str, port: int) -> Target:
        """One node of a cluster."""
        return Target("single", (self.target.seeds[0].at(host, port),))

    # For threads ---------------------------------------------------------------------------

    def send(self, command: Command) -> Any:
        client = self._client_of_threads()
        with self._turns:
            return self._send(client, command)

    def _send(self, client: Any, command: Command) -> Any:
        name, *arguments = command
        if name != "on_primary":
            return getattr(client, name)(*arguments)
        key, *calls = arguments
        if self.target.kind != "cluster":
            return _pipeline(client, calls).execute()
        node = client.get_node_from_key(key)
        try:
            return _pipeline(self._primary(node.host, node.port), calls).execute()
        except MovedError as moved:
            return _pipeline(self._primary(moved.host, moved.port), calls).execute()

    def _client_of_threads(self) -> Any:
        self._start_over_if_forked()
        with self._lock:
            if self._client is None:  # in a cluster, this connects
                self._client = self.make(THREADS)
            return self._client

    def _primary(self, host: str, port: int) -> Any:
        with self._lock:
            if (host, port) not in self._primaries:
                self._primaries[host, port] = self.make(THREADS, self.single(host, port))
            return self._primaries[host, port]

    def close(self) -> None:
        self._start_over_if_forked()
        with self._lock:
            clients = [*self._primaries.values(), *([self._client] if self._client else [])]
            self._client, self._primaries = None, {}
        for client in clients:
            client.close()

    # For tasks -----------------------------------------------------------------------------

    async def send_async(self, command: Command) -> Any:
        client = self.client_of_loop()
        async with self._async_turns[asyncio.get_running_loop()]:
            return await self._send_async(client, command)

    async def _send_async(self, client: Any, command: Command) -> Any:
        name, *arguments = command
        if name != "on_primary":
            return await getattr(client, name)(*arguments)
        key, *calls = arguments
        if self.target.kind != "cluster":
            return await _pipeline(client, calls).execute()
        await client.initialize()
        node = client.get_node_from_key(key)
        try:
            return await _pipeline(self._async_primary(node.host, node.port), calls).execute()
        except MovedError as moved:
            return await _pipeline(self._async_primary(moved.host, moved.port), calls).execute()

    def client_of_loop(self) -> Any:
        self._start_over_if_forked()
        loop = asyncio.get_running_loop()
        if loop not in self._async_clients:
            self._async_clients[loop] = self.make(COROUTINES)
            self._async_turns[loop] = asyncio.Semaphore(
                # An error in one task makes redis-py close the connections of all others.
                1 if self.target.kind == "cluster" else _AT_ONCE
            )
        return self._async_clients[loop]

    def _async_primary(self, host: str, port: int) -> Any:
        place = (asyncio.get_running_loop(), host, port)
        if place not in self._async_primaries:
            self._async_primaries[place] = self.make(COROUTINES, self.single(host, port))
        return self._async_primaries[place]

    async def aclose(self) -> None:
        """The clients of this event loop."""
        loop = asyncio.get_running_loop()
        client = self._async_clients.pop(loop, None)
        places = [place for place in self._async_primaries if place[0] is loop]
        primaries = [self._async_primaries.pop(place) for place in places]
        for each in (client, *primaries):
            if each is not None:
                await each.aclose()


def _pipeline(client: Any, calls: list[tuple[Any, ...]]) -> Any:
    """All on one connection, one after the other."""
    pipeline = client.pipeline(transaction=False)
    for call in calls:
        pipeline.execute_command(*call)
    return pipeline
