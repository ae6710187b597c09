"""Fleet: the processes that decide, as the admin API and the supervisor see them.

With one worker it is in this process. With several each is a process of its own, and the
supervisor asks them over channels. Both look the same from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.admin.handlers import Sources
from penstock.metrics import AnomalyWatch, Gathered, Snapshot, merge
from penstock.rules.model import RuleSet
from penstock.running.settings import Settings
from penstock.running.store_watch import StoreWatch

logger = logging.getLogger("penstock.server")

Answer = dict[str, Any]
Command = dict[str, Any]
TOP_OUTCOMES = ("allowed", "refused", "near_limit", "shadowed", "overrun")


def read_rules(settings: Settings) -> RuleSet:
    """From the files that were named; `RulesError` says what is wrong with them."""
    if not settings.rules:
        return RuleSet({})
    from penstock.rules.parse import load_files

    return load_files(settings.rules, merge_domains=settings.merge_domains)


class Member(Protocol):
    """One process that decides."""

    name: str

    async def apply(self, command: Command) -> Answer:
        """Never raises: what went wrong is in the answer."""


class Fleet:
    """All members. It is the admin API's `Control`, and where its figures come from."""

    def __init__(self, settings: Settings, about: Mapping[str, Any]) -> None:
        self._settings = settings
        self._about = dict(about)
        self._gathered = Gathered()
        self.members: list[Member] = []
        self.watch = AnomalyWatch()
        self.store_watch = StoreWatch()
        self.more: list[Any] = []  # others that have a snapshot: the watch, the webhook

    def loaded(self) -> Mapping[str, str]:
        """A digest of each file that the rules in force were read from."""
        return {}

    # Control ---------------------------------------------------------------------------------

    async def apply(self, command: Command) -> list[Answer]:
        """In every process; an answer from each."""
        return list(await asyncio.gather(*[member.apply(command) for member in self.members]))

    async def ask(self, command: Command) -> Answer:
        """In any one process: the first that answers."""
        answer: Answer = {"ok": False, "status": 503, "error": "no worker is running"}
        for member in self.members:
            answer = await member.apply(command)
            if answer.get("status") not in (503, 504):
                break
        return answer

    async def reload(self) -> bool:
        """Rules and certificates, in all of them; whether all could."""
        answers = await self.apply({"do": "reload"}) if self._settings.rules else []
        answers += await self.apply({"do": "reload_tls"})
        wrong = [answer for answer in answers if not answer["ok"]]
        for answer in wrong[:1]:
            logger.error("reloading failed, all stays as it was:\n%s", answer["error"])
        if not wrong:
            logger.info("rules reloaded", extra={"fields": {"workers": len(self.members)}})
        return not wrong

    # Figures ---------------------------------------------------------------------------------

    async def snapshot(self) -> Snapshot:
        """The metrics of all, also of those that have ended."""
        members = [*self.members]
        answers = await asyncio.gather(*[each.apply({"do": "snapshot"}) for each in members])
        for member, answer in zip(members, answers, strict=True):
            if answer["ok"]:
                self._gathered.put(member.name, answer["result"].encode("latin-1"))
        return merge([self._gathered.snapshot(), *[each.snapshot() for each in self.more]])

    def retire(self, name: str) -> None:
        """A member ended; what it counted stays."""
        self._gathered.retire(name)

    async def health(self) -> dict[str, bool]:
        answers = await self.apply({"do": "health"})
        found = {"workers": all(answer["ok"] for answer in answers)}
        if not any(answer["ok"] for answer in answers):
            found["service"] = False
        for answer in answers:
            for name, (ok, _) in (answer["result"] if answer["ok"] else {}).items():
                found[name or "service"] = found.get(name or "service", True) and bool(ok)
        return found

    async def metrics(self) -> bytes:
        from penstock.metrics.prometheus import exposition

        return exposition(await self.snapshot())[0]

    async def top(self, count: int) -> dict[str, Any]:
        """The busiest rules, and the keys that are refused most."""
        snapshot = await self.snapshot()
        rules: dict[str, dict[str, int]] = {}
        for labels, value in snapshot.values.get("penstock_decisions_total", {}).items():
            _, rule, outcome = labels
            if isinstance(value, int):
                row = rules.setdefault(rule, {})
                row[outcome] = row.get(outcome, 0) + value
        busiest = sorted(rules.items(), key=lambda each: -sum(each[1].values()))[:count]
        return {
            "at": snapshot.at / 1e9,
            "rules": [
                {"rule": rule, **{word: row.get(word, 0) for word in TOP_OUTCOMES}}
                for rule, row in busiest
            ],
            "keys": [
                {"key": " ".join(each.key), "refused": each.count, "error": each.error}
                for each in snapshot.refused.most(count)
            ],
        }

    async def about(self) -> dict[str, Any]:
        return {**self._about, "workers": len(self.members)}

    def sources(self) -> Sources:
        return Sources(
            health=self.health,
            about=self.about,
            metrics=self.metrics,
            snapshot=self.snapshot,
            top=self.top,
        )

    async def look_for_anomalies(self, seconds: float = 10.0) -> None:
        """Until it is cancelled."""
        while True:
            snapshot = await self.snapshot()
            self.watch.look(snapshot.refusals())
            self.store_watch.look(snapshot)
            await asyncio.sleep(seconds)
