"""RedisStore: state in Redis or Valkey, shared by a fleet."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

from redis.crc import key_slot

from penstock import keys
from penstock.algorithms.words import NO_MARK
from penstock.clock import Clock
from penstock.decision import Decision
from penstock.durations import Duration, parse_duration
from penstock.errors import StoreError
from penstock.events import Event, Hook, Hooks, StoreDown, StoreUp
from penstock.limit import Limit, check_policy, check_share
from penstock.stores.base import Counters, Store, check_cost, check_key
from penstock.stores.redis.address import read_target
from penstock.stores.redis.breaker import CLOSED, HALF_OPEN, OPEN
from penstock.stores.redis.counters import RedisCounters, Tag
from penstock.stores.redis.engine import Engine
from penstock.stores.redis.fallback import Fallback
from penstock.stores.redis.server_clock import ServerClock
from penstock.stores.redis.settings import Script, Settings
from penstock.stores.redis.ticket import (
    LooseTicket,
    Question,
    Seat,
    TaskTicket,
    ThreadTicket,
    Ticket,
)
from penstock.stores.redis.turns import Turns
from penstock.stores.redis.wire import HIT, REFUND

logger = logging.getLogger("penstock.redis")

Wanted = tuple[Counters, str, int]
# What a refund's ticket is made of: counters, key, verb, cost, mark.
Refund = tuple[RedisCounters, str, str, int, int]
# What a group's ticket is made of, its other members, and where they stood in what was wanted.
Group = tuple[tuple[RedisCounters, str, str, int], list[Question], list[int]]


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
        self._name = str(target)
        self._hooks = Hooks()
        self._prefix = keys.check_prefix(prefix)
        self._tag = _as_tag(tag)
        self.fallback = Fallback(
            self._name, check_policy(on_failure), check_share(share), max_local_keys, self._hooks
        )
        self._settings = Settings(
            target=target,
            deadline=parse_duration(deadline, "deadline") / 1e9,
            connect_timeout=parse_duration(connect_timeout, "connect_timeout") / 1e9,
            max_pending=max_pending,
            script=self._make_script(),
            clock=self._make_clock(),
            emit=_Teller(self._hooks),
            degrade=self.fallback.degrade,
        )
        self._starting = threading.Lock()
        self._closed = False
        self._turns: Turns | None = None
        self._engines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Engine]
        self._engines = weakref.WeakKeyDictionary()
        self._last: tuple[asyncio.AbstractEventLoop | None, Engine | None] = (None, None)
        _stores.add(self)

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

    def make_counters(self, limit: Limit) -> Counters:
        if (limit.on_failure or self.fallback.policy) == "local":
            self.fallback.counters(limit)  # if that does not work, it is an error now
        return RedisCounters(limit, self, self._prefix, self._tag)

    def ask(self, tickets: Sequence[ThreadTicket], seat: Seat) -> list[Any]:
        """Send, and block until each has its answer."""
        self._threads().ask(tickets, seat)
        return [ticket.result() for ticket in tickets]

    def ask_for_all(self, tickets: Sequence[ThreadTicket], seat: Seat) -> list[Any]:
        """The same, but if one of them is an error, the others have taken nothing."""
        try:
            return self.ask(tickets, seat)
        except BaseException:
            taken = [refund for ticket in tickets for refund in _taken(ticket, ticket.outcome)]
            back = self._in_redis(taken)
            if back:
                self.ask([ThreadTicket(seat, *refund) for refund in back], seat)
            raise

    def put(self, ticket: TaskTicket) -> None:
        """Send; the ticket's future has the answer."""
        loop, engine = self._last
        if engine is None or loop is not ticket.future.get_loop():
            engine = self._engine(ticket.future.get_loop())
        engine.put(ticket)

    async def hit(self, ticket: TaskTicket) -> Any:
        """The answer to a hit. Who is cancelled while waiting for it has taken nothing.

        A hit that is under way is given back when its answer comes, by the node; one whose
        answer is here already, by this.
        """
        try:
            return await ticket.future
        except asyncio.CancelledError:
            self._give_back([ticket])
            raise

    async def hits(self, tickets: Sequence[TaskTicket]) -> list[Any]:
        """The same for several, of which all or none may have taken."""
        try:
            if len(tickets) == 1:
                return [await tickets[0].future]
            return await asyncio.gather(*(ticket.future for ticket in tickets))
        except BaseException:
            for ticket in tickets:
                ticket.future.cancel()
            self._give_back(tickets)
            raise

    def _give_back(self, tickets: Sequence[TaskTicket]) -> None:
        loop = tickets[0].future.get_loop()
        self._refund(loop, [r for ticket in tickets for r in _taken(ticket, ticket.outcome)])

    def _refund(self, loop: asyncio.AbstractEventLoop, refunds: list[Refund]) -> None:
        for refund in self._in_redis(refunds):
            self._engine(loop).put(LooseTicket(*refund))

    def _in_redis(self, refunds: list[Refund]) -> list[Refund]:
        """Those that go to the server; the others are given back here and now."""
        for counters, name, _, cost, mark in refunds:
            if mark < NO_MARK:
                self.fallback.refund_here(counters, name, cost, mark, 0)
        return [refund for refund in refunds if refund[-1] >= NO_MARK]

    def hit_each(self, wanted: list[Wanted]) -> list[Decision]:
        seat: Seat = Seat()
        groups = self._groups(wanted)
        tickets = [ThreadTicket(seat, *first, members=rest) for first, rest, _ in groups]
        try:
            found = self.ask(tickets, seat)
        finally:
            spare = self._in_redis(_refunds(tickets, [ticket.outcome for ticket in tickets]))
            if spare:
                self.ask([ThreadTicket(seat, *refund) for refund in spare], seat)
        return _in_order(groups, found)

    def hit_each_async(self, wanted: list[Wanted]) -> Awaitable[list[Decision]]:
        # Asked now, awaited later: then it leaves with all else that is asked in this turn.
        loop = asyncio.get_running_loop()
        groups = self._groups(wanted)
        tickets = [TaskTicket(loop, *first, members=rest) for first, rest, _ in groups]
        for ticket in tickets:
            self.put(ticket)
        return self._hit_each(loop, groups, tickets)

    async def _hit_each(
        self, loop: asyncio.AbstractEventLoop, groups: list[Group], tickets: list[TaskTicket]
    ) -> list[Decision]:
        found = await self.hits(tickets)
        self._refund(loop, _refunds(tickets, found))
        return _in_order(groups, found)

    def _groups(self, wanted: list[Wanted]) -> list[Group]:
        """What can be decided as a whole: all of it, or in a cluster what shares a slot."""
        by_slot: dict[int, list[tuple[int, Question]]] = {}
        for at, (counters, key, cost) in enumerate(wanted):
            assert isinstance(counters, RedisCounters)
            question = Question(counters, check_key(key), HIT, check_cost(cost), size=0)
            slot = key_slot(question.key) if self._settings.target.kind == "cluster" else 0
            by_slot.setdefault(slot, []).append((at, question))
        groups = []
        for members in by_slot.values():
            (_, first), *rest = members
            told = (first.counters, first.name, HIT, first.cost)
            groups.append((told, [question for _, question in rest], [at for at, _ in members]))
        return groups

    # The connection ------------------------------------------------------------------

    def connect(self, timeout: float = 5.0) -> None:
        """Connect now, for threads, rather than with the first decision.

        Raises `StoreUnavailable` with the reason if the server cannot be used.
        """
        self._threads().connect(timeout)

    async def connect_async(self, timeout: float = 5.0) -> None:
        """Connect now, for the tasks of this event loop."""
        await self._engine(asyncio.get_running_loop()).connect(timeout)

    @property
    def state(self) -> str:
        """``"closed"`` when all is well; ``"open"`` or ``"half-open"`` while degraded.

        It is the circuit breaker's, the worst of all servers'.
        """
        engines = [*self._engines.values(), *([self._turns.engine] if self._turns else [])]
        states = {node.breaker.state for engine in engines if engine for node in engine.nodes}
        return next((state for state in (OPEN, HALF_OPEN) if state in states), CLOSED)

    def subscribe(self, hook: Hook) -> None:
        """Have ``hook`` called with every event of this store: see `penstock.events`."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        self._hooks.remove(hook)

    def close(self) -> None:
        """Close all connections, for good. Who is still waiting gets a degraded answer."""
        self._closed = True
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.close()
        for loop, engine in [*self._engines.items()]:
            if loop.is_closed():
                engine.hang_up()
            else:
                _call_in(loop, engine.close)
        self._engines.clear()
        self._last = (None, None)

    async def close_async(self) -> None:
        """Close the connections of this event loop; threads and other loops go on."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        self._last = (None, None)
        if engine is not None:
            engine.close()
        await asyncio.sleep(0)  # transports close in a call of their own

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
        return f"<RedisStore {self._name}>"

    # Engines ---------------------------------------------------------------------------

    def start_over(self) -> None:
        """In a forked child: no connections, no thread."""
        self._starting = threading.Lock()
        self._turns = None
        self._engines = weakref.WeakKeyDictionary()
        self._last = (None, None)

    def _threads(self) -> Turns:
        turns = self._turns
        if turns is None:
            with self._starting:
                self._check_open()
                turns = self._turns
                if turns is None:
                    turns = self._turns = Turns(self._settings)
                    # Not at exit: then no thread can be started, and none is left behind.
                    weakref.finalize(self, turns.close, wait=False).atexit = False
        return turns

    def _engine(self, loop: asyncio.AbstractEventLoop) -> Engine:
        """The engine of the loop that is running."""
        self._check_open()
        engine = self._engines.get(loop)
        if engine is None:
            # Programs that call asyncio.run again and again leave one behind each time.
            for other in [other for other in self._engines if other.is_closed()]:
                self._engines.pop(other).hang_up()
            engine = self._engines[loop] = Engine(self._settings, loop)
        self._last = (loop, engine)
        return engine

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self!r} was closed")


