"""Workers that a supervisor takes for processes: they do as a test says, at the moment it says."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.admin.commands import Answer, Command
from penstock.rules.model import RuleSet
from penstock.running.channel import Channel
from penstock.running.listeners import Sockets
from penstock.running.rules_in_force import receive_rules
from penstock.running.settings import Settings
from penstock.running.worker_process import WorkerProcess

Behaviour = Callable[[], Awaitable[Answer] | Answer]


class FakeChannel(Channel):
    """Passes each request to the fake worker."""

    def __init__(self, answer: Callable[[Command], Awaitable[Answer]]) -> None:
        super().__init__(answer)
        self._answer_to = answer

    async def ask(self, request: Command, timeout: float = 10.0) -> Answer:
        return await self._answer_to(request)


class FakeProcess(WorkerProcess):
    """Takes its time to start, and notes what it is told.

    ``behaviours`` by verb replace the answer: one may veto, raise ConnectionError as a process
    that died, or TimeoutError as one that hangs.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number, Settings(), "memory", None, Sockets(), b"")
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()
        self.commands: list[Command] = []
        self.behaviours: dict[str, Behaviour] = {}
        self.started_with = b""
        self.deciding_by: RuleSet | None = None
        self.received: RuleSet | None = None
        self.kills = 0
        self._their_rules: socket.socket | None = None

    async def start(self, rules: bytes, switches: list[Command]) -> None:
        self.missed.clear()
        self._prepared = None
        self.commands = list(switches)
        self.started_with = rules
        self.begun.set()
        await self.go_on.wait()
        self.be_ready(rules)

    def be_ready(self, rules: bytes) -> None:
        self.close()
        self._rules_to, self._their_rules = socket.socketpair()
        self._channel = FakeChannel(self._answer)
        self.deciding_by, _ = pickle.loads(rules)
        self.rules = rules

    async def _answer(self, command: Command) -> Answer:
        verb = command["do"]
        if verb in self.behaviours:
            answer: Any = self.behaviours[verb]()
            return await answer if asyncio.iscoroutine(answer) else answer
        if verb == "prepare_rules":
            self.receive()
        elif verb == "swap_rules":
            self.deciding_by = self.received
        self.commands.append(command)
        return {"ok": True, "result": None}

    def receive(self) -> None:
        assert self._their_rules is not None
        self.received, _ = receive_rules(self._their_rules)

    async def kill(self) -> None:
        self.kills += 1
        await super().kill()

    def verbs(self) -> list[str]:
        return [command["do"] for command in self.commands]

    def close(self) -> None:
        for end in (self._rules_to, self._their_rules):
            if end is not None:
                end.close()
