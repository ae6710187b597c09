"""SupervisedFleet: workers in processes of their own, started again when they die.

The supervisor holds the sockets on which they listen. While a worker is being replaced, new
connections wait in its socket's backlog. A new worker is given the rules that are in force,
whatever the files hold by now, and everything that an operator has switched, before it listens.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from collections.abc import Mapping
from typing import Any

from penstock.admin.commands import apply_command, commands_of
from penstock.async_gate import AsyncGate
from penstock.clock import WALL
from penstock.rules.deciding.lineage import Lineage
from penstock.rules.model import RuleSet
from penstock.running.fleet import Answer, Command, Fleet, NewRules, read_rules
from penstock.running.rule_changes import RuleChanges
from penstock.running.settings import Settings, SettingsError
from penstock.running.worker_process import WorkerProcess

logger = logging.getLogger("penstock.server")

# A worker that dies at once is started again after a pause that grows.
FIRST_PAUSE, LONGEST_PAUSE, LIVED_WELL = 0.05, 5.0, 10.0
# Commands that a new worker must know of, too.
SWITCHES = {"mode", "clear_mode", "override", "clear_override", "list", "clear_list", "log_level"}


class SupervisedFleet(Fleet):
    """A fleet of processes that are kept alive."""

    def __init__(
        self,
        settings: Settings,
        about: dict[str, Any],
        processes: list[WorkerProcess],
        rules: RuleSet,
    ) -> None:
        super().__init__(settings, about)
        self.processes = processes
        self.members = processes
        self.restarts = 0
        # The rules in force, kept as bytes only: they may be large.
        self._pickled = pickle.dumps((rules, Lineage()))
        self._digests = rules.digests
        # Holds the switches in force. It has no rules and decides nothing.
        self._switched = AsyncGate(RuleSet({}))
        self._switching = asyncio.Lock()
        if settings.shadow:
            self._switched.switches.mode("shadow")
        self._keeping: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """All at once; `SettingsError` if one cannot."""
        starting = [self._start(process) for process in self.processes]
        failed = [e for e in await asyncio.gather(*starting, return_exceptions=True) if e]
        if failed:
            await asyncio.gather(*[process.kill() for process in self.processes])
            raise failed[0]
        self._keeping = [asyncio.create_task(self._keep(each)) for each in self.processes]

    async def _start(self, process: WorkerProcess) -> None:
        """With the rules and switches in force, also with those that change meanwhile."""
        await process.start(self._pickled, self._switch_commands())
        async with self._switching:
            while process.missed:
                await process.apply(process.missed.pop(0))
        async with self._reloading:
            if process.rules is not self._pickled:
                answer = await process.prepare_pickled(self._pickled)
                if not answer["ok"] or not (await process.swap())["ok"]:
                    await process.kill()  # and start it again

    def _switch_commands(self) -> list[Command]:
        # The mode in any case: with --shadow, a worker starts with another one.
        mode = self._switched.switches.state().mode
        return [{"do": "mode", "mode": mode, "name": None}, *commands_of(self._switched)]

    # Changes -----------------------------------------------------------------------------------

    async def apply(self, command: Command) -> list[Answer]:
        verb = command.get("do")
        if verb in SWITCHES:
            async with self._switching:  # after those that a new worker has missed
                answers = await self._apply_to_all(command)
                if any(answer["ok"] for answer in answers):
                    await apply_command(self._switched, command)
                return answers
        if verb == "reload_tls":
            async with self._reloading:
                return await self._apply_to_all(command)
        return await super().apply(command)

    async def _apply_to_all(self, command: Command) -> list[Answer]:
        """A worker that is away counts as done: it gets the command when it is back."""
        answers = await super().apply(command)
        for at, process in enumerate(self.processes):
            if answers[at].get("away"):
                process.missed.append(command)
                answers[at] = {"ok": True, "result": None}
        return answers

    # Rules -------------------------------------------------------------------------------------

    def loaded(self) -> Mapping[str, str]:
        return self._digests

    def _read_new_rules(self) -> NewRules:
        rules = read_rules(self._settings)
        before, lineage = pickle.loads(self._pickled)
        pickled = pickle.dumps((rules, lineage.after(before, rules, WALL.now())))
        return NewRules(rules, RuleChanges.between(before, rules), pickled)

    def _keep_rules(self, new: NewRules) -> None:
        self._pickled = new.pickled
        self._digests = new.rules.digests

    # Keeping them alive --------------------------------------------------------------------------

    async def _keep(self, process: WorkerProcess) -> None:
        """Start it again whenever it dies."""
        pause = FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            code = await process.ended()
            self.retire(process.name)
            await process.kill()
            logger.error("worker %s ended (%s) and is started again", process.name, _why(code))
            lived = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE if lived >= LIVED_WELL else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)
            self.restarts += 1
            try:
                await self._start(process)
            except (SettingsError, OSError) as error:
                logger.error("worker %s could not be started: %s", process.name, error)

    async def stop(self, seconds: float) -> None:
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        await asyncio.gather(*[process.stop(seconds) for process in self.processes])


def _why(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def new_salt() -> bytes:
    """The same for all workers, so that a key has one digest."""
    return os.urandom(16)
