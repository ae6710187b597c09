"""Workers as processes: started, asked over a channel, started again when they die.

The sockets on which they listen are the supervisor's. While a worker is being replaced, what
comes for it waits in its socket's backlog.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
import sys
from typing import Any

from penstock.server.channel import Channel, Message
from penstock.server.fleet import Answer, Command, Fleet
from penstock.server.settings import Settings, SettingsError
from penstock.server.worker import Sockets

logger = logging.getLogger("penstock.server")

START = 30.0  # seconds, with a hundred thousand rules
# A worker that dies at once is started again after a pause that grows.
FIRST_PAUSE, LONGEST_PAUSE, LIVED_WELL = 0.05, 5.0, 10.0
# What an operator has switched, so that a new worker knows it, too.
SWITCHES = {"mode", "clear_mode", "override", "clear_override", "list", "clear_list", "log_level"}


class Process:
    """One worker, whichever process it is at the moment."""

    def __init__(
        self, number: int, settings: Settings, store: str, salt: bytes | None, sockets: Sockets
    ) -> None:
        self.name = str(number)
        self._settings = settings
        self._store = store
        self._salt = salt
        self._sockets = sockets
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """A new process, ready. `SettingsError` if it says that it cannot."""
        ours, theirs = socket.socketpair()
        handed = {
            "http": None if self._sockets.http is None else self._sockets.http.fileno(),
            "grpc": None if self._sockets.grpc is None else self._sockets.grpc.fileno(),
        }
        descriptors = [theirs.fileno(), *[fd for fd in handed.values() if fd is not None]]
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "penstock.server.worker_main", str(theirs.fileno()),
                pass_fds=descriptors, stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            theirs.close()
        self._channel = Channel(_nothing_to_ask)
        await self._channel.open(ours)
        answer = await self._channel.ask(
            {
                "do": "start",
                "settings": dataclasses.asdict(self._settings),
                "store": self._store,
                "name": self.name,
                "salt": None if self._salt is None else self._salt.hex(),
                "sockets": handed,
            },
            START,
        )
        if not answer["ok"]:
            raise SettingsError(answer["error"])

    async def apply(self, command: Command, timeout: float = 10.0) -> Answer:
        """Never raises: a worker that does not answer is an answer, too."""
        if self._channel is None:
            return {"ok": False, "status": 503, "error": f"worker {self.name} is being started"}
        try:
            return await self._channel.ask(command, timeout)
        except TimeoutError:
            return {"ok": False, "status": 504, "error": f"worker {self.name} did not answer"}
        except ConnectionError:
            return {"ok": False, "status": 503, "error": f"worker {self.name} is gone"}

    async def ended(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def stop(self, seconds: float) -> None:
        """Drain it; kill it if that takes too long."""
        if self._process is None or self._process.returncode is not None:
            return
        await self.apply({"do": "drain", "seconds": seconds}, seconds + 2.0)
        try:
            await asyncio.wait_for(self._process.wait(), 2.0)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._let_go()

    async def _let_go(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def forget(self) -> None:
        """The process has ended by itself."""
        await self._let_go()


class Supervised(Fleet):
    """A fleet of processes that are kept alive."""

    def __init__(self, settings: Settings, about: dict[str, Any], processes: list[Process]) -> None:
        super().__init__(settings, about)
        self.processes = processes
        self.members = list(processes)
        self._switched: list[tuple[float, Command]] = []
        self._keeping: list[asyncio.Task[None]] = []
        self._stopping = False
        self.restarts = 0

    async def start(self) -> None:
        """All at once; `SettingsError` as soon as one cannot."""
        try:
            await asyncio.gather(*[process.start() for process in self.processes])
        except BaseException:
            await self.stop(0.0)
            raise
        self._keeping = [asyncio.create_task(self._keep(each)) for each in self.processes]

    async def apply(self, command: Command) -> list[Answer]:
        answers = await super().apply(command)
        if command.get("do") in SWITCHES and all(answer["ok"] for answer in answers):
            self._switched.append((asyncio.get_running_loop().time(), dict(command)))
        return answers

    async def _keep(self, process: Process) -> None:
        """Start it again whenever it dies."""
        pause = FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            code = await process.ended()
            if self._stopping:
                return
            self.retire(process.name)
            await process.forget()
            logger.error("worker %s ended (%s) and is started again", process.name, _why(code))
            lived = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE if lived >= LIVED_WELL else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)
            self.restarts += 1
            try:
                await process.start()
                await self._tell_again(process)
            except (SettingsError, ConnectionError, TimeoutError) as error:
                logger.error("worker %s could not be started: %s", process.name, error)

    async def _tell_again(self, process: Process) -> None:
        """What was switched since the start, as far as it has not run out."""
        now = asyncio.get_running_loop().time()
        for at, command in self._switched:
            lasts = command.get("lasts")
            if isinstance(lasts, (int, float)):
                if at + lasts <= now:
                    continue
                command = {**command, "lasts": at + lasts - now}
            await process.apply(command)

    async def stop(self, seconds: float) -> None:
        self._stopping = True
        await asyncio.gather(*[process.stop(seconds) for process in self.processes])
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)


async def _nothing_to_ask(message: Message) -> Message:
    return {"ok": False, "status": 404, "error": "a worker asks nothing"}


def _why(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def new_salt() -> bytes:
    """The same for all workers, so that a key has one digest."""
    return os.urandom(16)
