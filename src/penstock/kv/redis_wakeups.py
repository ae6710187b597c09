"""RedisWakeups: a subscription that tells a follower when something was written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any

from redis.exceptions import AuthorizationError, NoPermissionError, RedisError, ResponseError

from penstock.errors import StoreUnavailable
from penstock.kv.cancelling import cancel
from penstock.kv.redis_clients import Clients
from penstock.stores.redis.clients import COROUTINES

logger = logging.getLogger("penstock.kv")

# Seconds of one read; without a message the next one follows.
_READ = 60.0


class RedisWakeups:
    """In a cluster, a message reaches every node, so any of them will do."""

    def __init__(self, clients: Clients, channel: str) -> None:
        self._clients = clients
        self._channel = channel
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._pubsub: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._client = await self._subscriber()
            await self._warn_of_eviction()
            self._pubsub = self._client.pubsub()
            await self._pubsub.subscribe(self._channel)
            await self._pubsub.get_message(timeout=_READ)  # the confirmation
        except (NoPermissionError, AuthorizationError) as error:
            logger.warning(
                "%s: changes are noticed only every few seconds, because the user may not"
                " subscribe to %r: %s", self._clients.name, self._channel, error,
            )  # fmt: skip
            return
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from None
        self._reader = asyncio.create_task(self._read())

    async def _subscriber(self) -> Any:
        if self._clients.target.kind != "cluster":
            return self._clients.make(COROUTINES)
        cluster = self._clients.client_of_loop()
        await cluster.initialize()
        node = random.choice(cluster.get_nodes())
        return self._clients.make(COROUTINES, self._clients.single(node.host, node.port))

    async def _warn_of_eviction(self) -> None:
        with contextlib.suppress(ResponseError):  # the user may not ask
            policy = str((await self._client.info("memory")).get("maxmemory_policy", ""))
            if policy.startswith("allkeys-"):
                logger.warning(
                    "%s may evict rules and overrides when its memory is full: its"
                    " maxmemory-policy is %s, and should be noeviction or one of volatile-*",
                    self._clients.name, policy,
                )  # fmt: skip

    async def _read(self) -> None:
        try:
            while True:
                message = await self._pubsub.get_message(
                    ignore_subscribe_messages=True, timeout=_READ
                )
                if message is not None:
                    self._event.set()
        except (RedisError, OSError) as error:
            self._error = error
            self._event.set()

    def wake(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        if self._error is not None:
            raise self._unavailable(self._error)
        return True

    async def close(self) -> None:
        if self._reader is not None:
            await cancel(self._reader)
        for each in (self._pubsub, self._client):
            if each is not None:
                with contextlib.suppress(RedisError, OSError):
                    await each.aclose()

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        reason = self._clients.hide(str(error)) or type(error).__name__
        return StoreUnavailable(f"{self._clients.name}: {reason}")
