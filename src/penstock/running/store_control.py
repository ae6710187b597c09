"""StoreControl: the `Control` of a fleet, without an instance: all it knows is the store.

Changes are checked as an instance checks them, by the rules that were pushed. What only instances
know, such as counters, is answered with status 501.
"""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.admin.author import AUTHOR
from penstock.admin.commands import SWITCHES, Answer, Command, apply_command, done, failed
from penstock.async_gate import AsyncGate
from penstock.clock import SECOND, WALL, Clock
from penstock.control import rule_sets, switch_entries
from penstock.control.steps import run_async
from penstock.errors import RulesError, StoreError
from penstock.kv import AsyncKeyValue
from penstock.rules.model import RuleSet
from penstock.running.changes import ChangeHistory
from penstock.running.reports import read_reports

_OF_SWITCHES = ("switches", "switched")
_OF_RULES = ("rules", "names", "modes_of", "check_override", "check_list", "check_log")
_CHECKS = ("modes_of", "check_override", "check_list", "check_log")


class StoreControl:
    """Rules and switches are read when they are needed. ``clock`` is a wall clock."""

    def __init__(self, kv: AsyncKeyValue, control: str, *, clock: Clock = WALL) -> None:
        self._kv = kv
        self._control = control
        self._clock = clock
        self._history = ChangeHistory(kv, clock)
        self._switched: AsyncGate | None = None  # without rules
        self._ruled: AsyncGate | None = None
        self._notes: dict[str, dict[str, Any]] = {}

    async def ask(self, command: Command) -> Answer:
        verb = command["do"]
        try:
            if verb in _OF_SWITCHES:
                return await apply_command(await self._switches(), command)
            if verb in _OF_RULES:
                gate = await self._gate()
                if verb in _CHECKS and not gate.rules.domains:
                    return failed(409, "the store has no rules to check this by: ask an instance")
                return await apply_command(gate, command)
        except RulesError as error:
            return failed(422, f"the rules of the store are invalid: {error}")
        except StoreError as error:
            return failed(503, f"the control store is away: {error}")
        return failed(501, "only an instance knows that")

    async def apply(self, command: Command) -> list[Answer]:
        if command["do"] in ("refusals", "decisions"):
            return []
        if command["do"] not in SWITCHES:
            return [failed(501, "only an instance can do that")]
        answer = await self._history.make(command, AUTHOR.get())
        self._switched = self._ruled = None  # what is shown next comes from the store
        return [answer]

    async def changes(self, limit: int) -> Answer:
        return await self._history.rows(limit)

    async def undo(self, number: int, why: str) -> Answer:
        return await self._history.undo(number, why, AUTHOR.get())

    async def instances(self) -> Answer:
        try:
            return done(await asyncio.to_thread(read_reports, self._control))
        except StoreError as error:
            return failed(503, f"the control store is away: {error}")

    def notes(self) -> dict[str, dict[str, Any]]:
        return self._notes

    async def _switches(self) -> AsyncGate:
        if self._switched is None:
            self._switched = AsyncGate(RuleSet({}), clock=self._clock)
            await self._set_switches(self._switched)
        return self._switched

    async def _gate(self) -> AsyncGate:
        if self._ruled is None:
            info = await run_async(self._kv, rule_sets.current())
            rules = RuleSet({})
            if info is not None:
                files = await run_async(self._kv, rule_sets.fetch(info))
                # Whether domains may be split is up to the instances.
                rules = rule_sets.rules_of(files, merge_domains=True)
            self._ruled = AsyncGate(rules, clock=self._clock)
            await self._set_switches(self._ruled)
        return self._ruled

    async def _set_switches(self, gate: AsyncGate) -> None:
        now = self._clock.now() / SECOND
        self._notes.clear()
        with gate.switches.batch() as batch:
            for prefix in switch_entries.PREFIXES:
                for entry in await self._kv.list(prefix, read="primary"):
                    note = {"who": entry.who, "why": entry.why, "at": entry.at}
                    self._notes[entry.key] = note
                    switch_entries.switch(batch, switch_entries.command_of(entry, now))
