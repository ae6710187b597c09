"""Renewal: renews leases while their slots are held, and reports those that are lost.

Every third of the lease time, all leases of this process are renewed, one call for each key.
Leases of threads are renewed by one thread, which runs only while there is something to renew;
leases of tasks by a timer of their event loop. Releases that could not be sent earlier are
sent then as well, and slots that were given out while the store was down are counted there
as soon as possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.clock import Clock
from penstock.concurrency.events import SlotLost
from penstock.concurrency.lease_server import LeaseServer
from penstock.concurrency.leases import Lease, LeaseFlow, ScriptCalls
from penstock.errors import StoreError
from penstock.events import Hooks
from penstock.stores.redis.thread_loop import running_loop

logger = logging.getLogger("penstock.concurrency")

_RENEWALS = 3  # within a lease's time
_RETRIES = 10


@dataclass(slots=True, eq=False)
class Home:
    """The leases of one event loop, or of all threads."""

    held: dict[str, Lease] = field(default_factory=dict)
    # Given back, but the store has not been told yet.
    owed: dict[str, Lease] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class Renewal:
    """One for each limiter."""

    def __init__(
        self, server: LeaseServer, calls: ScriptCalls, length: int, clock: Clock, hooks: Hooks
    ) -> None:
        self._server = server
        self._calls = calls
        self._length = length
        self._pause = length / _RENEWALS / 1e9
        self._retry_pause = length / _RETRIES / 1e9
        self._clock = clock
        self._hooks = hooks
        self.start_over()

    def start_over(self) -> None:
        """Start empty; also in a forked child, as the parent keeps renewing its own leases."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._homes: defaultdict[Any, Home] = defaultdict(Home)
        self._tasks: set[asyncio.Task[float]] = set()

    # Called when leases change ----------------------------------------------------

    def new_lease(self, key: str) -> Lease:
        """A lease that the store does not count yet."""
        return Lease(key, self._calls.new_id(), self._clock)

    def keep(self, lease: Lease) -> None:
        """Renew the lease from now on."""
        with self._lock:
            self._homes[lease.home].held[lease.id] = lease
        self._start(lease.home)

    def forget(self, lease: Lease) -> None:
        """Its slot is given back."""
        lease.ended = True
        with self._lock:
            if lease.home in self._homes:
                self._homes[lease.home].held.pop(lease.id, None)

    def owe(self, lease: Lease) -> None:
        """Give the lease back when the store can be reached; it may have been granted."""
        # By then a lease has expired by itself.
        lease.owed_until = self._clock.now() + self._length
        with self._lock:
            self._homes[lease.home].owed[lease.id] = lease
        self._start(lease.home)

    def close(self) -> None:
        """Stop the thread; its leases will expire."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._homes.pop(None, None)
            self._stop.set()
            self._stop = threading.Event()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    async def close_async(self) -> None:
        """Stop renewing for this event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            home = self._homes.pop(loop, None)
        if home is not None and home.timer is not None:
            home.timer.cancel()
        if under_way := [task for task in self._tasks if task.get_loop() is loop]:
            for task in under_way:
                task.cancel()
            await asyncio.wait(under_way)

    # When ------------------------------------------------------------------------------------

    def _start(self, home: Any) -> None:
        if home is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, args=(self._stop,), name="penstock-leases", daemon=True
                    )
                    self._thread.start()
        elif home is running_loop():
            self._set_timer(home)
        else:
            with contextlib.suppress(RuntimeError):  # it is closed
                home.call_soon_threadsafe(self._set_timer, home)

    def _run(self, stop: threading.Event) -> None:
        pause = self._pause
        while not stop.wait(pause):
            with self._lock:
                home = self._homes[None]
                if not home.held and not home.owed:
                    if self._thread is threading.current_thread():
                        self._thread = None
                    return
            pause = self._server.run(self._renew(home))

    def _set_timer(self, loop: Any, pause: float | None = None) -> None:
        with self._lock:
            # Programs that call asyncio.run repeatedly leave one behind each time.
            for other in [each for each in self._homes if each is not None and each.is_closed()]:
                del self._homes[other]
            home = self._homes.get(loop)
            if home is not None and home.timer is None:
                after = self._pause if pause is None else pause
                home.timer = loop.call_later(after, self._ring, loop)

    def _ring(self, loop: Any) -> None:
        with self._lock:
            home = self._homes.get(loop)
            if home is None or not (home.held or home.owed):
                self._homes.pop(loop, None)
                return
        task = loop.create_task(self._server.run_async(self._renew(home)))
        self._tasks.add(task)
        task.add_done_callback(self._rang)

    def _rang(self, task: asyncio.Task[float]) -> None:
        loop = task.get_loop()
        self._tasks.discard(task)
        with self._lock:
            home = self._homes.get(loop)
            if home is not None:
                home.timer = None
        if not task.cancelled():
            self._set_timer(loop, task.result())

    # What ------------------------------------------------------------------------------------

    def _renew(self, home: Home) -> LeaseFlow:
        """Renew all leases of one home; returns how long to wait until the next time."""
        pause = self._pause
        with self._lock:
            held, owed = [*home.held.values()], [*home.owed.values()]
        self._look(home, held)
        for key, leases in _by_key(owed):
            try:
                yield self._calls.release(key, [lease.id for lease in leases], insists=True)
                self._paid(home, leases)
            except StoreError:
                now = self._clock.now()
                self._paid(home, [lease for lease in leases if lease.owed_until < now])
                pause = self._retry_pause
        for counted in (True, False):
            for key, leases in _by_key(lease for lease in held if lease.counted is counted):
                sent = self._clock.now()
                verb = "renew" if counted else "enrol"
                try:
                    answers = yield self._calls.renew(key, [e.id for e in leases], verb)
                except StoreError:
                    pause = self._retry_pause
                else:
                    self._renewed(home, leases, answers, sent)
        self._look(home, held)
        return pause

    def _renewed(self, home: Home, leases: list[Lease], answers: list[int], sent: int) -> None:
        for lease, kept in zip(leases, answers, strict=True):
            if not kept:
                lease.lose()
                continue
            enrolled = not lease.counted
            lease.renewed(sent, self._length)
            if enrolled and lease.ended:  # given back while it was being registered
                self.owe(lease)

    def _look(self, home: Home, held: list[Lease]) -> None:
        """Report the leases that are lost, and forget them."""
        for lease in held:
            if not lease.lost:
                continue
            with self._lock:
                known = home.held.pop(lease.id, None)
            if known is not None and not lease.ended:
                logger.warning("lost the slot %s of %r: not renewed in time", lease.id, lease.key)
                self._hooks.emit(SlotLost(self._server.name, lease.key, lease.id))

    def _paid(self, home: Home, leases: list[Lease]) -> None:
        with self._lock:
            for lease in leases:
                home.owed.pop(lease.id, None)


def _by_key(leases: Iterable[Lease]) -> Iterable[tuple[str, list[Lease]]]:
    grouped: defaultdict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        grouped[lease.key].append(lease)
    return grouped.items()
