"""Waiters: threads and tasks that wait for their turn, in order of arrival.

`WaiterQueues.leave` wakes the next one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from typing import Any


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Call a function in an event loop: at once if that is the running one, else soon."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        function(*args)
    else:
        loop.call_soon_threadsafe(function, *args)


class Waiter:
    """One thread or task in the queue of ``key``; `wake` wakes it."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.first = False
        self.rank = 0
        # With a leaky bucket: when it is this waiter's turn, and how long its place is.
        self.due = 0
        self.width = 0

    def wake(self) -> bool:
        """Wake it; False if its event loop was closed."""
        raise NotImplementedError


class ThreadWaiter(Waiter):
    def __init__(self, key: Hashable) -> None:
        super().__init__(key)
        self._woken = threading.Event()

    def wake(self) -> bool:
        self._woken.set()
        return True

    def wait(self, seconds: float | None) -> bool:
        """Block until it is woken; False if that took too long."""
        woken = self._woken.wait(seconds)
        self._woken.clear()
        return woken


class TaskWaiter(Waiter):
    def __init__(self, key: Hashable) -> None:
        super().__init__(key)
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._timed_out = False

    def wake(self) -> bool:
        if self._loop.is_closed():
            return False
        call_in(self._loop, self._wake)
        return True

    def _wake(self) -> None:
        self._timed_out = False
        self._ready.set()

    def time_out(self) -> None:
        """End the wait, unless it was woken already. Call it only in the waiter's event loop."""
        if not self._ready.is_set():
            self._timed_out = True
            self._ready.set()

    async def wait(self) -> bool:
        """Suspend until it is woken; False if it was timed out instead."""
        await self._ready.wait()
        self._ready.clear()
        woken, self._timed_out = not self._timed_out, False
        return woken


class WaiterQueues:
    """A first-in, first-out queue for each key, which exists while it has waiters."""

    def __init__(self, make_waiter: Callable[[Hashable], Waiter]) -> None:
        self._make_waiter = make_waiter
        self._queues: dict[Hashable, list[Waiter]] = {}
        self._lock = threading.Lock()

    def join(self, key: Hashable, rank: int = 0) -> Waiter:
        """Join at the end, but before those of a higher rank, except the head."""
        waiter = self._make_waiter(key)
        waiter.rank = rank
        with self._lock:
            queue = self._queues.setdefault(key, [])
            place = len(queue)
            while place > 1 and queue[place - 1].rank > rank:
                place -= 1
            queue.insert(place, waiter)
            waiter.first = len(queue) == 1
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Leave, from anywhere in the queue; a new head is woken."""
        with self._lock:
            queue = self._queues.get(waiter.key, [])
            if waiter in queue:
                queue.remove(waiter)
            while queue and not queue[0].first:
                queue[0].first = True  # before it is woken: a thread may look at once
                if queue[0].wake():
                    break
                del queue[0]  # its event loop was closed: it will never run again
            if not queue:
                self._queues.pop(waiter.key, None)

    def close_gap(self, waiter: Waiter, end: int) -> bool:
        """Move those behind ``waiter`` up by its width, if all of them are ours.

        ``end`` is where the store's queue ends. If a waiter of another process has a turn
        between ours or behind them, nothing moves.
        """
        with self._lock:
            queue = self._queues[waiter.key]
            behind = queue[queue.index(waiter) + 1 :]
            if waiter.due + waiter.width + sum(other.width for other in behind) != end:
                return False
            for other in behind:
                other.due -= waiter.width
                other.wake()
            return True

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())
