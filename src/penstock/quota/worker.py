"""The threads of a ledger: one writes, one reads.

Callers put calls into a queue and wait. The writing thread takes all that are waiting, applies
them in one transaction, and answers when it is committed: while the disk writes one group, the
next one gathers. Threads start when they are first needed and end with `close`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from penstock.quota.errors import LedgerUnavailable

# The most calls in one transaction.
_MOST = 512
# After a group, how long to wait, in seconds, for as many callers to come back.
_GATHER = 0.001
_LOOK_EVERY = 0.00005


class Call:
    """A call to a thread, and its outcome. It is made even if the caller no longer waits."""

    __slots__ = ("error", "result", "what")

    def __init__(self, what: Any) -> None:
        self.what = what
        self.result: Any = None
        self.error: BaseException | None = None

    def finish(self) -> None:
        """Wake the caller."""

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class ThreadCall(Call):
    """A thread waits for it."""

    __slots__ = ("_done",)

    def __init__(self, what: Any) -> None:
        super().__init__(what)
        self._done = threading.Lock()
        self._done.acquire()

    def finish(self) -> None:
        self._done.release()

    def wait(self) -> Any:
        self._done.acquire()
        return self.outcome()


class TaskCall(Call):
    """A task waits for it."""

    __slots__ = ("future", "loop")

    def __init__(self, what: Any) -> None:
        super().__init__(what)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    async def wait(self) -> Any:
        await self.future
        return self.outcome()


def wake(calls: Sequence[Call]) -> None:
    """Wake all callers; the tasks of an event loop with one call."""
    loops: dict[asyncio.AbstractEventLoop, list[TaskCall]] = {}
    for call in calls:
        if isinstance(call, TaskCall):
            loops.setdefault(call.loop, []).append(call)
        else:
            call.finish()
    for loop, tasks in loops.items():
        try:
            loop.call_soon_threadsafe(_wake_tasks, tasks)
        except RuntimeError:  # the loop has been closed: nobody waits any more
            continue


def _wake_tasks(calls: Sequence[TaskCall]) -> None:
    for call in calls:
        if not call.future.done():
            call.future.set_result(None)


class Worker:
    """A thread that runs groups of calls, in the order of their arrival.

    ``run`` sets the outcome of each. ``close`` is called by the thread at its end.
    """

    def __init__(
        self, name: str, run: Callable[[list[Call]], None], close: Callable[[], None]
    ) -> None:
        self._name = name
        self._run = run
        self._close = close
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False

    def submit(self, call: Call) -> None:
        if self._thread is None:
            self._start()
        self._queue.put(call)
        if self._closed:
            self._refuse_the_rest()

    def _start(self) -> None:
        with self._starting:
            if self._closed:
                raise LedgerUnavailable("this ledger is closed")
            if self._thread is None:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def _work(self) -> None:
        last = 0
        try:
            while True:
                calls, ends = self._gather(last)
                last = len(calls)
                if calls:
                    self._run_group(calls)
                if ends:
                    return
        finally:
            self._close()

    def _gather(self, last: int) -> tuple[list[Call], bool]:
        """The calls that wait, and whether the thread ends after them.

        Callers of the last group come back one after another. A transaction for the first of
        them alone would cost the others its time.
        """
        first = self._queue.get()
        if first is None:
            return [], True
        calls, until = [first], 0.0
        while len(calls) < _MOST:
            try:
                call = self._queue.get_nowait()
            except Empty:
                if len(calls) >= last - last // 8:
                    break
                now = time.monotonic()
                until = until or now + _GATHER
                if now >= until:
                    break
                time.sleep(_LOOK_EVERY)
                continue
            if call is None:
                return calls, True
            calls.append(call)
        return calls, False

    def _run_group(self, calls: list[Call]) -> None:
        try:
            self._run(calls)
        except BaseException as error:
            for call in calls:
                call.error = error
        wake(calls)

    def close(self) -> None:
        """Run what has been submitted, and end the thread."""
        with self._starting:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()
        self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        """What came after the end."""
        thread = self._thread
        if thread is not None:
            return
        calls = []
        while True:
            try:
                call = self._queue.get_nowait()
            except Empty:
                break
            if call is not None:
                call.error = LedgerUnavailable("this ledger is closed")
                calls.append(call)
        wake(calls)
