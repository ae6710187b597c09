"""Reconnector: gets a connection to work, and again when it stopped working.

One attempt at a time, in a task of its own, with the breaker's pauses between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.errors import StoreUnavailable
from penstock.stores.redis.breaker import OPEN, Breaker


class Reconnector:
    """Runs ``attempt`` until it succeeds; calls ``failed`` with the reason if it does not."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        breaker: Breaker,
        attempt: Callable[[], Awaitable[None]],
        failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._breaker = breaker
        self._attempt = attempt
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def active(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        """Begin, unless it is under way."""
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
        """Whoever waits for a success has it."""
        for future in self._take_waiting():
            future.set_result(None)

    def fail(self, reason: str) -> None:
        """Whoever waits for a success is told why there is none yet."""
        for future in self._take_waiting():
            future.set_exception(StoreUnavailable(reason))

    def _take_waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return [future for future in waiting if not future.done()]

    async def _run(self) -> None:
        try:
            while True:
                if self._breaker.state == OPEN:
                    await asyncio.sleep(self._breaker.pause())
                    self._breaker.probe()
                try:
                    await self._attempt()
                    return
                except Exception as error:  # redis-py raises many kinds, and all mean no
                    self._failed(f"{error}" or f"{type(error).__name__} while connecting")
        finally:
            if self._task is asyncio.current_task():
                self._task = None
