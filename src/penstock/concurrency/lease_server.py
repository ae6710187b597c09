"""LeaseServer: calls the script of the leases in Redis or Valkey, for threads and tasks.

Connections are redis-py's, made from the store's settings: one client for each event loop
and one for all threads. Every call of the script may be sent twice, so a dead connection
costs no more than opening a new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import resources
from typing import Any

from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from penstock import flows
from penstock.breaker import CircuitBreaker, CircuitChanged
from penstock.circuit import CLOSED, OPEN
from penstock.clock import Clock
from penstock.concurrency.leases import LeaseFlow, ScriptCall
from penstock.errors import ForeignValue, StoreError, StoreUnavailable
from penstock.events import Event, Hooks, StoreDown, StoreUp
from penstock.stores.redis import RedisStore
from penstock.stores.redis.server_errors import ServerError, server_error

logger = logging.getLogger("penstock.concurrency")

_SCRIPT = resources.files("penstock.concurrency").joinpath("leases.lua").read_text()
_SHA = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()
# More at once would open more connections than leases need.
_AT_ONCE = 8
# A method of redis-py's clients, and its arguments.
Command = tuple[Any, ...]


class NotAsked(StoreUnavailable):
    """Nothing was sent, because the server is considered down."""


class LeaseServer:
    """The server, the connections to it, and whether it is asked at all."""

    def __init__(self, store: RedisStore, timeout: float, clock: Clock, hooks: Hooks) -> None:
        self.name = store.name
        self._store = store
        self._timeout = timeout
        self._clock = clock
        self._hooks = hooks
        self._inherited: list[Any] = []
        self._clean()

    def _clean(self) -> None:
        self._down_since = 0
        self._breaker = CircuitBreaker(
            failures=1, ratio=0, pause="50ms", longest_pause="1s", name=self.name,
            clock=self._clock,
        )  # fmt: skip
        self._breaker.subscribe(self._changed)
        self._starting = threading.Lock()
        self._client: Any = None
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._clients: weakref.WeakKeyDictionary[Any, tuple[Any, asyncio.Semaphore]]
        self._clients = weakref.WeakKeyDictionary()

    @property
    def is_down(self) -> bool:
        return self._breaker.state != CLOSED

    # Flows -------------------------------------------------------------------------------

    def run(self, flow: LeaseFlow) -> Any:
        """Run a flow to its end, blocking."""
        return flows.run(flow, self._call)

    async def run_async(self, flow: LeaseFlow) -> Any:
        """Run a flow to its end, suspending."""
        return await flows.run_async(flow, self._call_async)

    def _call(self, call: ScriptCall) -> Any:
        with self._watched(call), self._turns:
            return flows.run(_commands(call), partial(_send, self._client_of_threads()))

    async def _call_async(self, call: ScriptCall) -> Any:
        client, turns = self._client_of_loop()
        with self._watched(call):
            async with turns:
                return await flows.run_async(_commands(call), partial(_send, client))

    @contextmanager
    def _watched(self, call: ScriptCall) -> Iterator[None]:
        """Record how the call went, and turn a failure into an error that says what it means."""
        breaker, permit = self._breaker, None
        if not call.insists:
            permit = breaker.allows()
            if permit is None:
                raise NotAsked(f"{self.name}: {breaker.reason}")
        try:
            yield
        except Exception as error:  # redis-py lets many kinds through
            ours = _answered_error(error, call)
            if ours is not None:
                breaker.succeeded(permit)
                raise ours from error
            reason = self._store.hide(f"{error}" or type(error).__name__)
            breaker.failed(permit, reason)
            raise StoreUnavailable(f"{self.name}: {reason}") from None
        except BaseException:
            breaker.gave_up(permit)
            raise
        if call.insists and breaker.state == OPEN:
            breaker.close()
        else:
            breaker.succeeded(permit)

    def _changed(self, event: Event) -> None:
        assert isinstance(event, CircuitChanged)
        if event.before == CLOSED:
            self._down_since = self._clock.now()
            logger.warning("%s is no longer asked for slots: %s", self.name, event.reason)
            self._hooks.emit(StoreDown(self.name, event.reason))
        elif event.state == CLOSED:
            seconds = max(0, self._clock.now() - self._down_since) / 1e9
            logger.warning("%s is asked for slots again after %.3f s", self.name, seconds)
            self._hooks.emit(StoreUp(self.name, seconds))

    # Connections -------------------------------------------------------------------------

    def _client_of_threads(self) -> Any:
        with self._starting:
            if self._client is None:  # in a cluster, this connects
                self._client = self._store.client(timeout=self._timeout)
            return self._client

    def _client_of_loop(self) -> tuple[Any, asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            client = self._store.client_async(timeout=self._timeout)
            self._clients[loop] = client, asyncio.Semaphore(_AT_ONCE)
        return self._clients[loop]

    def close(self) -> None:
        with self._starting:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def close_async(self) -> None:
        client, _ = self._clients.pop(asyncio.get_running_loop(), (None, None))
        if client is not None:
            await client.aclose()

    def start_over(self) -> None:
        """In a forked child: connections of the parent are left as they are."""
        self._inherited.append((self._client, dict(self._clients)))
        self._clean()


def _send(client: Any, command: Command) -> Any:
    return getattr(client, command[0])(*command[1:])


def _commands(call: ScriptCall) -> Generator[Command, Any, Any]:
    """The commands to send, by their names in redis-py."""
    arguments = (len(call.keys), *call.keys, *call.args)
    for last in (False, True):
        try:
            try:
                return (yield "evalsha", _SHA, *arguments)
            except NoScriptError:
                return (yield "eval", _SCRIPT, *arguments)
        except ConnectionError:
            if last:
                raise
    raise AssertionError("the last attempt returns or raises")


def _answered_error(error: Exception, call: ScriptCall) -> StoreError | None:
    """The error, if the call is at fault; None if the server is."""
    if isinstance(error, StoreError):
        return error
    if not isinstance(error, ResponseError):
        return None
    # redis-py drops the first word if it is ERR.
    text = str(error)
    kind = server_error(error)
    if kind is ServerError.WRONG:
        in_script = "script" in text
        kind = server_error(ResponseError(f"ERR {text}")) if in_script else ServerError.UNAVAILABLE
    if kind is ServerError.FOREIGN:
        return ForeignValue(f"{call.keys[0]!r} or a sibling was not written by Penstock: {text}")
    return StoreError(f"the lease script failed: {text}") if kind is ServerError.WRONG else None
