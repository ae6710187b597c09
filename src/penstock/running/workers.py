"""Workers: all workers of this service, as the admin API sees them.

With one worker, it runs in this process. With several, each is a process of its own, and
`supervisor.py` starts and restarts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.admin.commands import Answer, Command, failed
from penstock.admin.handlers import Sources
from penstock.metrics import AnomalyWatch, Gathered, Snapshot, Statsd, merge
from penstock.running.reload import Reload, WorkerHandle, apply_to_all
from penstock.running.rule_watch import RuleWatch
from penstock.running.rules_in_force import Read, RulesInForce
from penstock.running.settings import Settings
from penstock.running.store_watch import StoreWatch

logger = logging.getLogger("penstock.server")

TOP_OUTCOMES = ("allowed", "refused", "near_limit", "shadowed", "overrun")


class Workers:
    """Passes commands to the workers, reloads them, and sums up their metrics.

    It is the `Control` of the admin API. ``about`` is shown at ``/v1/version``.
    """

    def __init__(
        self,
        settings: Settings,
        about: Mapping[str, Any],
        workers: Sequence[WorkerHandle],
        rules: RulesInForce,
    ) -> None:
        self._settings = settings
        self._about = dict(about)
        self._workers = workers
        self._gathered = Gathered()
        self._reload = Reload(workers, rules)
        self.loaded = rules.loaded
        self.rules_in_force = rules.current
        self.watch = AnomalyWatch()
        self.store_watch = StoreWatch()
        self.rule_watch = RuleWatch()
        self.other_sources: list[Any] = []  # of metrics: the anomaly watch, the webhook

    # Control ---------------------------------------------------------------------------------

    async def apply(self, command: Command) -> list[Answer]:
        """In every worker; an answer from each."""
        if command.get("do") == "reload":
            return await self.reload_rules()
        return await apply_to_all(self._workers, command)

    async def ask(self, command: Command) -> Answer:
        """In any one worker: the first that answers."""
        answer = failed(503, "no worker is running")
        for worker in self._workers:
            answer = await worker.apply(command)
            if answer.get("status") not in (503, 504):
                break
        return answer

    async def reload(self) -> bool:
        """Rules and certificates, in all workers; whether both could be reloaded."""
        answers = await self.reload_rules() if self._settings.rules else []
        certificates = await self.reload_certificates()
        return certificates and all(answer["ok"] for answer in answers)

    async def reload_certificates(self) -> bool:
        answers = await self.apply({"do": "reload_tls"})
        for answer in [each for each in answers if not each["ok"]][:1]:
            logger.error("the certificate was not reloaded: %s", answer["error"])
        return all(answer["ok"] for answer in answers)

    async def reload_rules(self) -> list[Answer]:
        """In all workers or in none; the same answer for each of them."""
        if self._settings.rules:
            answer = await self._reload.run()
        else:
            answer = failed(422, "there are no files of rules to read again (--rules PATH)")
        return [answer] * len(self._workers)

    async def reload_from(self, read: Read) -> Answer:
        """Other rules than those of the files, in all workers or in none."""
        return await self._reload.run(read)

    @property
    def rejected(self) -> str | None:
        """Why the rules that were read last are not in force; None if they are."""
        return self._reload.rejected

    @property
    def count(self) -> int:
        return len(self._workers)

    # Figures ---------------------------------------------------------------------------------

    async def snapshot(self) -> Snapshot:
        """The metrics of all workers, including those that have ended."""
        answers = await apply_to_all(self._workers, {"do": "snapshot"})
        for worker, answer in zip(self._workers, answers, strict=True):
            if answer["ok"]:
                self._gathered.put(worker.name, answer["result"].encode("latin-1"))
        return merge([self._gathered.snapshot(), *[each.snapshot() for each in self.other_sources]])

    async def health(self) -> dict[str, bool]:
        answers = await self.apply({"do": "health"})
        components = {"workers": all(answer["ok"] for answer in answers)}
        if not any(answer["ok"] for answer in answers):
            components["service"] = False
        for answer in answers:
            for part, (ok, _) in (answer["result"] if answer["ok"] else {}).items():
                name = part or "service"
                components[name] = components.get(name, True) and bool(ok)
        return components

    async def metrics(self) -> bytes:
        from penstock.metrics.prometheus import exposition

        return exposition(await self.snapshot())[0]

    async def top(self, count: int) -> dict[str, Any]:
        """The busiest rules, and the keys that are refused most often."""
        snapshot = await self.snapshot()
        rules: dict[str, dict[str, int]] = {}
        for (_, rule, outcome), value in snapshot.values.get(
            "penstock_decisions_total", {}
        ).items():
            if isinstance(value, int):
                row = rules.setdefault(rule, {})
                row[outcome] = row.get(outcome, 0) + value
        busiest = sorted(rules.items(), key=lambda each: -sum(each[1].values()))[:count]
        return {
            "at": snapshot.at / 1e9,
            "rules": [
                {"rule": rule, **{outcome: row.get(outcome, 0) for outcome in TOP_OUTCOMES}}
                for rule, row in busiest
            ],
            "keys": [
                {"key": " ".join(each.key), "refused": each.count, "error": each.error}
                for each in snapshot.refused.most(count)
            ],
        }

    async def about(self) -> dict[str, Any]:
        return {**self._about, "workers": len(self._workers)}

    def sources(self) -> Sources:
        return Sources(self.health, self.about, self.metrics, self.snapshot, self.top)

    async def send_to_statsd(self, statsd: Statsd, seconds: float) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(statsd.send, await self.snapshot())

    async def look_for_anomalies(self, seconds: float = 10.0) -> None:
        """Until it is cancelled."""
        while True:
            snapshot = await self.snapshot()
            self.watch.look(snapshot.refusals())
            self.store_watch.look(snapshot)
            self.rule_watch.look(snapshot)
            await asyncio.sleep(seconds)
