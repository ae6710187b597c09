"""What all parts of one store share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.decision import Decision
from penstock.events import Event
from penstock.stores.redis.address import Target
from penstock.stores.redis.script import script

if TYPE_CHECKING:
    from penstock.stores.redis.pending_call import KeyOperation, PendingCall


class Script:
    """The text of the script, and its name in the server."""

    def __init__(self, text: str | None = None) -> None:
        self.text = script() if text is None else text
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def deadline(self, server_ns: int) -> int:
        """The argument that says when a call is too late, in microseconds since 1970."""
        return server_ns // 1000

    def more_arguments(self) -> tuple[Any, ...]:
        """After all others: none, except for a script that is told the time by a test."""
        return ()


@dataclass
class Settings:
    """Made once, by the store; the parts hold this and not the store."""

    target: Target
    deadline: float  # seconds
    connect_timeout: float
    max_pending: int
    script: Script
    clock: Clock
    emit: Callable[[Event], None]
    # Answer a call without the server, by the failure policy.
    degrade: Callable[[PendingCall, str], None]
    # Decide on one operation of a group in the same way.
    decide: Callable[[KeyOperation, str], Decision]

    def hide(self, text: str) -> str:
        """``text`` without the store's passwords."""
        addresses = (*self.target.seeds, *([self.target.master] if self.target.master else []))
        for address in addresses:
            password = address.settings.get("password")
            if password:
                text = text.replace(str(password), "***")
        return text
