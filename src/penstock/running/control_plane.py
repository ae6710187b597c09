"""ControlPlane: rules, overrides and switches that a fleet shares, in force in this instance.

::

    admin API ── SharedControl ── put ──> key-value store <── penstock rules push, other instances
                                               │ watch
                                          ControlPlane ──> Workers: reload, switch commands

A change is made by writing it to the store, also for this instance: what a worker decides by has
come back from there. While the store is away, everything stays in force, changes are refused, and
health says how old the state is. Rules of the store win over files; files are used until the
first set was pushed. Without --control, the store is this process's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

from penstock.admin.author import AUTHOR
from penstock.admin.commands import SWITCHES, Answer, Command, done, failed
from penstock.clock import SECOND, WALL, Clock
from penstock.control import rule_sets, switch_entries
from penstock.control.steps import run_async
from penstock.errors import PenstockError, RevisionConflict, StoreError
from penstock.kv import AsyncKeyValue, Change, Entry
from penstock.kv.cancelling import cancel
from penstock.rules.model import RuleSet
from penstock.running.reports import open_reports
from penstock.running.settings import Settings
from penstock.running.workers import Workers

logger = logging.getLogger("penstock.control")

MEMORY = "memory:"
REPORT = 5.0  # seconds between two reports
REPORT_LASTS = "20s"
BATCH = 1000  # switches that a worker puts in force at once, between two requests
PATIENCE = 5.0  # seconds for a change to come back from the store


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
        self._reports = open_reports(settings.control) if self.shared else None
        self._watch = self.kv.watch("")
        self._applied = 0
        self._progress = asyncio.Condition()
        self._in_force: dict[str, Command] = {}  # by key
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: Workers | None = None
        self._started_at = self._now()
        self._mode = "shadow" if settings.shadow else "enforce"
        self.rules: rule_sets.RuleSetInfo | None = None
        self.rejected: str | None = None
        self.rejected_number: int | None = None

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
            self.rejected, self.rejected_number = str(error), _number(entry)
            return None
        self.rules = info
        return rules

    async def _read(self, info: rule_sets.RuleSetInfo) -> RuleSet:
        files = await run_async(self.kv, rule_sets.fetch(info))
        return await asyncio.to_thread(
            rule_sets.rules_of, files, merge_domains=self._settings.merge_domains
        )

    async def start(self, workers: Workers) -> None:
        """Put the switches of the store in force, then follow it."""
        self._workers = workers
        with contextlib.suppress(StoreError):  # what the cache has is served
            await self.kv.sync()
        await self._apply(self._watch.take())
        self._tasks.append(asyncio.create_task(self._follow()))
        if self._reports is not None:
            self._tasks.append(asyncio.create_task(self._report_again()))

    async def close(self) -> None:
        self._watch.close()
        for task in self._tasks:
            await cancel(task)
        if self._reports is not None:
            with contextlib.suppress(PenstockError):
                await self._reports.delete(self.instance)
            await self._reports.aclose()
        await self.kv.aclose()

    # Following ------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while changes := await self._watch.batch():
            try:
                await self._apply(changes)
            except Exception:
                logger.exception("changes of the control store could not be put in force")

    async def _apply(self, changes: list[Change]) -> None:
        for change in changes:
            if change.key == rule_sets.CURRENT:
                await self._apply_rules(change)
        switches = [change for change in changes if switch_entries.is_switch(change.key)]
        for start in range(0, len(switches), BATCH):
            await self._apply_switches(switches[start : start + BATCH])
        async with self._progress:
            self._applied = max([self._applied, *[change.revision for change in changes]])
            self._progress.notify_all()

    async def _apply_rules(self, change: Change) -> None:
        assert self._workers is not None
        if change.entry is None:
            logger.error("the store has no rules any more: those in force stay")
            return
        try:
            info = rule_sets.info_of(change.entry)
            if self.rules is not None and self.rules.digest == info.digest:
                self.rules, self.rejected = info, None  # in force already
            else:
                rules = await self._read(info)
                answer = await self._workers.reload_from(lambda: rules)
                if not answer["ok"]:
                    raise StoreError(answer["error"])
                self.rules, self.rejected = info, None
        except PenstockError as error:
            number = self.rejected_number = _number(change.entry)
            self.rejected = f"set {'?' if number is None else number} of the store: {error}"
            logger.error("the rules of the store are rejected, older ones stay: %s", error)
        await self._report()

    async def _apply_switches(self, changes: list[Change]) -> None:
        assert self._workers is not None
        keys, commands = [], []
        for change in changes:
            try:
                command = self._command_of(change)
            except StoreError as error:
                logger.error("%s", error)
                continue
            if command is not None:
                keys.append(change.key)
                commands.append(command)
        if not commands:
            return
        answers = await self._workers.apply({"do": "batch", "commands": commands})
        for answer in [each for each in answers if not each["ok"]][:1]:
            logger.error("%s is not in force: %s", ", ".join(keys[:5]), answer["error"])
        # A worker that is being restarted gets the commands when it is back, and has no result yet.
        for answer in [each for each in answers if each["ok"] and each["result"]][:1]:
            for number, problem in answer["result"]:
                logger.error("%s is not in force: %s", keys[number], problem)

    def _command_of(self, change: Change) -> Command | None:
        """The command that puts a change in force; None if nothing is to be done."""
        if change.entry is not None:
            command = switch_entries.command_of(change.entry, self._now())
            self._in_force[change.key] = command
            return command
        before = self._in_force.pop(change.key, None)
        return None if before is None else switch_entries.clearing_command(before, self._mode)

    # Changing -------------------------------------------------------------------------------

    async def change(self, command: Command) -> list[Answer]:
        """Write a change to the store, and wait until it is in force here."""
        assert self._workers is not None
        who, why = AUTHOR.get() or self.instance, str(command.get("why") or "")
        key, expect = switch_entries.key_of(command), command.get("expect")
        expires_at: float | None = None
        try:
            if switch_entries.clears(command, self._mode):
                revision = await self.kv.delete(key, expect=expect, who=who[:100], why=why)
            else:
                entry = await self.kv.put(
                    key, switch_entries.value_of(command), ttl=command.get("lasts"),
                    expect=expect, who=who[:100], why=why,
                )  # fmt: skip
                revision, expires_at = entry.revision, entry.expires_at
        except RevisionConflict as conflict:
            state = f"at change {conflict.actual}" if conflict.actual else "not set"
            return [failed(409, f"{key} is {state}, not at {expect}: see /v1/changes")]
        except StoreError as error:
            return [failed(503, f"nothing was changed, as the control store is away: {error}")]
        if revision is not None and not await self._in_force_here(revision, expires_at):
            return [failed(504, f"{key} is in the store, but not in force here yet")]
        return [done()] * self._workers.count

    async def changes(self, limit: int) -> Answer:
        """What was changed, the newest first. Reports and pieces of files are left out."""
        try:
            rows: list[dict[str, Any]] = []
            before: int | None = None
            while len(rows) < limit:
                page = await self.kv.history(limit=500, before=before)
                for change in filter(_is_shown, page):
                    rows.append(await self._row(change))
                if len(page) < 500:
                    break
                before = page[-1].revision
        except StoreError as error:
            return failed(503, str(error))
        return done(rows[:limit])

    async def _row(self, change: Change) -> dict[str, Any]:
        previous = await self.kv.change(change.previous) if change.previous else None
        return {
            "number": change.revision,
            "at": change.at,
            "who": change.who,
            "why": change.why,
            "what": change.key,
            "before": _shown(previous) if change.previous else None,
            "after": _shown(change),
        }

    async def undo(self, number: int, why: str) -> Answer:
        """Put back what was there before a change, unless it was changed again since."""
        assert self._workers is not None
        who = (AUTHOR.get() or self.instance)[:100]
        why = why or f"undo of {number}"
        try:
            change = await self.kv.change(number)
            if change is None or not _is_shown(change):
                return failed(404, f"there is no change {number}: see /v1/changes")
            previous = await self.kv.change(change.previous) if change.previous else None
            if change.previous and previous is None:
                return failed(409, f"what change {number} replaced is no longer remembered")
            expect = 0 if change.entry is None else change.revision
            entry = None if previous is None else previous.entry
            left: float | None = None
            expires_at: float | None = None
            if entry is not None and entry.expires_at is not None:
                left = round(entry.expires_at - self._now(), 3)
            if entry is None or (left is not None and left <= 0):
                revision = await self.kv.delete(change.key, expect=expect, who=who, why=why)
            else:
                value, key = entry.value, change.key
                put = await self.kv.put(key, value, ttl=left, expect=expect, who=who, why=why)
                revision, expires_at = put.revision, put.expires_at
        except RevisionConflict:
            return failed(409, f"what change {number} changed was changed again since")
        except StoreError as error:
            return failed(503, f"nothing was changed, as the control store is away: {error}")
        if revision is not None and not await self._in_force_here(revision, expires_at):
            return failed(504, f"{change.key} is in the store, but not in force here yet")
        after = None if previous is None else _shown(previous)
        more = {"workers": self._workers.count}
        return done({"before": _shown(change), "after": after, "more": more})

    async def reached(self, revision: int) -> bool:
        """Wait until a change of the store is in force here; False if it takes too long."""
        return await self._in_force_here(revision, None)

    async def _in_force_here(self, revision: int, expires_at: float | None) -> bool:
        """Whether a change took effect. One that expires first is not heard of, and is done."""
        left = PATIENCE if expires_at is None else expires_at - self._now()
        try:
            async with asyncio.timeout(max(0.0, min(PATIENCE, left))), self._progress:
                await self._progress.wait_for(lambda: self._applied >= revision)
        except TimeoutError:
            return left < PATIENCE
        return True

    # Saying so ------------------------------------------------------------------------------

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
            "revision": self._applied,
            "reason": status.reason or None,
        }

    async def _report(self) -> None:
        if self._reports is None:
            return
        assert self._workers is not None
        report = {
            "number": None if self.rules is None else self.rules.number,
            "rejected": None if self.rejected is None else self.rejected[:2000],
            "rejected_number": None if self.rejected is None else self.rejected_number,
            "revision": self._applied,
            "workers": self._workers.count,
            "since": self._started_at,
        }
        with contextlib.suppress(PenstockError):  # the store is away; the next one follows
            await self._reports.put(self.instance, json.dumps(report), ttl=REPORT_LASTS)

    async def _report_again(self) -> None:
        while True:
            await self._report()
            await asyncio.sleep(REPORT)


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


def _is_shown(change: Change) -> bool:
    return change.key == rule_sets.CURRENT or switch_entries.is_switch(change.key)


def _shown(change: Change | None) -> str | None:
    """A change in a few words, for people."""
    if change is None:
        return "?"
    if change.entry is None:
        return None
    try:
        if change.key == rule_sets.CURRENT:
            return f"set {rule_sets.info_of(change.entry).number}"
        data = json.loads(change.entry.text)
        return str(data.get("mode") or data.get("limit") or f"x{data['factor']:g}")
    except (ValueError, KeyError, TypeError, StoreError):
        return "listed"


def _number(entry: Entry | None) -> int | None:
    """Of the set that an entry names; None if it names none."""
    if entry is None:
        return None
    try:
        number = json.loads(entry.text)["number"]
    except (ValueError, KeyError, TypeError):
        return None
    return number if type(number) is int else None
