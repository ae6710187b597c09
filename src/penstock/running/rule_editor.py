"""RuleEditor: the text of the rules in force, a trial of changed ones, and putting them in force.

Changed rules go to the control store, as ``penstock rules push`` does: from then on the store wins
over files. A trial replays what the workers' flight recorders have; workers write it to files, as
it may be large.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.admin.author import AUTHOR
from penstock.admin.commands import Answer, apply_switches, done, failed
from penstock.clock import SECOND, WALL, Clock
from penstock.control import rule_sets
from penstock.control.steps import run_async
from penstock.errors import PenstockError, RevisionConflict, RulesError, StoreError
from penstock.gate import Gate
from penstock.kv import AsyncKeyValue
from penstock.metrics import labels
from penstock.metrics.flight import Recorded
from penstock.replay.trying import Outcome, Trial, try_rules
from penstock.rules.model import RuleSet
from penstock.rules.problems import Problems
from penstock.rules.reading.files import find_files, read_bytes
from penstock.running.rule_changes import RuleChanges
from penstock.running.settings import Settings
from penstock.running.workers import Workers

LAST = 3600  # seconds that a trial looks back
MOST = 300_000  # requests of a trial, the newest ones
MEMORY = "memory:"

InForce = Callable[[], Awaitable[bool]]


class RuleEditor:
    """``in_force()`` waits until all that the store has is in force here."""

    def __init__(
        self,
        settings: Settings,
        workers: Workers,
        kv: AsyncKeyValue,
        in_force: InForce,
        salt: bytes | None = None,
        *,
        clock: Clock = WALL,
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._kv = kv
        self._in_force = in_force
        self._text = labels.plain if salt is None else labels.Hashed(salt)
        self._clock = clock
        self._trying = asyncio.Lock()  # one at a time: it needs memory

    async def files(self) -> Answer:
        """The rules as text, and the revision to name when they are changed."""
        try:
            info = await run_async(self._kv, rule_sets.current())
            if info is not None:
                files = await run_async(self._kv, rule_sets.fetch(info))
                revision, source = info.revision, "store"
            else:
                files = await asyncio.to_thread(self._read_files)
                revision, source = 0, "files"
        except StoreError as error:
            return failed(503, str(error))
        except RulesError as error:
            return failed(422, str(error))
        texts = {name: data.decode("utf-8", "replace") for name, data in files.items()}
        kept = self._settings.control != MEMORY
        return done({"files": texts, "revision": revision, "source": source, "kept": kept})

    def _read_files(self) -> dict[str, bytes]:
        problems = Problems()
        paths = find_files(self._settings.rules, problems)
        problems.raise_errors()
        return {str(path): read_bytes(path) for path in paths}

    # Trying -------------------------------------------------------------------------------

    async def try_files(self, texts: Mapping[str, str]) -> Answer:
        """What these rules would have done to the last requests, beside those in force."""
        new = await self._checked(texts)
        if not isinstance(new, RuleSet):
            return new
        async with self._trying:
            since = self._clock.now() - LAST * SECOND
            with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
                dumps = await self._dumps(Path(folder), since)
                before = self._workers.rules_in_force()
                switches = await self._workers.ask({"do": "switch_commands"})
                trial = await asyncio.to_thread(self._try, dumps, before, new, switches)
        changes = RuleChanges.between(before, new)
        return done({"changes": str(changes), **self._as_json(trial)})

    async def _checked(self, texts: Mapping[str, str]) -> RuleSet | Answer:
        files = {name: text.encode() for name, text in texts.items()}
        merge = self._settings.merge_domains
        try:
            return await asyncio.to_thread(rule_sets.rules_of, files, merge_domains=merge)
        except RulesError as error:
            return failed(422, str(error), problems=[str(each) for each in error.problems])

    async def _dumps(self, folder: Path, since: int) -> list[bytes]:
        answers = await self._workers.apply(
            {"do": "recorded", "since": since, "folder": str(folder)}
        )
        names = [answer["result"] for answer in answers if answer["ok"] and answer["result"]]
        return [await asyncio.to_thread(Path(name).read_bytes) for name in names]

    @staticmethod
    def _try(dumps: list[bytes], before: RuleSet, new: RuleSet, switches: Answer) -> Trial:
        def prepare(gate: Gate) -> None:
            if switches["ok"]:
                apply_switches(gate, switches["result"])

        return try_rules(Recorded.load(dumps, MOST), before, new, prepare)

    def _as_json(self, trial: Trial) -> dict[str, Any]:
        names = dict.fromkeys([*trial.before.rules, *trial.after.rules])
        return {
            "requests": trial.requests,
            "first": trial.first / SECOND,
            "last": trial.last / SECOND,
            "unknown": trial.unknown,
            "refused_before": trial.before.refused,
            "refused_after": trial.after.refused,
            "newly_refused": trial.newly_refused,
            "newly_allowed": trial.newly_allowed,
            "rules": [
                {
                    "rule": name,
                    **_row("before", trial.before, name),
                    **_row("after", trial.after, name),
                }
                for name in names
            ],
            "keys": [
                {"rule": rule, "key": self._text(pairs), "before": before, "after": after}
                for rule, pairs, before, after in trial.keys
            ],
            "keys_changed": trial.keys_changed,
        }

    # Putting in force ---------------------------------------------------------------------

    async def put_files(self, texts: Mapping[str, str], expect: int | None, why: str) -> Answer:
        """Check these rules, and put them in force everywhere through the control store."""
        new = await self._checked(texts)
        if not isinstance(new, RuleSet):
            return new
        before = self._workers.rules_in_force()
        changes = str(RuleChanges.between(before, new))
        files = {name: text.encode() for name, text in texts.items()}
        who = (AUTHOR.get() or "page")[:100]
        try:
            if not expect and await run_async(self._kv, rule_sets.current()) is None:
                expect = await self._push_files(who)
            flow = rule_sets.push(files, summary=changes, expect=expect, who=who, why=why)
            info = await run_async(self._kv, flow)
        except RevisionConflict:
            return failed(409, "the rules were changed by somebody else meanwhile: load them again")
        except StoreError as error:
            return failed(503, f"nothing was changed, as the control store is away: {error}")
        except PenstockError as error:
            return failed(400, str(error))
        if not await self._in_force():
            return failed(504, f"set {info.number} is in the store, but not in force here yet")
        more = {"workers": self._workers.count, "revision": info.revision}
        return done({"before": None, "after": changes, "more": more})

    async def _push_files(self, who: str) -> int:
        """Push the files as they are, so that the first change can be taken back."""
        files = await asyncio.to_thread(self._read_files)
        flow = rule_sets.push(files, expect=0, who=who, why="the files, before the first change")
        return (await run_async(self._kv, flow)).revision


def _row(when: str, outcome: Outcome, name: str) -> dict[str, int]:
    trial = outcome.rules.get(name)
    return {
        f"asked_{when}": 0 if trial is None else trial.asked,
        f"refused_{when}": 0 if trial is None else trial.refused,
        f"keys_{when}": 0 if trial is None else len(trial.keys),
    }
