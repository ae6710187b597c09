"""Keeper: gets something to work, and again when it stopped working.

One attempt at a time, in a task of its own, with the breaker's pauses between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.stores.redis.breaker import OPEN, Breaker


class Keeper:
    """Runs ``attempt`` until it succeeds; ``failed`` is told why it did not."""

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

    async def _run(self) -> None:
        try:
            while True:
                if self._breaker.state == OPEN:
                    await asyncio.sleep(self._breaker.pause())
                    self._breaker.probe()
                try:
                    await self._attempt()
                    return
                except Exception as error:  # redis-py lets many kinds through, and all mean no
                    self._failed(f"{error}" or f"{type(error).__name__} while connecting")
        finally:
            if self._task is asyncio.current_task():
                self._task = None
