"""Who waits for which key, in order of arrival."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable


class Ticket:
    """A place in a line; `call` wakes whoever holds it."""

    def __init__(self, place: Hashable) -> None:
        self.place = place
        self.first = False
        self.due = 0
        self.width = 0

    def call(self) -> bool:
        """Whether there is still somebody to be woken."""
        raise NotImplementedError


class ThreadTicket(Ticket):
    def __init__(self, place: Hashable) -> None:
        super().__init__(place)
        self._called = threading.Event()

    def call(self) -> bool:
        self._called.set()
        return True

    def wait(self, seconds: float | None) -> bool:
        called = self._called.wait(seconds)
        self._called.clear()
        return called


class TaskTicket(Ticket):
    def __init__(self, place: Hashable) -> None:
        super().__init__(place)
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()

    def call(self) -> bool:
        if self._loop.is_closed():
            return False
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._called.set()
        else:
            self._loop.call_soon_threadsafe(self._called.set)
        return True

    async def wait(self) -> bool:
        await self._called.wait()
        self._called.clear()
        return True


class Line:
    """One line a place, made when somebody comes and gone with the last of them."""

    def __init__(self, ticket: Callable[[Hashable], Ticket]) -> None:
        self._ticket = ticket
        self._lines: dict[Hashable, list[Ticket]] = {}
        self._lock = threading.Lock()

    def join(self, place: Hashable) -> Ticket:
        ticket = self._ticket(place)
        with self._lock:
            tickets = self._lines.setdefault(place, [])
            tickets.append(ticket)
            ticket.first = len(tickets) == 1
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Step out, wherever in the line; a new head is called."""
        with self._lock:
            tickets = self._lines.get(ticket.place, [])
            if ticket in tickets:
                tickets.remove(ticket)
            while tickets and not tickets[0].first:
                tickets[0].first = True  # before the call: a thread may look at once
                if tickets[0].call():
                    break
                del tickets[0]  # its event loop has been closed: it will never come
            if not tickets:
                self._lines.pop(ticket.place, None)

    def close_gap(self, ticket: Ticket, end: int) -> bool:
        """Move those behind ``ticket`` up by its width, if only they stand behind it.

        ``end`` is where the store's line ends. If somebody else, from elsewhere, has
        a place between ours or behind them, nothing moves.
        """
        with self._lock:
            tickets = self._lines[ticket.place]
            behind = tickets[tickets.index(ticket) + 1 :]
            if ticket.due + ticket.width + sum(other.width for other in behind) != end:
                return False
            for other in behind:
                other.due -= ticket.width
                other.call()
            return True

    def __len__(self) -> int:
        return sum(len(tickets) for tickets in self._lines.values())
