"""InProcessFleet: a fleet of one worker, which lives in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.running.fleet import Answer, Command, Fleet, NewRules, read_rules
from penstock.running.rule_changes import RuleChanges
from penstock.running.settings import Settings
from penstock.running.worker import Worker


class InProcessWorker:
    """Its only member."""

    name = "0"

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def apply(self, command: Command) -> Answer:
        return await self._worker.apply(command)

    async def prepare(self, new: NewRules) -> Answer:
        return await self._worker.prepare_rules(new.rules)

    async def swap(self) -> Answer:
        return await self._worker.apply({"do": "swap_rules"})


class InProcessFleet(Fleet):
    """Reloads as several workers do, without a process in between."""

    def __init__(self, settings: Settings, about: dict[str, Any], worker: Worker) -> None:
        super().__init__(settings, about)
        self.members = [InProcessWorker(worker)]
        self._worker = worker

    def loaded(self) -> Mapping[str, str]:
        return self._worker.gate.rules.digests

    def _read_new_rules(self) -> NewRules:
        rules = read_rules(self._settings)
        return NewRules(rules, RuleChanges.between(self._worker.gate.rules, rules))

    def _keep_rules(self, new: NewRules) -> None:
        """The worker has them."""
