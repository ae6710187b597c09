"""RedisStore: state in Redis or Valkey, shared by a fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any, Never

from penstock import keys
from penstock.clock import Clock
from penstock.decision import Decision
from penstock.durations import Duration, parse_duration
from penstock.events import Hook, Hooks
from penstock.limit_options import check_policy, check_share
from penstock.limits import Limit
from penstock.stores.base import Counters, Store
from penstock.stores.redis.address import read_target
from penstock.stores.redis.clients import (
    COROUTINES,
    THREADS,
    AsyncClient,
    Client,
    Half,
    make_client,
)
from penstock.stores.redis.counters import RedisCounters
from penstock.stores.redis.engines import Engines
from penstock.stores.redis.fallback import Fallback
from penstock.stores.redis.forgetting import forget_counters
from penstock.stores.redis.groups import Group, Item, groups_of, in_order, refunds
from penstock.stores.redis.operation import GIVES_BACK, Tag, as_tag
from penstock.stores.redis.pending_call import AwaitableHit, Mailbox, TaskCall, ThreadCall
from penstock.stores.redis.script import Script
from penstock.stores.redis.server import ServerClock
from penstock.stores.redis.settings import Settings


class RedisStore(Store):
    """All processes that use the same server share their limits.

    ``where`` is a URL (``redis://``, ``rediss://``, ``valkey://``, ``unix://``,
    ``redis+sentinel://``, ``redis+cluster://``) or a redis-py client, sync or async, whose
    settings are used for the store's own connections.

    - ``deadline``: a decision takes no longer, whatever the server does
    - ``on_failure``: how to decide then: ``"open"``, ``"closed"`` or ``"local"``; a limit's
      own ``on_failure`` takes precedence
    - ``share``: with ``"local"``, the part of each limit that this process may use
    - ``prefix``: the beginning of all keys
    - ``tag``: in a cluster, the hash tag of a key: one ``str`` for all, or a function of
      the key. Keys with the same tag are decided on together, all or nothing
    - ``max_pending``: how many decisions may wait for one server; more are degraded at once
    - ``connect_timeout``: for one attempt to connect and log in
    """

    waits = True

    def __init__(
        self,
        where: object = None,
        *,
        deadline: Duration = "10ms",
        on_failure: str = "open",
        share: float = 1.0,
        prefix: str = "penstock",
        tag: str | Tag | None = None,
        max_pending: int = 10_000,
        connect_timeout: Duration = "500ms",
        max_local_keys: int = 100_000,
        **unknown: Never,
    ) -> None:
        if unknown or where is None:
            also = f", not {', '.join(sorted(unknown))}=" if unknown else ""
            raise TypeError(
                f"a RedisStore takes a URL, RedisStore('redis://localhost:6379/0'), or a redis-py"
                f" client, and options by name{also}"
            )
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
            hooks=self._hooks,
            fallback=self.fallback,
        )
        self._in_slots = target.kind == "cluster"
        self._engines = Engines(self._settings)

    # Overridden by tests, which set the script's time -------------------------------

    def _make_script(self) -> Script:
        return Script()

    def _make_clock(self) -> Clock:
        return ServerClock()

    # Deciding ------------------------------------------------------------------------

    @property
    def lease_prefix(self) -> str:
        """The beginning of the keys of leases, beside those of the counters."""
        return self.prefix

    @property
    def clock(self) -> Clock:
        """The server's time, as seen from here."""
        return self._settings.clock

    def hide(self, text: str) -> str:
        """``text`` without this store's secrets."""
        return self._settings.hide(text)

    def make_counters(self, limit: Limit, name: str | None = None) -> Counters:
        if (limit.on_failure or self.fallback.policy) == "local":
            self.fallback.counters(limit, name)  # fails now if it cannot work
        return RedisCounters(limit, self._settings, self._engines, self.prefix, self._tag, name)

    def release(self, limit: Limit) -> bool:
        return self.fallback.release(limit) and self.forget(limit)

    def hit_each(self, wanted: list[Item], attempt: bool = False) -> list[Decision]:
        return self._hit_groups([wanted], attempt)[0]

    def hit_groups(self, wanted: list[list[Item]]) -> list[list[Decision]]:
        return self._hit_groups(wanted, False)

    def _hit_groups(self, wanted: list[list[Item]], attempt: bool) -> list[list[Decision]]:
        mailbox: Mailbox = Mailbox()
        split = [groups_of(items, self._in_slots, attempt) for items in wanted]
        calls = [[ThreadCall(mailbox, operations) for operations, _ in groups] for groups in split]
        flat = iter(self._engines.ask([call for group in calls for call in group], mailbox))
        answers = [[next(flat) for _ in group] for group in calls]
        back = [refunds(group, answer) for group, answer in zip(calls, answers, strict=True)]
        self._engines.refund([refund for group in back for refund in group], mailbox)
        return [in_order(groups, answer) for groups, answer in zip(split, answers, strict=True)]

    def call_each(self, verb: str, calls: list[tuple[Any, tuple[Any, ...]]]) -> list[Any]:
        mailbox: Mailbox = Mailbox()
        operations = [counters.operation(verb, *args) for counters, args in calls]
        if verb in GIVES_BACK:
            self._engines.refund(operations, mailbox)
            return [None] * len(operations)
        return self._engines.ask([ThreadCall(mailbox, [each]) for each in operations], mailbox)

    def hit_each_async(
        self, wanted: list[Item], attempt: bool = False
    ) -> Awaitable[list[Decision]]:
        # Sent now, awaited later: it leaves with all other calls of this turn of the loop.
        loop = asyncio.get_running_loop()
        groups = groups_of(wanted, self._in_slots, attempt)
        calls = [TaskCall(loop, operations) for operations, _ in groups]
        for call in calls:
            self._engines.put(call)
        return AwaitableHit(
            partial(self._hit_each, loop, groups, calls), partial(self._engines.drop, calls)
        )

    async def _hit_each(
        self, loop: asyncio.AbstractEventLoop, groups: list[Group], calls: list[TaskCall]
    ) -> list[Decision]:
        answers = await self._engines.answers(calls)
        self._engines.refund_later(loop, refunds(calls, answers))
        return in_order(groups, answers)

    def clear(self) -> None:
        """Forget every key of every limit with this store's prefix, for all who share them.

        This looks at all keys of the server (SCAN), so it may take long. Keys of others stay.
        """
        with self.client(timeout="10s") as client:
            forget_counters(client, self.prefix)
        self.fallback.local.clear()

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
        """The circuit breaker's: ``"closed"`` when all is well, else ``"open"`` or ``"half-open"``.

        With several servers, the worst of theirs.
        """
        return self._engines.state

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with every event of this store: see `penstock.events`."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks.remove(hook)

    def close(self) -> None:
        """Close all connections, for good. Callers that still wait get a degraded answer."""
        self._engines.close()

    async def close_async(self) -> None:
        """Close the connections of this event loop; threads and other loops keep theirs."""
        await self._engines.close_async()

    def __enter__(self) -> RedisStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> RedisStore:
        await self.connect_async()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        return f"<RedisStore {self.name}>"

    # Other uses of the same server ----------------------------------------------------

    def client(
        self, *, timeout: Duration = "1s", connect_timeout: Duration | None = None
    ) -> Client:
        """A new redis-py client with the store's server, login, TLS and database.

        The caller closes it. It does not retry. An answer may take ``timeout``, a connection
        ``connect_timeout``, by default the store's. In a cluster it connects at once.
        """
        client: Client = self._client(THREADS, timeout, connect_timeout)
        return client

    def counter_client(self, *, timeout: Duration = "1s") -> Client:
        """`client`, for the server that has the counters."""
        return self.client(timeout=timeout)

    def client_async(
        self, *, timeout: Duration = "1s", connect_timeout: Duration | None = None
    ) -> AsyncClient:
        """The same for coroutines: `client`, to be closed with ``await client.aclose()``."""
        client: AsyncClient = self._client(COROUTINES, timeout, connect_timeout)
        return client

    def _client(self, half: Half, timeout: Duration, connect_timeout: Duration | None) -> Any:
        answer = parse_duration(timeout, "timeout") / 1e9
        connect = self._settings.connect_timeout
        if connect_timeout is not None:
            connect = parse_duration(connect_timeout, "connect_timeout") / 1e9
        return make_client(half, self._settings.target, answer, connect)
