"""Node: one server, the connection to it, what waits to be sent and what is under way.

Tickets that come in one turn of the event loop leave together at its end, in calls of at
most `MOST_A_CALL` decisions. Several calls may be under way, so that the server works on
one while this side reads another; beyond `MOST_UNDER_WAY` decisions the next ones wait,
and gather to larger calls the busier the server is.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import hiredis

from penstock.errors import StoreUnavailable
from penstock.events import StoreDown, StoreUp
from penstock.stores.redis.address import Address
from penstock.stores.redis.answers import Answers, Redirect
from penstock.stores.redis.breaker import CLOSED, Breaker
from penstock.stores.redis.greeting import greet
from penstock.stores.redis.keeper import Keeper
from penstock.stores.redis.link import Link, Lost
from penstock.stores.redis.server_clock import ServerClock
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.ticket import Ticket
from penstock.stores.redis.wire import Request, decode, encode

MOST_A_CALL = 32
MOST_UNDER_WAY = 128


class Node:
    """Sends tickets to one server and settles them."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        name: str,
        resolve: Callable[[], Awaitable[Address]],
        redirect: Redirect | None = None,
        noticed: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings
        self.name = name
        self.link: Link | None = None
        self.clock = ServerClock()
        self.breaker = Breaker(settings.deadline)
        self.queue: deque[Ticket] = deque()
        self._resolve = resolve
        self._answers = Answers(self, redirect)
        self._noticed = noticed  # told when something is wrong here
        self._loop = loop
        self._keeper = Keeper(loop, self.breaker, self._connect, self.down)
        self._closed = False
        self._under_way = 0
        self._scheduled = False
        self._wakers: list[asyncio.Future[None]] = []

    @property
    def busy(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self.queue) or self._under_way > 0

    @property
    def connecting(self) -> bool:
        return self._keeper.active

    # Tickets in -------------------------------------------------------------------

    def put(self, ticket: Ticket) -> None:
        """Send it with others at the end of this turn of the loop."""
        if self._closed:
            self.settings.degrade(ticket, "the store was closed")
        elif self.breaker.state != CLOSED:
            self.settings.degrade(ticket, self.breaker.reason)
        elif len(self.queue) >= self.settings.max_pending:
            self.settings.degrade(ticket, f"{len(self.queue)} decisions are waiting already")
        else:
            self.queue.append(ticket)
            self._schedule()

    def put_later(self, ticket: Ticket) -> None:
        """Send it after a pause that leaves time for more of them."""
        self._loop.call_later(self.settings.deadline / 10, self.put, ticket)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._scheduled = False
        if self.link is None:
            self._keeper.start()
            return
        if self.link.is_closing:
            return  # it ended while nothing was asked: a new one is made as it is lost
        while self.queue and self._under_way < MOST_UNDER_WAY:
            for tickets in self._take():
                self.send(tickets)

    def _take(self) -> list[list[Ticket]]:
        """The next tickets, by calls: one for each slot, one for each that goes alone."""
        queue, count = self.queue, 0
        alone: list[list[Ticket]] = []
        by_slot: dict[int, list[Ticket]] = {}
        while queue and (count == 0 or count + queue[0].size <= MOST_A_CALL):
            ticket = queue.popleft()
            if ticket.settled:  # its deadline passed, or whoever waited left
                continue
            count += ticket.size
            if ticket.alone:
                alone.append([ticket])
            else:
                by_slot.setdefault(ticket.slot, []).append(ticket)
        return [*by_slot.values(), *alone]

    def send(self, tickets: list[Ticket], whole_script: bool = False) -> None:
        """In one call, now."""
        link = self.link
        assert link is not None
        now = self.settings.clock.now()
        requests: list[Request] = []
        for ticket in tickets:
            ticket.policy = ticket.counters.policy_at(now)
            requests.append(ticket)
            for member in ticket.members:
                member.policy = member.counters.policy_at(now)
                requests.append(member)
        # By the server's clock, so that a call which it finds late has no effect.
        due = min([ticket.due for ticket in tickets])
        script = self.settings.script
        deadline = script.deadline(self.clock.at(int(due * 1e9)))
        told = encode(requests, deadline)
        told += script.more_arguments()
        head = ("EVAL", script.text) if whole_script else ("EVALSHA", script.sha)
        data = hiredis.pack_command((*head, *told))
        if tickets[0].asking:
            link.send(hiredis.pack_command(("ASKING",)), _ignore)
        self._under_way += len(requests)
        link.send(data, partial(self._answered, tickets, requests))

    # Answers out ------------------------------------------------------------------

    def _answered(self, tickets: list[Ticket], requests: list[Request], reply: Any) -> None:
        self._under_way -= len(requests)
        if self.queue:
            self._schedule()
        if type(reply) is list:
            try:
                now, answers = decode(reply, requests)
            except ValueError as error:
                self.degrade(tickets, "its answer is not the script's")
                self.down(str(error))
                return
            self.breaker.answered()
            self._tell_time(now)
            self._answers.deliver(tickets, answers, now)
        elif isinstance(reply, Lost):
            self.degrade(tickets, str(reply))
        elif isinstance(reply, Exception):
            self.breaker.answered()
            self._answers.refused(tickets, reply)
        else:
            self.degrade(tickets, "its answer is not the script's")
            self.down(f"not an answer of the script: {reply!r:.100}")

    def degrade(self, tickets: list[Ticket], reason: str) -> None:
        """Settle them by the failure policy."""
        for ticket in tickets:
            self.settings.degrade(ticket, reason)

    # The connection -----------------------------------------------------------------

    def missed(self, now: float) -> None:
        """A ticket's deadline passed here."""
        if self.breaker.missed(now) and self.breaker.state == CLOSED:
            self.down(f"no answer within {self.settings.deadline * 1e3:g} ms")

    def down(self, reason: str) -> None:
        """Stop asking; go on trying to connect."""
        reason = self.settings.hide(reason)
        if self.breaker.trip(time.monotonic(), reason):
            self.settings.emit(StoreDown(self.name, reason))
        link, self.link = self.link, None
        if link is not None:
            link.on_lost = None
            link.close()
        self.degrade([*self.queue], reason)
        self.queue.clear()
        self._keeper.start()
        for waker in self._wakers:
            if not waker.done():
                waker.set_exception(StoreUnavailable(f"{self.name}: {reason}"))
        self._wakers.clear()
        self.notice()

    def notice(self) -> None:
        """Something is wrong here: whoever wants to know is told."""
        if self._noticed is not None:
            self._noticed()

    async def _connect(self) -> None:
        settings = self.settings
        async with asyncio.timeout(settings.connect_timeout):
            address = await self._resolve()
            link = Link(await address.open(settings.connect_timeout))
            try:
                self._tell_time(await greet(link, settings.script, settings.deadline))
            except BaseException:
                link.close()
                raise
        seconds = time.monotonic() - self.breaker.opened_at
        was_down = self.breaker.state != CLOSED
        self.link = link
        link.on_lost = self._lost
        self.breaker.close()
        if was_down:
            settings.emit(StoreUp(self.name, seconds))
        for waker in self._wakers:
            if not waker.done():
                waker.set_result(None)
        self._wakers.clear()
        self.flush()

    def _tell_time(self, now: int) -> None:
        here = time.monotonic_ns()
        self.clock.seen(now, here)
        if isinstance(self.settings.clock, ServerClock):
            self.settings.clock.seen(now, here)

    def _lost(self, reason: Exception) -> None:
        """The connection ended by itself: make a new one before anything is called down."""
        self.link = None
        self._keeper.start()

    async def connected(self) -> None:
        """Wait for the first connection, or for the reason why there is none."""
        if self.link is not None:
            return
        waker: asyncio.Future[None] = self._loop.create_future()
        self._wakers.append(waker)
        self._keeper.start()
        await waker

    def retire(self) -> None:
        """Others have taken its place: what was down is so no more."""
        self.close()
        if self.breaker.state != CLOSED:
            self.settings.emit(StoreUp(self.name, time.monotonic() - self.breaker.opened_at))

    def close(self) -> None:
        self._closed = True
        self._keeper.stop()
        if self.link is not None:
            self.link.on_lost = None
            self.link.close()
            self.link = None
        self.degrade([*self.queue], "the store was closed")
        self.queue.clear()


def _ignore(reply: Any) -> None:
    """Whatever ASKING answers, the command behind it says it better."""
