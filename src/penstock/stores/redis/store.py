"""RedisStore: state in Redis or Valkey, shared by a fleet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from penstock import keys
from penstock.algorithms.words import NO_MARK
from penstock.clock import Clock
from penstock.decision import Decision
from penstock.durations import Duration, parse_duration
from penstock.events import Event, Hook, Hooks, StoreDown, StoreUp
from penstock.limit import Limit, check_policy, check_share
from penstock.stores.base import Counters, Store
from penstock.stores.redis.address import read_target
from penstock.stores.redis.clients import AsyncClient, Client, make_async_client, make_client
from penstock.stores.redis.counters import RedisCounters, Tag, as_tag
from penstock.stores.redis.engines import Engines
from penstock.stores.redis.fallback import Fallback
from penstock.stores.redis.groups import Group, Item, groups_of, in_order, refunds, taken_by
from penstock.stores.redis.pending_call import (
    AwaitableHit,
    KeyOperation,
    Mailbox,
    TaskCall,
    ThreadCall,
    UnattendedCall,
)
from penstock.stores.redis.server_clock import ServerClock
from penstock.stores.redis.settings import Script, Settings

logger = logging.getLogger("penstock.redis")


class RedisStore(Store):
    """The same decisions for every process that uses the same server.

    ``where`` is a URL (``redis://``, ``rediss://``, ``valkey://``, ``unix://``,
    ``redis+sentinel://``, ``redis+cluster://``) or a redis-py client, sync or async, whose
    settings are used for connections of the store's own.

    - ``deadline``: a decision takes no longer, whatever the server does
    - ``on_failure``: what is decided then: ``"open"``, ``"closed"`` or ``"local"``; a
      limit's own ``on_failure`` goes before
    - ``share``: with ``"local"``, which part of each limit is this process's
    - ``prefix``: what all keys begin with
    - ``tag``: in a cluster, the hash tag of a key: one ``str`` for all, or a function of
      the key. Keys with the same tag are decided on together, all or nothing
    - ``max_pending``: so many decisions may wait for one server, more are degraded at once
    - ``connect_timeout``: for one attempt to connect and log in
    """

    waits = True

    def __init__(
        self,
        where: object,
        *,
        deadline: Duration = "10ms",
        on_failure: str = "open",
        share: float = 1.0,
        prefix: str = "penstock",
        tag: str | Tag | None = None,
        max_pending: int = 10_000,
        connect_timeout: Duration = "500ms",
        max_local_keys: int = 100_000,
    ) -> None:
        super().__init__()
        target = read_target(where)
        if type(max_pending) is not int or max_pending < 1:
            raise ValueError(f"max_pending is a whole number of at least 1, not {max_pending!r}")
        self.name = str(target)  # where it is, without secrets
        self.on_failure = check_policy(on_failure)
        self._hooks = Hooks()
        self.prefix = keys.check_prefix(prefix)
        self._tag = as_tag(tag)
        self.fallback = Fallback(
            self.name, self.on_failure, check_share(share), max_local_keys, self._hooks
        )
        self._settings = Settings(
            target=target,
            deadline=parse_duration(deadline, "deadline") / 1e9,
            connect_timeout=parse_duration(connect_timeout, "connect_timeout") / 1e9,
            max_pending=max_pending,
            script=self._make_script(),
            clock=self._make_clock(),
            emit=_Emitter(self._hooks),
            degrade=self.fallback.degrade,
            decide=self.fallback.decide,
        )
        self._in_slots = target.kind == "cluster"
        self._engines = Engines(self._settings)
        # An attribute, not a method: it is called for every decision of a task.
        self.put = self._engines.put

    # Seams for tests, which tell the script what time it is --------------------------

    def _make_script(self) -> Script:
        return Script()

    def _make_clock(self) -> Clock:
        return ServerClock()

    # Deciding ------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """The server's time, as seen from here."""
        return self._settings.clock

    def hide(self, text: str) -> str:
        """``text`` without this store's secrets."""
        return self._settings.hide(text)

    def make_counters(self, limit: Limit) -> Counters:
        if (limit.on_failure or self.fallback.policy) == "local":
            self.fallback.counters(limit)  # if that does not work, it is an error now
        return RedisCounters(limit, self, self.prefix, self._tag)

    def release(self, limit: Limit) -> bool:
        return self.fallback.release(limit) and self.forget(limit)

    def ask(self, calls: Sequence[ThreadCall], mailbox: Mailbox) -> list[Any]:
        """Send, and block until each call has its answer."""
        self._engines.for_threads().ask(calls, mailbox)
        return [call.result() for call in calls]

    def ask_for_all(self, calls: Sequence[ThreadCall], mailbox: Mailbox) -> list[Any]:
        """The same, but if the thread is interrupted or a call fails, nothing was taken."""
        try:
            return self.ask(calls, mailbox)
        except BaseException:
            self._refund([r for call in calls for r in taken_by(call, call.outcome)], mailbox)
            raise

    def _refund(self, taken: list[KeyOperation], mailbox: Mailbox) -> None:
        back = self._in_redis(taken)
        if back:
            self.ask([ThreadCall(mailbox, [refund]) for refund in back], mailbox)

    async def hit(self, call: TaskCall) -> Any:
        """The answer to a hit. If the task is cancelled meanwhile, nothing is taken."""
        try:
            return await call.future
        except asyncio.CancelledError:
            self.drop([call])
            raise

    async def hits(self, calls: Sequence[TaskCall]) -> list[Any]:
        """The same for several, which all take or none does."""
        try:
            if len(calls) == 1:
                return [await calls[0].future]
            return await asyncio.gather(*(call.future for call in calls))
        except BaseException:
            self.drop(calls)
            raise

    def drop(self, calls: Sequence[TaskCall]) -> None:
        """Nobody wants the answers any more, so nothing is to be taken.

        This gives back hits that are answered already. Those that are under way are given
        back by the node when their answers come.
        """
        loop = calls[0].future.get_loop()
        for call in calls:
            call.future.cancel()
        self._refund_later(loop, [r for call in calls for r in taken_by(call, call.outcome)])

    def _refund_later(self, loop: asyncio.AbstractEventLoop, taken: list[KeyOperation]) -> None:
        for refund in self._in_redis(taken):
            self._engines.of(loop).put(UnattendedCall([refund]))

    def _in_redis(self, refunds: list[KeyOperation]) -> list[KeyOperation]:
        """Those that go to the server; the others are given back here and now."""
        for refund in refunds:
            if refund.mark < NO_MARK:
                self.fallback.refund_here(refund.counters, refund.name, refund.cost, refund.mark, 0)
        return [refund for refund in refunds if refund.mark >= NO_MARK]

    def hit_each(self, wanted: list[Item], attempt: bool = False) -> list[Decision]:
        mailbox: Mailbox = Mailbox()
        groups = groups_of(wanted, self._in_slots, attempt)
        calls = [ThreadCall(mailbox, operations) for operations, _ in groups]
        answers = self.ask_for_all(calls, mailbox)
        self._refund(refunds(calls, answers), mailbox)
        return in_order(groups, answers)

    def hit_each_async(
        self, wanted: list[Item], attempt: bool = False
    ) -> Awaitable[list[Decision]]:
        # Sent now, awaited later: so it leaves with everything else from this turn of the loop.
        loop = asyncio.get_running_loop()
        groups = groups_of(wanted, self._in_slots, attempt)
        calls = [TaskCall(loop, operations) for operations, _ in groups]
        for call in calls:
            self.put(call)
        return AwaitableHit(partial(self._hit_each, loop, groups, calls), partial(self.drop, calls))

    async def _hit_each(
        self, loop: asyncio.AbstractEventLoop, groups: list[Group], calls: list[TaskCall]
    ) -> list[Decision]:
        answers = await self.hits(calls)
        self._refund_later(loop, refunds(calls, answers))
        return in_order(groups, answers)

    # The connection ------------------------------------------------------------------

    def connect(self, timeout: float = 5.0) -> None:
        """Connect now, for threads, rather than with the first decision.

        Raises `StoreUnavailable` with the reason if the server cannot be used.
        """
        self._engines.for_threads().connect(timeout)

    async def connect_async(self, timeout: float = 5.0) -> None:
        """Connect now, for the tasks of this event loop."""
        await self._engines.of(asyncio.get_running_loop()).connect(timeout)

    @property
    def state(self) -> str:
        """``"closed"`` when all is well; ``"open"`` or ``"half-open"`` while degraded.

        It is the circuit breaker's, the worst of all servers'.
        """
        return self._engines.state

    def subscribe(self, hook: Hook) -> None:
        """Have ``hook`` called with every event of this store: see `penstock.events`."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Have it called no more."""
        self._hooks.remove(hook)

    def close(self) -> None:
        """Close all connections, for good. Who is still waiting gets a degraded answer."""
        self._engines.close()

    async def close_async(self) -> None:
        """Close the connections of this event loop; threads and other loops go on."""
        await self._engines.close_async()

    def __enter__(self) -> RedisStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> RedisStore:
        await self.connect_async()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        return f"<RedisStore {self.name}>"

    # Other uses of the same server ----------------------------------------------------

    def client(
        self, *, timeout: Duration = "1s", connect_timeout: Duration | None = None
    ) -> Client:
        """A new redis-py client of the store's server, log-in, TLS and database.

        It is the caller's to close, and tries nothing twice. An answer may take ``timeout``,
        a connection ``connect_timeout``, which by default is the store's. In a cluster it
        connects at once.
        """
        return make_client(self._settings.target, *self._patience(timeout, connect_timeout))

    def client_async(
        self, *, timeout: Duration = "1s", connect_timeout: Duration | None = None
    ) -> AsyncClient:
        """The same for coroutines: `client`, to be closed with ``await client.aclose()``."""
        return make_async_client(self._settings.target, *self._patience(timeout, connect_timeout))

    def _patience(self, timeout: Duration, connect: Duration | None) -> tuple[float, float]:
        seconds = parse_duration(timeout, "timeout") / 1e9
        if connect is None:
            return seconds, self._settings.connect_timeout
        return seconds, parse_duration(connect, "connect_timeout") / 1e9


class _Emitter:
    """Logs what happens to the servers, and calls the hooks."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def __call__(self, event: Event) -> None:
        if isinstance(event, StoreDown):
            logger.warning("%s is not asked any more: %s", event.store, event.reason)
        elif isinstance(event, StoreUp):
            logger.warning("%s is asked again after %.3f s", event.store, event.seconds)
        self._hooks.emit(event)
