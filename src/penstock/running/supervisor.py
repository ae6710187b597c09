"""Workers as processes: started, asked over a channel, started again when they die.

The sockets on which they listen are the supervisor's. While a worker is being replaced, what
comes for it waits in its socket's backlog. A new worker is given the rules that are in force,
whatever lies in the files by now, and all that an operator has switched, before it listens.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from penstock.admin.commands import apply_command, commands_of
from penstock.async_gate import AsyncGate
from penstock.clock import WALL
from penstock.errors import RulesError
from penstock.rules.lineage import Lineage
from penstock.rules.model import RuleSet
from penstock.running.channel import Channel, Message
from penstock.running.fleet import Answer, Command, Fleet, read_rules
from penstock.running.settings import Settings, SettingsError
from penstock.running.stores import inherited
from penstock.running.worker import NOTICE, Sockets

logger = logging.getLogger("penstock.server")

START = 30.0  # seconds, with a hundred thousand rules
# A worker that dies at once is started again after a pause that grows.
FIRST_PAUSE, LONGEST_PAUSE, LIVED_WELL = 0.05, 5.0, 10.0
# What an operator has switched, so that a new worker knows it, too.
SWITCHES = {"mode", "clear_mode", "override", "clear_override", "list", "clear_list", "log_level"}
RELOADS = {"reload", "reload_tls"}


class Process:
    """One worker, whichever process it is at the moment."""

    def __init__(
        self, number: int, settings: Settings, store: str, salt: bytes | None, sockets: Sockets
    ) -> None:
        self.name = str(number)
        self.missed: list[Command] = []  # while it was being started
        self._settings = settings
        self._store = store
        self._salt = salt
        self._sockets = sockets
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None

    async def start(self, rules: bytes, switched: list[Command]) -> None:
        """A new process, ready. `SettingsError` if it says that it cannot.

        ``rules`` are pickled, with their lineage; they go through a file without a name, as
        they may be large.
        """
        self.missed.clear()
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as file:
            file.write(rules)
            file.seek(0)
            handed = {
                "http": None if self._sockets.http is None else self._sockets.http.fileno(),
                "grpc": None if self._sockets.grpc is None else self._sockets.grpc.fileno(),
                "rules": file.fileno(),
            }
            given = [fd for fd in (*handed.values(), inherited(self._store)) if fd is not None]
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "penstock.running.worker_main", str(theirs.fileno()),
                pass_fds=[theirs.fileno(), *given], stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        question = {
            "do": "start",
            "settings": dataclasses.asdict(self._settings),
            "store": self._store,
            "name": self.name,
            "salt": None if self._salt is None else self._salt.hex(),
            "descriptors": handed,
            "switched": switched,
        }
        self._channel = Channel(_nothing_to_ask)
        try:
            await self._channel.open(ours)
            answer = await self._channel.ask(question, START)
            if not answer["ok"]:
                raise SettingsError(answer["error"])
        except (ConnectionError, TimeoutError):
            await self.kill()
            raise SettingsError(f"worker {self.name} ended, or hung, while it started") from None
        except BaseException:
            await self.kill()
            raise

    async def apply(self, command: Command, timeout: float = 10.0) -> Answer:
        """Never raises: a worker that does not answer is an answer, too."""
        if self._channel is None:
            return _away(f"worker {self.name} is being started")
        try:
            return await self._channel.ask(command, timeout)
        except TimeoutError:
            return {"ok": False, "status": 504, "error": f"worker {self.name} did not answer"}
        except ConnectionError:
            return _away(f"worker {self.name} is gone")

    async def ended(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def stop(self, seconds: float) -> None:
        """Drain it; kill it if that takes too long."""
        if self._process is None or self._process.returncode is not None:
            return
        closing = asyncio.create_task(self._close_sockets(min(NOTICE, seconds)))
        await self.apply({"do": "drain", "seconds": seconds}, seconds + 2.0)
        await closing
        try:
            await asyncio.wait_for(self._process.wait(), 2.0)
        except TimeoutError:
            logger.error("worker %s did not end in time and is killed", self.name)
        await self.kill()

    async def _close_sockets(self, after: float) -> None:
        """As it does by then: as long as we hold them, who comes would wait for nobody."""
        await asyncio.sleep(after)
        for each in (self._sockets.http, self._sockets.grpc):
            if each is not None:
                each.close()

    async def kill(self) -> None:
        """If it has not ended by itself."""
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


class Supervised(Fleet):
    """A fleet of processes that are kept alive."""

    def __init__(
        self,
        settings: Settings,
        about: dict[str, Any],
        processes: list[Process],
        rules: RuleSet,
    ) -> None:
        super().__init__(settings, about)
        self.processes = processes
        self.members = list(processes)
        self.restarts = 0
        self._lineage = Lineage()
        self._keep_rules(rules)
        # What is switched. It has no rules, and is asked for nothing else.
        self._switched = AsyncGate(RuleSet({}))
        self._switching = asyncio.Lock()
        self._reloading = asyncio.Lock()
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

    async def _start(self, process: Process) -> None:
        await process.start(self._rules, self._to_tell())
        async with self._switching:
            while process.missed:
                await process.apply(process.missed.pop(0))

    def _to_tell(self) -> list[Command]:
        mode = self._switched.switches.state().mode  # also if it is what rules say: see --shadow
        return [{"do": "mode", "mode": mode, "name": None}, *commands_of(self._switched)]

    # Changes -----------------------------------------------------------------------------------

    async def apply(self, command: Command) -> list[Answer]:
        verb = command.get("do")
        if verb in SWITCHES:
            async with self._switching:  # what a new worker has missed comes before
                answers = await self._apply(command)
                if any(answer["ok"] for answer in answers):
                    await apply_command(self._switched, command)
                return answers
        if verb in RELOADS:
            async with self._reloading:
                answers = await self._apply(command)
                if verb == "reload" and all(answer["ok"] for answer in answers):
                    await self._read_rules()
                return answers
        return await super().apply(command)

    async def _apply(self, command: Command) -> list[Answer]:
        """Who is away is told when it is back, so it has as good as taken it."""
        answers = await super().apply(command)
        for at, process in enumerate(self.processes):
            if answers[at].get("away"):
                process.missed.append(command)
                answers[at] = {"ok": True, "result": None}
        return answers

    async def _read_rules(self) -> None:
        """As the workers just did; not in the way of what else is asked."""
        try:
            await asyncio.to_thread(self._read_and_keep)
        except RulesError:  # changed again meanwhile
            logger.info("the rules have changed again: workers that start use the last good ones")

    def _read_and_keep(self) -> None:
        before, _ = pickle.loads(self._rules)  # kept as bytes only: they may be large
        self._keep_rules(read_rules(self._settings), before)

    def _keep_rules(self, rules: RuleSet, before: RuleSet | None = None) -> None:
        if before is not None:
            self._lineage = self._lineage.after(before, rules, WALL.now())
        self._digests = rules.digests
        self._rules = pickle.dumps((rules, self._lineage))

    def loaded(self) -> Mapping[str, str]:
        return self._digests

    # Keeping them alive --------------------------------------------------------------------------

    async def _keep(self, process: Process) -> None:
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


async def _nothing_to_ask(message: Message) -> Message:
    return {"ok": False, "status": 404, "error": "a worker asks nothing"}


def _away(error: str) -> Answer:
    return {"ok": False, "status": 503, "error": error, "away": True}


def _why(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def new_salt() -> bytes:
    """The same for all workers, so that a key has one digest."""
    return os.urandom(16)
