"""Following: a gate of an application that is kept at the rules and switches of a store.

It runs in a thread and changes the gate there. `Gate.close` ends it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from penstock.clock import SECOND, WALL, Clock
from penstock.control import rule_sets, switch_entries
from penstock.control.steps import run
from penstock.errors import PenstockError, RulesError
from penstock.kv import Change, KeyValue
from penstock.rules.deciding.switches import Batch, Switches
from penstock.rules.model import RuleSet

logger = logging.getLogger("penstock.rules")


class FollowedGate(Protocol):
    switches: Switches

    def replace(self, rules: RuleSet) -> None: ...


def rules_in(kv: KeyValue) -> tuple[RuleSet, str]:
    """The rules in force and their digest; `RulesError` if there are none, or invalid ones."""
    entry = kv.get(rule_sets.CURRENT)
    if entry is None:
        raise RulesError(f"{kv.backend.name} has no rules: use penstock rules push")
    info = rule_sets.info_of(entry)
    return rule_sets.rules_of(run(kv, rule_sets.fetch(info))), info.digest


class Following:
    """``gate`` has the rules with this digest already; its switches come from the watch.

    ``clock`` is a wall clock: entries expire at a time of the day.
    """

    def __init__(
        self, gate: FollowedGate, kv: KeyValue, digest: str, *, clock: Clock = WALL
    ) -> None:
        self._gate = gate
        self._kv = kv
        self._clock = clock
        self._in_force: dict[str, switch_entries.Command] = {}
        self._digest = digest
        kv.sync()
        self._watch = kv.watch("")
        self._apply_all(self._watch.batch(0))
        self._thread = threading.Thread(target=self._run, name="penstock-rules", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while changes := self._watch.batch():
            self._apply_all(changes)

    def _apply_all(self, changes: list[Change]) -> None:
        for change in changes:
            if change.key == rule_sets.CURRENT:
                with _logging(change):
                    self._apply_rules(change)
        with self._gate.switches.batch() as batch:
            for change in changes:
                if switch_entries.is_switch(change.key):
                    with _logging(change):
                        self._apply_switch(change, batch)

    def _apply_rules(self, change: Change) -> None:
        if change.entry is None:
            logger.error("the store has no rules any more: those in force stay")
            return
        info = rule_sets.info_of(change.entry)
        if info.digest != self._digest:
            self._gate.replace(rule_sets.rules_of(run(self._kv, rule_sets.fetch(info))))
            self._digest = info.digest

    def _apply_switch(self, change: Change, batch: Batch) -> None:
        if change.entry is not None:
            command = switch_entries.command_of(change.entry, self._clock.now() / SECOND)
            self._in_force[change.key] = command
            commands = switch_entries.setting_commands(command)
        elif change.key in self._in_force:
            commands = [switch_entries.clearing_command(self._in_force.pop(change.key))]
        else:
            return
        for each in commands:
            switch_entries.switch(batch, each)

    def stop(self) -> None:
        self._watch.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)


@contextmanager
def _logging(change: Change) -> Iterator[None]:
    """One entry that cannot be used does not keep out the others."""
    try:
        yield
    except (PenstockError, ValueError, TypeError) as error:
        logger.error("%s of the store is not in force: %s", change.key, error)
