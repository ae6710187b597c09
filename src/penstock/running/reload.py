"""Reload: puts new rules in force in all workers, or in none.

::

    read and check the files, once
    prepare in every worker ──── a worker vetoes: reject in all, the old rules stay
    swap in every worker

A worker that dies or hangs meanwhile is restarted with the rules that are in force by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from penstock.admin.commands import Answer, Command, done, failed
from penstock.errors import RulesError
from penstock.running import collector
from penstock.running.rules_in_force import NewRules, Read, RulesInForce

logger = logging.getLogger("penstock.server")

# Seconds to wait for a worker if none is running, and between two attempts.
NO_WORKER, RETRY = 10.0, 0.1


class WorkerHandle(Protocol):
    """One worker, in this process (`Worker`) or in another one (`WorkerProcess`).

    No method raises: the answer says what went wrong. It has ``"away": True`` if the worker is
    not running: it is starting, or it died or hung and will be restarted.
    """

    name: str

    async def apply(self, command: Command) -> Answer: ...

    async def prepare(self, new: NewRules) -> Answer:
        """Compile new rules, and keep them for `swap`."""

    async def swap(self) -> Answer:
        """Put the prepared rules in force."""


async def apply_to_all(workers: Sequence[WorkerHandle], command: Command) -> list[Answer]:
    return list(await asyncio.gather(*[worker.apply(command) for worker in workers]))


class Reload:
    """Reloads the rules, one reload at a time. While ``lock`` is held, no reload runs."""

    def __init__(self, workers: Sequence[WorkerHandle], rules: RulesInForce) -> None:
        self._workers = workers
        self._rules = rules
        self.lock = asyncio.Lock()
        self.rejected: str | None = None  # why the last rules were not used

    async def run(self, read: Read | None = None) -> Answer:
        """Read the files again, or other rules, and put them in force."""
        async with self.lock:
            try:
                with collector.paused():
                    new = await asyncio.to_thread(self._rules.read_new, read)
            except RulesError as error:
                problems = [str(problem) for problem in error.problems]
                return await self._reject(failed(422, str(error), problems=problems))
            logger.debug("new rules were read and are being prepared")
            answers = await self._prepare(new)
            veto = _veto(answers)
            if veto is not None:
                return await self._reject(veto)
            self._rules.keep(new)
            self.rejected = None
            await asyncio.gather(*[worker.swap() for worker, answer in answers if answer["ok"]])
            fields = {"workers": len(self._workers)}
            logger.info("rules reloaded: %s", new.changes, extra={"fields": fields})
            return done()

    async def _prepare(self, new: NewRules) -> list[tuple[WorkerHandle, Answer]]:
        """In every worker that is running; if none is, wait a while for one."""
        clock = asyncio.get_running_loop().time
        end = clock() + NO_WORKER
        while True:
            answers = await asyncio.gather(*[worker.prepare(new) for worker in self._workers])
            if not all(answer.get("away") for answer in answers) or clock() >= end:
                return list(zip(self._workers, answers, strict=True))
            await asyncio.sleep(RETRY)

    async def _reject(self, answer: Answer) -> Answer:
        """Workers count the rejection in their metrics, and drop the rules that they prepared."""
        self.rejected = str(answer["error"])
        logger.error("rules were not reloaded, the old ones stay in force:\n%s", answer["error"])
        await apply_to_all(self._workers, {"do": "reject_rules", "reason": answer["error"]})
        return answer


def _veto(answers: Sequence[tuple[WorkerHandle, Answer]]) -> Answer | None:
    """Why the new rules cannot be used, if so: the first reason, and the workers that gave it."""
    refusals = [(w.name, a) for w, a in answers if not a["ok"] and not a.get("away")]
    if refusals:
        error = refusals[0][1]["error"]
        names = [name for name, answer in refusals if answer["error"] == error]
        workers = f"worker{'s' if len(names) > 1 else ''} {', '.join(names)}"
        return failed(refusals[0][1]["status"], f"{workers} cannot use the new rules: {error}")
    if not any(answer["ok"] for _, answer in answers):
        return failed(503, "no worker is running that could use the new rules")
    return None