class _Teller:
    """Logs what happens to the servers, and tells the hooks."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def __call__(self, event: Event) -> None:
        if isinstance(event, StoreDown):
            logger.warning("%s is not asked any more: %s", event.store, event.reason)
        elif isinstance(event, StoreUp):
            logger.warning("%s is asked again after %.3f s", event.store, event.seconds)
        self._hooks.emit(event)


def _as_tag(tag: str | Tag | None) -> Tag | None:
    if tag is None or callable(tag):
        return tag
    fixed = check_key(tag)
    return lambda key: fixed


def _refunds(tickets: Sequence[Ticket], found: Sequence[Any]) -> list[Refund]:
    """What must be given back when some groups were decided and not all were allowed."""
    taken = [_taken(ticket, answer) for ticket, answer in zip(tickets, found, strict=True)]
    return [] if all(taken) else [refund for refunds in taken for refund in refunds]


def _taken(ticket: Ticket, answer: Any) -> list[Refund]:
    """Tickets that would give back what this one took; nothing if it took nothing."""
    decisions = _decisions(answer)
    if ticket.verb != HIT or not decisions or not all(decisions):
        return []
    return [
        (question.counters, question.name, REFUND, question.cost, decision._mark)
        for question, decision in zip(ticket.questions, decisions, strict=True)
    ]


def _decisions(answer: Any) -> list[Decision]:
    """Of a group, or of a single one; none if it was not decided."""
    if isinstance(answer, Decision):
        return [answer]
    return answer if isinstance(answer, list) else []


def _in_order(groups: list[Group], found: Sequence[Any]) -> list[Decision]:
    """The decisions of all groups, as they were asked for."""
    placed = [
        (at, decision)
        for (_, _, places), answer in zip(groups, found, strict=True)
        for at, decision in zip(places, _decisions(answer), strict=True)
    ]
    return [decision for _, decision in sorted(placed, key=lambda pair: pair[0])]


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call it in that loop, now if it is this one's."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        function()
    else:
        loop.call_soon_threadsafe(function)


_stores: weakref.WeakSet[RedisStore] = weakref.WeakSet()
_inherited: list[Any] = []


def _after_fork() -> None:
    """The parent's connections are the parent's.

    They are kept as they are: closing them here would reach into its event loop's files.
    """
    for store in [*_stores]:
        _inherited.append((store._turns, dict(store._engines), store._last))
        store.start_over()


os.register_at_fork(after_in_child=_after_fork)
