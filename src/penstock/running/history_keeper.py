"""HistoryKeeper: asks all workers once a second what they have counted, and keeps it.

One tick serves all viewers of the page. With ``--history FILE`` what was kept survives a restart:
it is written once a minute and at the end, to a new file that then replaces the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.admin.commands import Answer, Command
from penstock.clock import SECOND, WALL, Clock
from penstock.metrics.history import MOST_RULES, History, Totals

SAVE_EVERY = 60  # seconds

logger = logging.getLogger("penstock.server")

Apply = Callable[[Command], Awaitable[list[Answer]]]


class HistoryKeeper:
    """``apply`` executes a command in all workers. ``clock`` is the time of day."""

    def __init__(self, apply: Apply, file: str = "", *, clock: Clock = WALL) -> None:
        self._apply = apply
        self._file = Path(file) if file else None
        self._clock = clock
        self._totals = Totals()
        self._saved_at = 0
        self._save_fails = False
        self.history = History()
        self._load()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                now = self._clock.now()
                await asyncio.sleep((SECOND - now % SECOND) / SECOND)
                await self.tick()
        finally:
            self._save()

    async def tick(self) -> None:
        """Add what all workers have counted since the last tick."""
        answers = await self._apply({"do": "counts"})
        added: dict[str, list[int]] = {}
        for answer in answers:
            if answer["ok"] and answer["result"] is not None:
                worker, counts = answer["result"]
                _sum(added, self._totals.added(worker, counts))
        at = self._clock.now() // SECOND
        self.history.add(at, added)
        if at >= self._saved_at + SAVE_EVERY:
            self._saved_at = at
            await self._make_room()
            await asyncio.to_thread(self._save)

    async def _make_room(self) -> None:
        if len(self.history.minutes.rules) < MOST_RULES:
            return
        for answer in await self._apply({"do": "names"}):
            if answer["ok"]:
                self.history.keep(answer["result"])
                return

    # On disk ------------------------------------------------------------------------------

    def _load(self) -> None:
        if self._file is None:
            return
        try:
            self.history.load(self._file.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            logger.warning("the history in %s is not used: %s", self._file, error)

    def _save(self) -> None:
        if self._file is None:
            return
        new = self._file.with_name(f".{self._file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            new.write_bytes(self.history.dump())
            new.replace(self._file)
            self._save_fails = False
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            if not self._save_fails:  # say it once
                logger.warning("the history cannot be written to %s: %s", self._file, error)
            self._save_fails = True


def _sum(out: dict[str, list[int]], added: dict[str, list[int]]) -> None:
    for rule, counts in added.items():
        before = out.get(rule, [0] * len(counts))
        out[rule] = [a + b for a, b in zip(before, counts, strict=True)]
