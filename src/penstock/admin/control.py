"""Control: how commands reach the processes that decide.

With several workers, the process that runs them passes each command to the others, which
execute it with `apply_command`. A single process executes it itself.
"""

from __future__ import annotations

from typing import Protocol

from penstock.admin.commands import Answer, Command, apply_command, failed
from penstock.async_gate import AnyGate


class Control(Protocol):
    """Commands and results are plain JSON: see `commands.py`."""

    async def apply(self, command: Command) -> list[Answer]:
        """Execute in every process; one result from each. A process that does not answer in
        time has the result ``{"ok": False, "status": 504, "error": ...}``."""

    async def ask(self, command: Command) -> Answer:
        """Execute in any one process."""


class LocalControl:
    """Executes everything in this process."""

    def __init__(self, gate: AnyGate) -> None:
        self._gate = gate

    async def apply(self, command: Command) -> list[Answer]:
        if command.get("expect") is not None:
            return [failed(501, "expect needs a history of changes, which only a service has")]
        return [await apply_command(self._gate, command)]

    async def ask(self, command: Command) -> Answer:
        return await apply_command(self._gate, command)
