"""Control: how commands reach the processes that decide.

With several workers, whoever runs them brings it from one process to the others; each
worker does what it is told by `apply_command`. In a single process there is nothing to bring.
"""

from __future__ import annotations

from typing import Protocol

from penstock.admin.commands import Answer, Command, apply_command
from penstock.async_gate import AnyGate


class Control(Protocol):
    """Commands and answers are plain JSON: see `commands.py`."""

    async def apply(self, command: Command) -> list[Answer]:
        """In every process; an answer from each. One that does not answer in time is an
        answer, too: ``{"ok": False, "status": 504, "error": ...}``."""

    async def ask(self, command: Command) -> Answer:
        """In any one process."""


class LocalControl:
    """All in this process."""

    def __init__(self, gate: AnyGate) -> None:
        self._gate = gate

    async def apply(self, command: Command) -> list[Answer]:
        return [await apply_command(self._gate, command)]

    async def ask(self, command: Command) -> Answer:
        return await apply_command(self._gate, command)
