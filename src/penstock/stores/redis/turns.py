"""An event loop for threads: those who wait for it drive it, one at a time.

A lone thread runs the loop itself until it has its answer: no other thread is
involved, none has to be woken. Of many threads, one drives; the others leave their
tickets in the inbox and sit down, and all that is in there leaves in one call. When the
driver has its own answer, it hands the wheel to one who is still waiting.

What must go on while nobody asks, connecting anew, is driven by a thread that is started
for it and ends with it. It also drives for callers who cannot: those whose thread
runs another event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty

from penstock.stores.redis.engine import Engine
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.ticket import DRIVE, Seat, ThreadTicket

# A helper that was needed once is often needed again: it stays for so many seconds.
STAY = 1.0
_LOOK_EVERY = 0.05


class Turns:
    """An engine, its loop, and whose turn it is to drive."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop()
        self.engine = Engine(settings, self._loop)
        self._turn = threading.Lock()
        self._inbox: deque[ThreadTicket] = deque()
        self._called = False
        # Who waits without driving. Who has got an answer meanwhile is passed over.
        self._seated: deque[tuple[Seat, Sequence[ThreadTicket]]] = deque()
        self._helper: threading.Thread | None = None
        self._hiring = threading.Lock()
        self._stay_until = 0.0
        self._closed = False
        self._owner = os.getpid()

    def ask(self, tickets: Sequence[ThreadTicket], seat: Seat) -> None:
        """Return when all tickets, which belong to this seat, are settled."""
        refusal = self.engine.router.refusal
        if refusal is not None:
            for ticket in tickets:
                self._settings.degrade(ticket, refusal)
            return
        self._inbox.extend(tickets)
        try:
            if _may_drive() and self._turn.acquire(blocking=False):
                self._drive(tickets)
            else:
                self._sit(tickets, seat)
        except BaseException:
            # Interrupted. What is under way is finished by somebody else, if need be by a helper.
            for ticket in tickets:
                ticket.abandon()
            self._stay_until = time.monotonic() + STAY
            self._hire()
            self._call()
            raise

    def _drive(self, tickets: Sequence[ThreadTicket]) -> None:
        """With the turn taken: run the loop until these are settled, and hand it on."""
        loop = self._loop
        try:
            if loop.is_closed():  # since we were let in
                for ticket in tickets:
                    self._settings.degrade(ticket, "the store was closed")
                return
            if self.engine.has_news:
                # While nobody drove, something came; most likely, the server left.
                loop.call_soon(loop.stop)
                loop.run_forever()
            # What is here leaves now, not in the loop's first turns.
            self._drain()
            self.engine.flush()
            for ticket in tickets:
                ticket.driver = loop.stop
                while not ticket.settled:
                    loop.run_forever()  # until it is settled, or a helper was to look up
                ticket.driver = None
        finally:
            unwell = self.engine.router.connecting
            self.engine.forget_settled()  # or the last of them would keep the store alive
            self._turn.release()
            self._hand_on()
            if unwell:
                self._hire()

    def _sit(self, tickets: Sequence[ThreadTicket], seat: Seat) -> None:
        # The engine keeps the deadline. If nobody who drives gets to run, this does.
        end = time.monotonic() + 1.5 * self._settings.deadline
        able = _may_drive()
        try:
            while True:
                self._seated.append((seat, tickets))
                # Seated first, then looked: whoever leaves now sees one of the two.
                if able and self._turn.acquire(blocking=False):
                    self._drive(tickets)
                    return
                if not able:
                    self._stay_until = time.monotonic() + STAY
                    self._hire()
                self._call()
                if not _wait(seat, tickets, end):
                    for ticket in tickets:
                        self._settings.degrade(ticket, "this process was too busy to ask in time")
                    _wait(seat, tickets, math.inf)
                    return
                if all(ticket.told for ticket in tickets):
                    return
        finally:
            # If the wheel was handed to a seat that needs it no more: pass it on.
            if not self._turn.locked():
                self._hand_on()

    def _hand_on(self) -> None:
        while True:
            try:
                seat, tickets = self._seated.popleft()
            except IndexError:
                return
            if not all(ticket.settled for ticket in tickets):
                seat.put(DRIVE)
                return

    def _call(self) -> None:
        """Have whoever drives look into the inbox. Many who come together call once."""
        if not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # closed: see _drive
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._called = False  # before looking: who comes now calls again
        inbox, put = self._inbox, self.engine.put
        while inbox:
            put(inbox.popleft())

    # The helper ----------------------------------------------------------------------

    def _hire(self) -> None:
        """Have a helper drive as long as it is wanted."""
        with self._hiring:
            if self._helper is None and not self._closed:
                self._helper = threading.Thread(
                    target=self._help, name="penstock-redis", daemon=True
                )
                self._helper.start()

    def _help(self) -> None:
        while True:
            with self._turn:
                while self._wanted():
                    look_up = self._loop.call_later(_LOOK_EVERY, self._loop.stop)
                    self._loop.run_forever()
                    look_up.cancel()
            self._hand_on()
            with self._hiring:
                if not self._wanted():
                    self._helper = None
                    return

    def _wanted(self) -> bool:
        if self._closed:
            return False
        return self.engine.router.connecting or time.monotonic() < self._stay_until

    def connect(self, seconds: float) -> None:
        self._stay_until = time.monotonic() + seconds
        self._hire()
        try:
            asyncio.run_coroutine_threadsafe(self.engine.connect(seconds), self._loop).result()
        finally:
            self._stay_until = 0.0
            self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self, wait: bool = True) -> None:
        """Close the connections, from any thread; who waits gets a degraded answer."""
        if os.getpid() != self._owner:
            return  # a forked child's copy: the sockets are its parent's
        with self._hiring:
            if self._closed:
                return
            self._closed = True
        # Whoever drives now settles all tickets, and with them its own.
        self._loop.call_soon_threadsafe(self._shut)
        ending = threading.Thread(target=self._finish, name="penstock-redis-end", daemon=True)
        ending.start()
        if wait:
            ending.join()

    def _shut(self) -> None:
        self._drain()
        self.engine.close()
        self._loop.stop()

    def _finish(self) -> None:
        """In a thread of its own: the caller's may be running another loop."""
        with self._turn:
            self._shut()
            ending = self._loop.create_task(_end_tasks())
            ending.add_done_callback(lambda _: self._loop.stop())
            while not ending.done():
                self._loop.run_forever()
            self._loop.close()


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)  # transports close in a call of their own


def _may_drive() -> bool:
    """Whether this thread runs no event loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def _wait(seat: Seat, tickets: Sequence[ThreadTicket], end: float) -> bool:
    """Whether there was a word before the end: to drive, or that all is settled."""
    while not all(ticket.told for ticket in tickets):
        left = None if end == math.inf else max(0.0, end - time.monotonic())
        try:
            word = seat.get(timeout=left)
        except Empty:
            return False
        if word is DRIVE and left is not None:
            return True
    return True
