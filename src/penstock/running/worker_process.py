"""WorkerProcess: the supervisor's handle of one worker in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import sys

from penstock.admin.commands import Answer, Command, failed
from penstock.running.channel import Channel, Message
from penstock.running.listeners import Sockets
from penstock.running.rules_in_force import NewRules, send_rules
from penstock.running.settings import Settings, SettingsError
from penstock.running.stores import inherited_fd
from penstock.running.worker import NOTICE

logger = logging.getLogger("penstock.server")

# Seconds until a worker counts as hung, and is killed. A hundred thousand rules take half a minute
# on a busy machine.
START = PREPARE = 120.0
SWAP = 10.0


class WorkerProcess:
    """One worker. When its process dies, `start` replaces it by a new one."""

    def __init__(
        self,
        number: int,
        settings: Settings,
        store: str,
        salt: bytes | None,
        sockets: Sockets,
        lease_secret: bytes,
        quota_file: str = "",
    ) -> None:
        self.name = str(number)
        self.rules = b""  # pickled: those in force in it; empty until it is ready
        self.missed: list[Command] = []  # commands that came while it was starting
        self._settings = settings
        self._store = store
        self._salt = salt
        self._lease_secret = lease_secret
        self._quota_file = quota_file
        self._sockets = sockets
        self._prepared: bytes | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._rules_to: socket.socket | None = None

    async def start(self, rules: bytes, switches: list[Command]) -> None:
        """Start a process, and wait until it is ready. `SettingsError` if it cannot start.

        ``rules`` are pickled, with their lineage. ``switches`` are commands that bring it to the
        state of the other workers.
        """
        self.missed.clear()
        self._prepared = None
        ours, theirs = socket.socketpair()
        self._rules_to, their_rules = socket.socketpair()
        self._channel = Channel(_unexpected)
        try:
            with theirs, their_rules:
                await self._channel.open(ours)
                await self._start_process(theirs, their_rules)
            send_rules(rules, self._rules_to)
            answer = await self._channel.ask(self._start_message(switches), START)
            if not answer["ok"]:
                raise SettingsError(answer["error"])
        except (ConnectionError, TimeoutError):
            await self.kill()
            raise SettingsError(f"worker {self.name} ended, or hung, while it started") from None
        except BaseException:
            await self.kill()
            raise
        self.rules = rules

    async def _start_process(self, *ends: socket.socket) -> None:
        inherited = (*ends, self._sockets.http, self._sockets.grpc)
        descriptors = [each.fileno() for each in inherited if each is not None]
        store = inherited_fd(self._store)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock.running.worker_main",
            *[str(end.fileno()) for end in ends],
            pass_fds=descriptors if store is None else [*descriptors, store],
            stdin=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    def _start_message(self, switches: list[Command]) -> Message:
        http, grpc = self._sockets.http, self._sockets.grpc
        return {
            "do": "start",
            "settings": dataclasses.asdict(self._settings),
            "store": self._store,
            "name": self.name,
            "salt": None if self._salt is None else self._salt.hex(),
            "lease_secret": self._lease_secret.hex(),
            "quota_file": self._quota_file,
            "descriptors": {
                "http": None if http is None else http.fileno(),
                "grpc": None if grpc is None else grpc.fileno(),
            },
            "switches": switches,
        }

    async def apply(self, command: Command, timeout: float = 10.0) -> Answer:
        """Never raises: if the worker does not answer, the answer says so."""
        if self._channel is None or not self.rules:
            return away(f"worker {self.name} is being started")
        try:
            return await self._channel.ask(command, timeout)
        except TimeoutError:
            return failed(504, f"worker {self.name} did not answer")
        except ConnectionError:
            return away(f"worker {self.name} is gone")

    async def prepare(self, new: NewRules) -> Answer:
        """A worker that does not answer in time is killed, so that it is restarted."""
        return await self.prepare_pickled(new.pickled)

    async def prepare_pickled(self, rules: bytes) -> Answer:
        process = self._process
        if self._rules_to is None or not self.rules:
            return away(f"worker {self.name} is being started")
        try:
            send_rules(rules, self._rules_to)
        except ConnectionError:
            return away(f"worker {self.name} is gone")
        except OSError as error:
            return failed(500, f"the rules could not be sent: {error}")
        answer = await self.apply({"do": "prepare_rules"}, PREPARE)
        self._prepared = rules if answer["ok"] and self._process is process else None
        if answer.get("status") == 504:
            await self._kill_hung(process, "prepare")
            return away(answer["error"])
        return answer

    async def swap(self) -> Answer:
        """If it fails, the worker is killed: it would decide by other rules than the rest."""
        process, prepared, self._prepared = self._process, self._prepared, None
        if prepared is None:  # it was started again since it prepared them
            return away(f"worker {self.name} has not prepared the new rules")
        answer = await self.apply({"do": "swap_rules"}, SWAP)
        if answer["ok"]:
            self.rules = prepared
        elif not answer.get("away"):
            await self._kill_hung(process, "swap to")
        return answer

    async def _kill_hung(self, process: asyncio.subprocess.Process | None, verb: str) -> None:
        if self._process is process:  # and not its successor
            logger.error("worker %s did not %s the new rules and is killed", self.name, verb)
            await self.kill()

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
        """At the same time as the worker: while a copy is open, clients can still connect."""
        await asyncio.sleep(after)
        for each in (self._sockets.http, self._sockets.grpc):
            if each is not None:
                each.close()

    async def kill(self) -> None:
        """Kill it if it still runs, and close the connections to it."""
        self.rules = b""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        rules_to, self._rules_to = self._rules_to, None
        if rules_to is not None:
            rules_to.close()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


async def _unexpected(message: Message) -> Message:
    return failed(404, "a worker sends no commands")


def away(error: str) -> Answer:
    """The answer for a worker that is not running now."""
    return failed(503, error, away=True)
