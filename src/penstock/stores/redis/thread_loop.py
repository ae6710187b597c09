"""An event loop for threads: those that wait for it drive it, one at a time.

A single thread runs the loop itself until it has its answer; no other thread is involved or has
to be woken. Of many threads, one drives. The others put their calls into the inbox and wait, and
all calls in the inbox leave in one command. When the driver has its own answer, it hands the loop
over to a thread that is still waiting.

Reconnecting, which must go on while no thread waits, is driven by a helper thread that is started
for it and ends with it. The helper also drives for threads that cannot, as they run an event loop
of their own.
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
from penstock.stores.redis.pending_call import DRIVE, Mailbox, ThreadCall
from penstock.stores.redis.settings import Settings

# Seconds that a helper stays: if it was needed once, it is often needed again.
STAY = 1.0
_LOOK_EVERY = 0.05


class ThreadLoop:
    """An engine, its loop, and whose turn it is to drive."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop()
        self.engine = Engine(settings, self._loop)
        self._turn = threading.Lock()
        self._inbox: deque[ThreadCall] = deque()
        self._drain_scheduled = False
        # Threads that wait without driving. Those that have their answers are passed over.
        self._waiting: deque[tuple[Mailbox, Sequence[ThreadCall]]] = deque()
        self._helper: threading.Thread | None = None
        self._helper_lock = threading.Lock()
        self._stay_until = 0.0
        self._closed = False
        self._owner = os.getpid()

    def ask(self, calls: Sequence[ThreadCall], mailbox: Mailbox) -> None:
        """Return when all calls, which have this mailbox, are settled."""
        refusal = self.engine.router.refusal
        if refusal is not None:
            for call in calls:
                self._settings.fallback.degrade(call, refusal)
            return
        self._inbox.extend(calls)
        try:
            if running_loop() is None and self._turn.acquire(blocking=False):
                self._drive(calls)
            else:
                self._wait(calls, mailbox)
        except BaseException:
            # Interrupted. Another thread finishes what is under way, if need be a helper.
            for call in calls:
                call.abandon()
            self._stay_until = time.monotonic() + STAY
            self._start_helper()
            self._schedule_drain()
            raise

    def _drive(self, calls: Sequence[ThreadCall]) -> None:
        """Run the loop, having got the turn, until these are settled; then hand it over."""
        loop = self._loop
        try:
            if loop.is_closed():  # since we got the turn
                for call in calls:
                    self._settings.fallback.degrade(call, "the store was closed")
                return
            if self.engine.has_input:
                # Something came while nobody drove; most likely the server closed the connection.
                loop.call_soon(loop.stop)
                loop.run_forever()
            # Send what is here now, not in the loop's first turns.
            self._drain()
            self.engine.flush()
            for call in calls:
                call.stop_loop = loop.stop
                while not call.settled:
                    loop.run_forever()  # until it is settled, or a helper's timer stops it
                call.stop_loop = None
        finally:
            connecting = self.engine.router.connecting
            self.engine.forget_settled()  # the last of them would keep the store alive
            self._turn.release()
            self._hand_over()
            if connecting:
                self._start_helper()

    def _wait(self, calls: Sequence[ThreadCall], mailbox: Mailbox) -> None:
        # The engine keeps the deadline. This does if the thread that drives does not get to run.
        end = time.monotonic() + 1.5 * self._settings.deadline
        able = running_loop() is None
        try:
            while True:
                self._waiting.append((mailbox, calls))
                # In this order: a driver that leaves now sees either us waiting or the turn taken.
                if able and self._turn.acquire(blocking=False):
                    self._drive(calls)
                    return
                if not able:
                    self._stay_until = time.monotonic() + STAY
                    self._start_helper()
                self._schedule_drain()
                if not _wait_for_mail(mailbox, calls, end):
                    for call in calls:
                        self._settings.fallback.degrade(
                            call, "this process was too busy to ask in time"
                        )
                    _wait_for_mail(mailbox, calls, math.inf)
                    return
                if all(call.answered for call in calls):
                    return
        finally:
            # If the loop was handed to us and we need it no more, hand it on.
            if not self._turn.locked():
                self._hand_over()

    def _hand_over(self) -> None:
        while True:
            try:
                mailbox, calls = self._waiting.popleft()
            except IndexError:
                return
            if not all(call.settled for call in calls):
                mailbox.put(DRIVE)
                return

    def _schedule_drain(self) -> None:
        """Have the driver empty the inbox; once, if many threads come together."""
        if not self._drain_scheduled:
            self._drain_scheduled = True
            with contextlib.suppress(RuntimeError):  # closed: see _drive
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._drain_scheduled = False  # first: a call that comes now schedules again
        inbox, put = self._inbox, self.engine.put
        while inbox:
            put(inbox.popleft())

    # The helper ----------------------------------------------------------------------

    def _start_helper(self) -> None:
        """Start a helper, which drives as long as it is needed."""
        with self._helper_lock:
            if self._helper is None and not self._closed:
                self._helper = threading.Thread(
                    target=self._help, name="penstock-redis", daemon=True
                )
                self._helper.start()

    def _help(self) -> None:
        while True:
            with self._turn:
                while self._helper_needed():
                    look_up = self._loop.call_later(_LOOK_EVERY, self._loop.stop)
                    self._loop.run_forever()
                    look_up.cancel()
            self._hand_over()
            with self._helper_lock:
                if not self._helper_needed():
                    self._helper = None
                    return

    def _helper_needed(self) -> bool:
        if self._closed:
            return False
        return self.engine.router.connecting or time.monotonic() < self._stay_until

    def connect(self, seconds: float) -> None:
        self._stay_until = time.monotonic() + seconds
        self._start_helper()
        try:
            asyncio.run_coroutine_threadsafe(self.engine.connect(seconds), self._loop).result()
        finally:
            self._stay_until = 0.0
            self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self, wait: bool = True) -> None:
        """Close the connections, from any thread; pending calls are degraded."""
        if os.getpid() != self._owner:
            return  # a forked child's copy: the sockets are its parent's
        with self._helper_lock:
            if self._closed:
                return
            self._closed = True
        # Whoever drives now settles all calls, and with them its own.
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


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that this thread runs, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wait_for_mail(mailbox: Mailbox, calls: Sequence[ThreadCall], end: float) -> bool:
    """Whether a message came before the end: to drive, or that all calls are settled."""
    while not all(call.answered for call in calls):
        left = None if end == math.inf else max(0.0, end - time.monotonic())
        try:
            message = mailbox.get(timeout=left)
        except Empty:
            return False
        if message is DRIVE and left is not None:
            return True
    return True
