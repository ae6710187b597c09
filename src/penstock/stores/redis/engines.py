"""Engines: those of one store, one for all threads and one for each event loop.

They are made when they are first needed. A forked child starts without any, as it must not use
its parent's connections.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from penstock.errors import StoreError
from penstock.stores.redis.breaker import CLOSED, HALF_OPEN, OPEN
from penstock.stores.redis.engine import Engine
from penstock.stores.redis.pending_call import TaskCall
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.thread_loop import ThreadLoop


class Engines:
    """Finds the engine of the calling thread or event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._closed = False
        self.start_over()
        _everyones.add(self)

    def start_over(self) -> None:
        """No connections, no thread."""
        self._starting = threading.Lock()
        self._thread_loop: ThreadLoop | None = None
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Engine]
        self._by_loop = weakref.WeakKeyDictionary()
        self._last: tuple[asyncio.AbstractEventLoop | None, Engine | None] = (None, None)

    def put(self, call: TaskCall) -> None:
        """Send it; its future gets the answer."""
        loop, engine = self._last
        if engine is None or loop is not call.future.get_loop():
            engine = self.of(call.future.get_loop())
        engine.put(call)

    def of(self, loop: asyncio.AbstractEventLoop) -> Engine:
        """The engine of the loop that is running."""
        self._check_open()
        engine = self._by_loop.get(loop)
        if engine is None:
            # Programs that call asyncio.run several times leave one behind each time.
            for other in [other for other in self._by_loop if other.is_closed()]:
                self._by_loop.pop(other).hang_up()
            engine = self._by_loop[loop] = Engine(self._settings, loop)
        self._last = (loop, engine)
        return engine

    def for_threads(self) -> ThreadLoop:
        thread_loop = self._thread_loop
        if thread_loop is None:
            with self._starting:
                self._check_open()
                thread_loop = self._thread_loop
                if thread_loop is None:
                    thread_loop = self._thread_loop = ThreadLoop(self._settings)
                    # Not at exit: then no thread can be started, and none is left behind.
                    weakref.finalize(self, thread_loop.close, wait=False).atexit = False
        return thread_loop

    @property
    def state(self) -> str:
        """The circuit breaker's state, the worst of all servers."""
        engines = [
            *self._by_loop.values(),
            *([self._thread_loop.engine] if self._thread_loop else []),
        ]
        states = {node.breaker.state for engine in engines if engine for node in engine.nodes}
        return next((state for state in (OPEN, HALF_OPEN) if state in states), CLOSED)

    def close(self) -> None:
        """Close all of them, for good."""
        self._closed = True
        thread_loop, self._thread_loop = self._thread_loop, None
        if thread_loop is not None:
            thread_loop.close()
        for loop, engine in [*self._by_loop.items()]:
            if loop.is_closed():
                engine.hang_up()
            else:
                _call_in(loop, engine.close)
        self._by_loop.clear()
        self._last = (None, None)

    async def close_async(self) -> None:
        """Close that of this event loop; threads and other loops go on."""
        engine = self._by_loop.pop(asyncio.get_running_loop(), None)
        self._last = (None, None)
        if engine is not None:
            engine.close()
        await asyncio.sleep(0)  # transports close in a call of their own

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"<RedisStore {self._settings.target}> was closed")


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call it in that loop, at once if it is the running one."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        function()
    else:
        loop.call_soon_threadsafe(function)


# Forks ------------------------------------------------------------------------------

_everyones: weakref.WeakSet[Engines] = weakref.WeakSet()
_inherited: list[Any] = []


def _after_fork() -> None:
    """Keep the parent's connections as they are.

    Closing them in the child would change the epoll set that it shares with the parent.
    """
    for engines in [*_everyones]:
        _inherited.append((engines._thread_loop, dict(engines._by_loop), engines._last))
        engines.start_over()


os.register_at_fork(after_in_child=_after_fork)
