"""Fleet: the workers, as the admin API and the supervisor see them.

With one worker, it is in this process (`in_process.py`). With several, each is a process of its
own, and the supervisor asks them over channels (`supervisor.py`).

Rules are reloaded in two phases, so that all workers have the same ones::

    read and check the files, once
    prepare in every worker ──── one cannot: reject in all, the old rules stay
    swap in every worker

A worker that dies or hangs meanwhile is started again, with the rules that are in force by then.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.admin.handlers import Sources
from penstock.errors import RulesError
from penstock.metrics import AnomalyWatch, Gathered, Snapshot, merge
from penstock.rules.model import RuleSet
from penstock.running.rule_changes import RuleChanges
from penstock.running.settings import Settings
from penstock.running.store_watch import StoreWatch

logger = logging.getLogger("penstock.server")

Answer = dict[str, Any]
Command = dict[str, Any]
TOP_OUTCOMES = ("allowed", "refused", "near_limit", "shadowed", "overrun")
# A reload that finds no worker running waits so many seconds for one.
NO_WORKER, RETRY = 10.0, 0.1


def read_rules(settings: Settings) -> RuleSet:
    """From the files that were named; `RulesError` says what is wrong with them."""
    if not settings.rules:
        return RuleSet({})
    from penstock.rules.reading.parse import load_files

    return load_files(settings.rules, merge_domains=settings.merge_domains)


@dataclass(frozen=True, slots=True)
class NewRules:
    """Rules that were read and checked, on their way to the workers."""

    rules: RuleSet
    changes: RuleChanges
    pickled: bytes = b""  # the rules and their lineage, for workers in other processes


class Member(Protocol):
    """One worker. No method raises: what went wrong is in the answer.

    ``"away": True`` in an answer says that the worker is not running: it is being started, or
    it died or hung and will be started again.
    """

    name: str

    async def apply(self, command: Command) -> Answer: ...

    async def prepare(self, new: NewRules) -> Answer:
        """Compile new rules, and keep them for `swap`."""

    async def swap(self) -> Answer:
        """Put the prepared rules in force."""


class Fleet(ABC):
    """All workers. It is the admin API's `Control`, and where its figures come from."""

    def __init__(self, settings: Settings, about: Mapping[str, Any]) -> None:
        self._settings = settings
        self._about = dict(about)
        self._gathered = Gathered()
        self._reloading = asyncio.Lock()
        self.members: Sequence[Member] = ()
        self.watch = AnomalyWatch()
        self.store_watch = StoreWatch()
        self.other_sources: list[Any] = []  # of metrics: the anomaly watch, the webhook

    @abstractmethod
    def loaded(self) -> Mapping[str, str]:
        """A digest of each file that the rules in force were read from."""

    @abstractmethod
    def _read_new_rules(self) -> NewRules:
        """Read the files and compare them with what is in force. Called in a thread."""

    @abstractmethod
    def _keep_rules(self, new: NewRules) -> None:
        """Every worker has prepared these rules: they are what a worker starts with from now on."""

    # Control ---------------------------------------------------------------------------------

    async def apply(self, command: Command) -> list[Answer]:
        """In every worker; an answer from each."""
        if command.get("do") == "reload":
            return await self.reload_rules()
        return list(await asyncio.gather(*[member.apply(command) for member in self.members]))

    async def ask(self, command: Command) -> Answer:
        """In any one worker: the first that answers."""
        answer: Answer = {"ok": False, "status": 503, "error": "no worker is running"}
        for member in self.members:
            answer = await member.apply(command)
            if answer.get("status") not in (503, 504):
                break
        return answer

    # Reloading -------------------------------------------------------------------------------

    async def reload(self) -> bool:
        """Rules and certificates, in all workers; whether both could be reloaded."""
        answers = await self.reload_rules() if self._settings.rules else []
        certificates = await self.apply({"do": "reload_tls"})
        for answer in [each for each in certificates if not each["ok"]][:1]:
            logger.error("the certificate was not reloaded: %s", answer["error"])
        return all(answer["ok"] for answer in (*answers, *certificates))

    async def reload_rules(self) -> list[Answer]:
        """In all workers or in none; the same answer for each of them."""
        async with self._reloading:
            answer = await self._reload_rules()
        return [answer] * len(self.members)

    async def _reload_rules(self) -> Answer:
        if not self._settings.rules:
            return _failed(422, "there are no files of rules to read again (--rules PATH)")
        try:
            new = await asyncio.to_thread(self._read_new_rules)
        except RulesError as error:
            problems = [str(problem) for problem in error.problems]
            return await self._reject(_failed(422, str(error), problems=problems))
        logger.debug("new rules were read and are being prepared")
        answers = await self._prepare(new)
        veto = _veto(answers)
        if veto is not None:
            return await self._reject(veto)
        self._keep_rules(new)
        await asyncio.gather(*[member.swap() for member, answer in answers if answer["ok"]])
        fields = {"workers": len(self.members)}
        logger.info("rules reloaded: %s", new.changes, extra={"fields": fields})
        return {"ok": True, "result": None}

    async def _prepare(self, new: NewRules) -> list[tuple[Member, Answer]]:
        """In every worker that is running; if none is, wait a while for one."""
        clock = asyncio.get_running_loop().time
        end = clock() + NO_WORKER
        while True:
            members = [*self.members]
            answers = await asyncio.gather(*[member.prepare(new) for member in members])
            if not all(answer.get("away") for answer in answers) or clock() >= end:
                return list(zip(members, answers, strict=True))
            await asyncio.sleep(RETRY)

    async def _reject(self, answer: Answer) -> Answer:
        """Tell the workers, for their metrics, and drop what they have prepared."""
        logger.error("rules were not reloaded, the old ones stay in force:\n%s", answer["error"])
        await self.apply({"do": "reject_rules", "reason": answer["error"]})
        return answer

    # Figures ---------------------------------------------------------------------------------

    async def snapshot(self) -> Snapshot:
        """The metrics of all workers, also of those that have ended."""
        members = [*self.members]
        answers = await asyncio.gather(*[each.apply({"do": "snapshot"}) for each in members])
        for member, answer in zip(members, answers, strict=True):
            if answer["ok"]:
                self._gathered.put(member.name, answer["result"].encode("latin-1"))
        return merge([self._gathered.snapshot(), *[each.snapshot() for each in self.other_sources]])

    def retire(self, name: str) -> None:
        """A worker ended; what it counted stays in the totals."""
        self._gathered.retire(name)

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


def _veto(answers: Sequence[tuple[Member, Answer]]) -> Answer | None:
    """Why the new rules cannot be used, if so: the first reason, and the workers that gave it."""
    refusals = [(m.name, a) for m, a in answers if not a["ok"] and not a.get("away")]
    if refusals:
        error = refusals[0][1]["error"]
        names = [name for name, answer in refusals if answer["error"] == error]
        workers = f"worker{'s' if len(names) > 1 else ''} {', '.join(names)}"
        return _failed(refusals[0][1]["status"], f"{workers} cannot use the new rules: {error}")
    if not any(answer["ok"] for _, answer in answers):
        return _failed(503, "no worker is running that could use the new rules")
    return None


def _failed(status: int, error: str, **more: Any) -> Answer:
    return {"ok": False, "status": status, "error": error, **more}
