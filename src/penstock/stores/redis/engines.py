"""Engines: send the calls of one store, one engine for all threads and one per event loop.

They are created when they are first needed. A forked child starts without any, as it must not
use its parent's connections.

If a caller is interrupted, or some of its calls fail, the engines give back what its other calls
took. Hits that are still under way are given back by the node when their answers come.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from penstock.algorithms.words import NO_MARK
from penstock.circuit import CLOSED, HALF_OPEN, OPEN
from penstock.errors import StoreError
from penstock.stores.redis.engine import Engine
from penstock.stores.redis.groups import taken_by
from penstock.stores.redis.operation import KeyOperation
from penstock.stores.redis.pending_call import Mailbox, TaskCall, ThreadCall, UnattendedCall
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.thread_loop import ThreadLoop, running_loop


class Engines:
    """Sends calls through the engine of the calling thread or event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._closed = False
        self.start_over()
        _instances.add(self)

    def start_over(self) -> None:
        """No connections, no thread."""
        self._starting = threading.Lock()
        self._thread_loop: ThreadLoop | None = None
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Engine]
        self._by_loop = weakref.WeakKeyDictionary()
        self._last: tuple[asyncio.AbstractEventLoop | None, Engine | None] = (None, None)

    # For threads --------------------------------------------------------------------

    def ask(self, calls: Sequence[ThreadCall], mailbox: Mailbox) -> list[Any]:
        """Send, and block until each call has its answer. On an exception, nothing was taken."""
        try:
            return self._ask(calls, mailbox)
        except BaseException:
            self.refund(_taken_by_all(calls), mailbox)
            raise

    def _ask(self, calls: Sequence[ThreadCall], mailbox: Mailbox) -> list[Any]:
        self.for_threads().ask(calls, mailbox)
        return [call.result() for call in calls]

    def refund(self, refunds: list[KeyOperation], mailbox: Mailbox) -> None:
        remote = self._remote(refunds)
        if remote:
            self._ask([ThreadCall(mailbox, [refund]) for refund in remote], mailbox)

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

    # For tasks ----------------------------------------------------------------------

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

    async def answer(self, call: TaskCall) -> Any:
        """The answer to a hit. If the task is cancelled meanwhile, nothing is taken."""
        try:
            return await call.future
        except asyncio.CancelledError:
            self.drop([call])
            raise

    async def answers(self, calls: Sequence[TaskCall]) -> list[Any]:
        """The answers to several hits. On an exception, nothing is taken."""
        try:
            if len(calls) == 1:
                return [await calls[0].future]
            return await asyncio.gather(*(call.future for call in calls))
        except BaseException:
            self.drop(calls)
            raise

    def drop(self, calls: Sequence[TaskCall]) -> None:
        """Nobody waits for the answers any more, so the hits must take nothing."""
        for call in calls:
            call.future.cancel()
        self.refund_later(calls[0].future.get_loop(), _taken_by_all(calls))

    def refund_later(self, loop: asyncio.AbstractEventLoop, refunds: list[KeyOperation]) -> None:
        for refund in self._remote(refunds):
            self.of(loop).put(UnattendedCall([refund]))

    # For both -----------------------------------------------------------------------

    def _remote(self, refunds: list[KeyOperation]) -> list[KeyOperation]:
        """The refunds that must be sent to the server; the others are applied here."""
        for refund in refunds:
            if refund.mark < NO_MARK:
                self._settings.fallback.give_back(refund)
        return [refund for refund in refunds if refund.mark >= NO_MARK]

    @property
    def state(self) -> str:
        """The circuit breaker's state, the worst of all servers."""
        engines = [*self._by_loop.values()]
        if self._thread_loop is not None:
            engines.append(self._thread_loop.engine)
        nodes = [node for engine in engines for node in [*engine.router.nodes]]
        states = {node.server.breaker.state for node in nodes}
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
            elif loop is running_loop():
                engine.close()
            else:
                loop.call_soon_threadsafe(engine.close)
        self._by_loop.clear()
        self._last = (None, None)

    async def close_async(self) -> None:
        """Close the engine of this event loop; threads and other loops keep theirs."""
        engine = self._by_loop.pop(asyncio.get_running_loop(), None)
        self._last = (None, None)
        if engine is not None:
            engine.close()
        await asyncio.sleep(0)  # transports close in a call of their own

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"<RedisStore {self._settings.target}> was closed")


def _taken_by_all(calls: Sequence[TaskCall | ThreadCall]) -> list[KeyOperation]:
    return [refund for call in calls for refund in taken_by(call, call.outcome)]


# Forks ------------------------------------------------------------------------------

_instances: weakref.WeakSet[Engines] = weakref.WeakSet()
_inherited: list[Any] = []


def _after_fork() -> None:
    """Leave the parent's connections open: closing them would change its epoll set, too."""

    for engines in [*_instances]:
        _inherited.append((engines._thread_loop, dict(engines._by_loop), engines._last))
        engines.start_over()


os.register_at_fork(after_in_child=_after_fork)
