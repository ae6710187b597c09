"""ControlPlane: rules, overrides and switches that a fleet shares, in force in this instance.

::

    admin API ── SharedControl ── ChangeHistory ── put ──> key-value store <── rules push, others
                                                                │ watch
                                                           ControlPlane ──> Workers

A change is made by writing it to the store, also for this instance: what a worker decides by has
come back from there. While the store is away, everything stays in force, changes are refused, and
health says how old the state is. Rules of the store win over files; files are used until the
first set was pushed. Without --control, the store is this process's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.admin.author import AUTHOR
from penstock.admin.commands import SWITCHES, Answer, Command, done, failed
from penstock.clock import SECOND, WALL, Clock
from penstock.control import rule_sets, switch_entries
from penstock.control.steps import run_async
from penstock.errors import PenstockError, StoreError
from penstock.kv import AsyncKeyValue, Change, Entry
from penstock.kv.cancelling import cancel
from penstock.rules.model import RuleSet
from penstock.running import collector
from penstock.running.changes import ChangeHistory
from penstock.running.reports import Reporter, read_reports
from penstock.running.settings import Settings
from penstock.running.workers import Workers

T = TypeVar("T")

logger = logging.getLogger("penstock.control")

MEMORY = "memory:"
BATCH = 1000  # switches that a worker puts in force at once, between two requests
PATIENCE = 5.0  # seconds for a change to be in force in this instance


class ControlPlane:
    """Opened before the workers, so that they start with what the store has.

    ``clock`` is a wall clock: entries expire at a time of the day.
    """

    def __init__(self, settings: Settings, instance: str, *, clock: Clock = WALL) -> None:
        self._settings = settings
        self._clock = clock
        self.instance = instance
        self.shared = settings.control != MEMORY
        cache = settings.control_cache or None
        self.kv = AsyncKeyValue(settings.control, cache=cache, who=instance[:100])
        self._mode = "shadow" if settings.shadow else "enforce"
        self._history = ChangeHistory(self.kv, clock, self._mode)
        self._reporter = Reporter(settings.control, instance) if self.shared else None
        self._watch = self.kv.watch("")
        self._applying = asyncio.Lock()
        self._revision = 0  # of the store: all changes up to it are in force
        self._in_force: dict[str, Command] = {}  # by key
        self._notes: dict[str, dict[str, Any]] = {}  # who made it, and why; by key
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: Workers | None = None
        self._started_at = self._now()
        self.rules: rule_sets.RuleSetInfo | None = None
        self.rejected: str | None = None
        self._rejected_set: rule_sets.RuleSetInfo | None = None

    def _now(self) -> float:
        return self._clock.now() / SECOND

    # Starting -------------------------------------------------------------------------------

    async def stored_rules(self) -> RuleSet | None:
        """The rules of the store, from the cache if it is away; None if it has none."""
        entry = None
        try:
            entry = await self.kv.get(rule_sets.CURRENT)
            if entry is None:
                return None
            info = rule_sets.info_of(entry)
            rules = await self._read(info)
        except PenstockError as error:
            logger.error("the rules of the store are not used: %s", error)
            self._reject(entry, error)
            return None
        self.rules = info
        return rules

    async def _read(self, info: rule_sets.RuleSetInfo) -> RuleSet:
        files = await run_async(self.kv, rule_sets.fetch(info))
        with collector.paused():
            return await asyncio.to_thread(
                rule_sets.rules_of, files, merge_domains=self._settings.merge_domains
            )

    async def start(self, workers: Workers) -> None:
        """Put the switches of the store in force, then follow it."""
        self._workers = workers
        with contextlib.suppress(StoreError):  # what the cache has is served
            await self.kv.sync()
        await self._apply_pending()
        self._run(self._follow())
        if self._reporter is not None:
            self._run(self._reporter.repeat(self._report))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        self._watch.close()
        for task in [*self._tasks]:
            await cancel(task)
        if self._reporter is not None:
            await self._reporter.close()
        await self.kv.aclose()

    # Following ------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while await self._watch.ready():
            try:
                await self._apply_pending()
            except Exception:
                logger.exception("changes of the control store could not be put in force")

    async def _apply_pending(self) -> None:
        """Put in force what the watch has. Until that is done, nobody else takes changes."""
        async with self._applying:
            revision = (await self.kv.status()).revision  # what follows includes it
            changes = self._watch.take()
            for change in changes:
                if change.key == rule_sets.CURRENT:
                    await self._apply_rules(change)
            switches = [change for change in changes if switch_entries.is_switch(change.key)]
            for start in range(0, len(switches), BATCH):
                await self._apply_switches(switches[start : start + BATCH])
            self._revision = revision

    async def _apply_rules(self, change: Change) -> None:
        assert self._workers is not None
        if change.entry is None:
            logger.error("the store has no rules any more: those in force stay")
            return
        try:
            info = rule_sets.info_of(change.entry)
            if self.rules is None or self.rules.digest != info.digest:
                rules = await self._read(info)
                answer = await self._workers.reload_from(lambda: rules)
                if not answer["ok"]:
                    raise StoreError(answer["error"])
            self.rules, self.rejected = info, None
        except PenstockError as error:
            self._reject(change.entry, error)
            logger.error("the rules of the store are rejected, older ones stay: %s", error)
        if self._reporter is not None:
            await self._reporter.report(self._report())

    def _reject(self, entry: Entry | None, error: PenstockError) -> None:
        self._rejected_set = _set_of(entry)
        number = "?" if self._rejected_set is None else self._rejected_set.number
        self.rejected = f"set {number} of the store: {error}"

    async def _apply_switches(self, changes: list[Change]) -> None:
        assert self._workers is not None
        keys: list[str] = []
        commands: list[Command] = []
        for change in changes:
            try:
                more = self._commands_of(change)
            except StoreError as error:
                logger.error("%s", error)
                continue
            keys += [change.key] * len(more)
            commands += more
        if not commands:
            return
        answers = await self._workers.apply({"do": "batch", "commands": commands})
        for answer in [each for each in answers if not each["ok"]][:1]:
            logger.error("%s is not in force: %s", ", ".join(keys[:5]), answer["error"])
        # A worker that is being restarted gets the commands when it is back, and has no result yet.
        for answer in [each for each in answers if each["ok"] and each["result"]][:1]:
            for number, problem in answer["result"]:
                logger.error("%s is not in force: %s", keys[number], problem)

    def _commands_of(self, change: Change) -> list[Command]:
        """The commands that put a change in force."""
        if change.entry is not None:
            command = switch_entries.command_of(change.entry, self._now())
            self._in_force[change.key] = command
            self._notes[change.key] = {"who": change.who, "why": change.why, "at": change.at}
            return switch_entries.setting_commands(command, self._mode)
        before = self._in_force.pop(change.key, None)
        self._notes.pop(change.key, None)
        return [] if before is None else [switch_entries.clearing_command(before, self._mode)]

    # Changing -------------------------------------------------------------------------------

    async def change(self, command: Command) -> list[Answer]:
        """Write a change to the store, and wait until it is in force here."""
        assert self._workers is not None
        answer = await self._history.make(command, AUTHOR.get() or self.instance)
        if answer["ok"] and not await self.is_in_force():
            key = switch_entries.key_of(command)
            return [failed(504, f"{key} is in the store, but not in force here yet")]
        return [answer] * self._workers.count if answer["ok"] else [answer]

    async def changes(self, limit: int) -> Answer:
        return await self._history.rows(limit)

    async def undo(self, number: int, why: str) -> Answer:
        assert self._workers is not None
        answer = await self._history.undo(number, why, AUTHOR.get() or self.instance)
        if not answer["ok"]:
            return answer
        if not await self.is_in_force():
            return failed(504, f"change {number} is undone in the store, but not here yet")
        return done({**answer["result"], "more": {"workers": self._workers.count}})

    async def is_in_force(self) -> bool:
        """Put in force all that the store has by now; False if that takes too long.

        Revisions would not tell: a store that has lost its data counts from 1 again.
        """
        catching_up = self._run(self._catch_up())
        try:
            return await asyncio.wait_for(asyncio.shield(catching_up), PATIENCE)
        except TimeoutError:
            return False

    async def _catch_up(self) -> bool:
        try:
            await self.kv.sync()
        except StoreError:
            return False
        await self._apply_pending()
        return True

    # Saying so ------------------------------------------------------------------------------

    def notes(self) -> dict[str, dict[str, Any]]:
        """Who made each override, switch and entry of a list, when and why: by its key."""
        return self._notes

    async def describe(self) -> dict[str, Any]:
        """For ``/v1/health``: which rules are in force, and how old the shared state is."""
        status = await self.kv.status()
        rejected = self.rejected
        if rejected is None and self._workers is not None:
            rejected = self._workers.rejected
        return {
            "instance": self.instance,
            "source": "files" if self.rules is None else "store",
            "number": None if self.rules is None else self.rules.number,
            "rejected": rejected,
            "control": status.source,
            "age": status.age,
            "revision": self._revision,
            "reason": status.reason or None,
        }

    def _report(self) -> dict[str, Any]:
        assert self._workers is not None
        rejected_set = None if self.rejected is None else self._rejected_set
        return {
            "number": None if self.rules is None else self.rules.number,
            "digest": None if self.rules is None else self.rules.digest,
            "rejected": None if self.rejected is None else self.rejected[:2000],
            "rejected_digest": None if rejected_set is None else rejected_set.digest,
            "revision": self._revision,
            "workers": self._workers.count,
            "since": self._started_at,
        }

    async def instances(self) -> Answer:
        """All instances that share the store, as they have reported."""
        if not self.shared:
            return failed(501, "this instance shares nothing: see penstock serve --control")
        try:
            return done(await asyncio.to_thread(read_reports, self._settings.control))
        except StoreError as error:
            return failed(503, f"the control store is away: {error}")


class SharedControl:
    """The `Control` of the admin API: switches go through the store."""

    def __init__(self, workers: Workers, plane: ControlPlane) -> None:
        self._workers = workers
        self._plane = plane

    async def apply(self, command: Command) -> list[Answer]:
        verb = command.get("do")
        if verb in SWITCHES:
            return await self._plane.change(command)
        if verb == "reload" and self._plane.rules is not None:
            return [failed(409, "the rules come from the store: use penstock rules push")]
        return await self._workers.apply(command)

    async def ask(self, command: Command) -> Answer:
        return await self._workers.ask(command)


def _set_of(entry: Entry | None) -> rule_sets.RuleSetInfo | None:
    """The set that an entry names; None if it names none."""
    try:
        return None if entry is None else rule_sets.info_of(entry)
    except StoreError:
        return None
