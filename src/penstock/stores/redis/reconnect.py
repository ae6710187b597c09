"""Reconnector and Breaker: keep a dead server from costing every request its deadline.

The breaker opens when a lost connection cannot be replaced, or after two missed deadlines in a
row. While it is not closed, no request waits. The store itself tries to reconnect, one attempt at
a time in a task of its own, so no request pays for that. Pauses grow from 50 to 300 ms.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from penstock.circuit import OPEN, Circuit
from penstock.errors import StoreUnavailable
from penstock.events import StoreDown, StoreUp
from penstock.stores.redis.settings import Settings

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.3
STRIKES = 2


class Breaker(Circuit):
    """Counts deadlines. Times are seconds of any one clock."""

    def __init__(self, patience: float, chance: Callable[[], float] = random.random) -> None:
        super().__init__(FIRST_PAUSE, LONGEST_PAUSE, chance)
        self._patience = patience
        self._strikes = 0
        self._struck_at = float("-inf")

    def missed(self, now: float) -> bool:
        """A deadline passed; returns whether that is one too many.

        Requests that were under way together count once.
        """
        if now - self._struck_at >= self._patience:
            self._struck_at = now
            self._strikes += 1
        return self._strikes >= STRIKES

    def answered(self) -> None:
        self._strikes = 0

    def close(self) -> None:
        super().close()
        self._strikes = 0
        self._struck_at = float("-inf")


class Reconnector:
    """Runs ``attempt`` until it succeeds; calls ``failed`` with the reason after each failure."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        name: str,
        attempt: Callable[[], Awaitable[None]],
        failed: Callable[[str], None],
    ) -> None:
        self.breaker = Breaker(settings.deadline)
        self._settings = settings
        self._loop = loop
        self._name = name
        self._attempt = attempt
        self._failed = failed
        self._reported = False  # that the server is down
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def active(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        """Begin, unless an attempt is under way."""
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def wait(self) -> None:
        """Begin, and return after the first success, or raise `StoreUnavailable`."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        self.start()
        await future

    def succeed(self) -> None:
        """Close the breaker and release the callers of `wait`."""
        self.breaker.close()
        if self._reported:
            self._reported = False
            seconds = time.monotonic() - self.breaker.opened_at
            self._settings.emit(StoreUp(self._name, seconds))
        for future in self._take_waiting():
            future.set_result(None)

    def trip(self, reason: str, silent: bool = False) -> str:
        """Open the breaker; callers of `wait` get the reason. Returns it without passwords."""
        reason = self._settings.hide(reason)
        if self.breaker.trip(time.monotonic(), reason) and not silent:
            self._reported = True
            self._settings.emit(StoreDown(self._name, reason))
        for future in self._take_waiting():
            future.set_exception(StoreUnavailable(f"{self._name}: {reason}"))
        return reason

    def _take_waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return [future for future in waiting if not future.done()]

    async def _run(self) -> None:
        try:
            while True:
                if self.breaker.state == OPEN:
                    await asyncio.sleep(self.breaker.pause())
                    self.breaker.probe()
                try:
                    await self._attempt()
                    return
                except Exception as error:  # redis-py raises many kinds
                    self._failed(f"{error}" or f"{type(error).__name__} while connecting")
        finally:
            if self._task is asyncio.current_task():
                self._task = None
