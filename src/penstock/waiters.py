"""Waiters: threads and tasks that wait for their turn, in order of arrival."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable


class Waiter:
    """One thread or task in the queue of ``key``; `wake` wakes it."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.first = False
        # With a leaky bucket: when it is this waiter's turn, and how much time it takes up.
        self.due = 0
        self.width = 0

    def wake(self) -> bool:
        """Wake it; False if there is nobody left to wake."""
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
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._wake()
        else:
            self._loop.call_soon_threadsafe(self._wake)
        return True

    def _wake(self) -> None:
        self._timed_out = False
        self._ready.set()

    def time_out(self) -> None:
        """End the wait in vain, unless it was woken already. Only in its own event loop."""
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
    """A first-in, first-out queue for each key, which exists while somebody is in it."""

    def __init__(self, make_waiter: Callable[[Hashable], Waiter]) -> None:
        self._make_waiter = make_waiter
        self._queues: dict[Hashable, list[Waiter]] = {}
        self._lock = threading.Lock()

    def join(self, key: Hashable) -> Waiter:
        waiter = self._make_waiter(key)
        with self._lock:
            queue = self._queues.setdefault(key, [])
            queue.append(waiter)
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
        """Move those behind ``waiter`` up by its width, if nobody else is among them.

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
