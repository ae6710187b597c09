"""SupervisedWorkers: workers in processes of their own, restarted when they die.

The supervisor holds the sockets on which they listen. While a worker is being replaced, new
connections wait in its socket's backlog. Before a new worker listens, it gets the rules in force,
even if the files have changed since, and every switch that an operator has set.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from penstock.admin.commands import SWITCHES, Answer, Command, apply_command, commands_of, done
from penstock.async_gate import AsyncGate
from penstock.rules.model import RuleSet
from penstock.running.rules_in_force import PickledRules
from penstock.running.settings import Settings, SettingsError
from penstock.running.worker_process import WorkerProcess
from penstock.running.workers import Workers

logger = logging.getLogger("penstock.server")

# Seconds. The pause before a restart doubles each time, unless the worker ran for a while.
FIRST_PAUSE, LONGEST_PAUSE, LIVED_WELL = 0.05, 5.0, 10.0


class SupervisedWorkers(Workers):
    """Starts the worker processes, and keeps them running."""

    def __init__(
        self,
        settings: Settings,
        about: dict[str, Any],
        processes: list[WorkerProcess],
        rules: RuleSet,
    ) -> None:
        self.rules = PickledRules(settings, rules)
        super().__init__(settings, about, processes, self.rules)
        self.processes = processes
        self.restarts = 0
        # Holds the switches in force. It has no rules and decides nothing.
        self._switched = AsyncGate(RuleSet({}))
        self._switching = asyncio.Lock()
        if settings.shadow:
            self._switched.switches.mode("shadow")
        self._keeping: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all workers; `SettingsError` if one cannot start."""
        starting = [self._start(process) for process in self.processes]
        errors = [e for e in await asyncio.gather(*starting, return_exceptions=True) if e]
        if errors:
            await asyncio.gather(*[process.kill() for process in self.processes])
            raise errors[0]
        self._keeping = [asyncio.create_task(self._keep(each)) for each in self.processes]

    async def _start(self, process: WorkerProcess) -> None:
        """With the rules and switches in force, including changes while it starts."""
        await process.start(self.rules.pickled, self._switch_commands())
        async with self._switching:
            while process.missed:
                await process.apply(process.missed.pop(0))
        async with self._reload.lock:
            if process.rules is not self.rules.pickled:
                answer = await process.prepare_pickled(self.rules.pickled)
                if not answer["ok"] or not (await process.swap())["ok"]:
                    await process.kill()  # `_keep` restarts it

    def _switch_commands(self) -> list[Command]:
        # `commands_of` omits the mode "enforce", but with --shadow, a worker starts in shadow mode.
        mode = self._switched.switches.state().lasting_mode
        return [{"do": "mode", "mode": mode, "name": None}, *commands_of(self._switched)]

    # Changes -----------------------------------------------------------------------------------

    async def apply(self, command: Command) -> list[Answer]:
        verb = command.get("do")
        if verb in SWITCHES or verb in ("batch", "log_level"):  # new workers must get them, too
            async with self._switching:  # after the commands that a new worker has missed
                answers = await self._apply_to_all(command)
                if any(answer["ok"] for answer in answers):
                    await apply_command(self._switched, command)
                return answers
        if verb == "reload_tls":
            async with self._reload.lock:
                return await self._apply_to_all(command)
        return await super().apply(command)

    async def _apply_to_all(self, command: Command) -> list[Answer]:
        """A worker that is not running gets the command when it is back."""
        answers = await super().apply(command)
        for at, process in enumerate(self.processes):
            if answers[at].get("away"):
                process.missed.append(command)
                answers[at] = done()
        return answers

    # Keeping them alive --------------------------------------------------------------------------

    async def _keep(self, process: WorkerProcess) -> None:
        """Restart it whenever it dies."""
        pause = FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            code = await process.ended()
            self._gathered.retire(process.name)
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
    """One salt for all workers, so that a key has the same digest in each."""
    return os.urandom(16)
