"""Watches: what has changed under a prefix, for one reader.

A reader that is slow gets the last state of a key, not every state in between: at most one change
of each key waits. So a watch never grows beyond the number of keys, and never misses how a key
ended up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol, Self

from penstock.kv.entry import Change

# Made when it is read: a value is decompressed only for readers that want it.
Pending = Callable[[], Change | None]


class Queue:
    """Changes that wait for one reader. ``notify`` is called after each addition, by any thread."""

    def __init__(self, prefix: str, notify: Callable[[], None]) -> None:
        self.prefix = prefix
        self._notify = notify
        self._lock = threading.Lock()
        self._pending: OrderedDict[str, Pending] = OrderedDict()

    def push(self, key: str, change: Pending) -> None:
        with self._lock:
            self._pending[key] = change
            self._pending.move_to_end(key)
        self._notify()

    def take(self) -> Change | None:
        """The change that has waited longest."""
        while True:
            with self._lock:
                if not self._pending:
                    return None
                _, change = self._pending.popitem(last=False)
            made = change()
            if made is not None:
                return made

    def take_all(self) -> list[Change]:
        with self._lock:
            pending, self._pending = self._pending, OrderedDict()
        return [made for change in pending.values() if (made := change()) is not None]

    def __bool__(self) -> bool:
        return bool(self._pending)


class Source(Protocol):
    """Where queues are filled: see mirror.py."""

    def subscribe(self, queue: Queue) -> None: ...

    def unsubscribe(self, queue: Queue) -> None: ...


class Watch(Iterator[Change]):
    """An iterator of changes. It blocks until there is one, and ends when it is closed."""

    def __init__(self, source: Source, prefix: str) -> None:
        self._source = source
        self._ready = threading.Condition()
        self._closed = False
        self._queue = Queue(prefix, self._notify)
        source.subscribe(self._queue)

    def _notify(self) -> None:
        with self._ready:
            self._ready.notify_all()

    def __next__(self) -> Change:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def next(self, timeout: float | None = None) -> Change | None:
        """The next change; None if there is none within ``timeout`` seconds, or it is closed."""
        with self._ready:
            self._ready.wait_for(lambda: self._closed or bool(self._queue), timeout)
        return None if self._closed else self._queue.take()

    def batch(self, timeout: float | None = None) -> list[Change]:
        """All changes since the last call; waits for one, but not longer than ``timeout``."""
        with self._ready:
            self._ready.wait_for(lambda: self._closed or bool(self._queue), timeout)
        return [] if self._closed else self._queue.take_all()

    def close(self) -> None:
        """End it, also for a thread that waits in it."""
        self._source.unsubscribe(self._queue)
        self._closed = True
        self._notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncWatch(AsyncIterator[Change]):
    """`Watch` for tasks."""

    def __init__(self, source: Source, prefix: str) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._closed = False
        self._queue = Queue(prefix, self._notify)
        source.subscribe(self._queue)

    def _notify(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ready.set)

    async def __anext__(self) -> Change:
        while not self._closed:
            change = self._queue.take()
            if change is not None:
                return change
            await self._wait()
        raise StopAsyncIteration

    async def batch(self) -> list[Change]:
        """All changes since the last call; waits for one. Empty if it is closed."""
        while not self._closed:
            changes = self._queue.take_all()
            if changes:
                return changes
            await self._wait()
        return []

    async def ready(self) -> bool:
        """Wait for a change without taking it; False if the watch is closed."""
        while not self._closed and not self._queue:
            await self._wait()
        return not self._closed

    def take(self) -> list[Change]:
        """What has changed since the last call, without waiting."""
        return self._queue.take_all()

    async def _wait(self) -> None:
        self._ready.clear()
        if not self._queue:  # nothing has come since
            await self._ready.wait()

    def close(self) -> None:
        """End it, also for a task that waits in it."""
        self._source.unsubscribe(self._queue)
        self._closed = True
        self._notify()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
