"""What all parts of one store have in common."""

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
    from penstock.stores.redis.ticket import Question, Ticket


class Script:
    """The text that runs in the server, and the name that it has there."""

    def __init__(self, text: str | None = None) -> None:
        self.text = script() if text is None else text
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def deadline(self, server_ns: int) -> int:
        """The argument that says when a call is too late, in microseconds since 1970."""
        return server_ns // 1000

    def more_arguments(self) -> tuple[Any, ...]:
        """Behind all others: none, but for a script that is told the time by a test."""
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
    # Answer a ticket without the server, by the failure policy.
    degrade: Callable[[Ticket, str], None]
    # The same for one question, without telling anybody but the hooks.
    decide: Callable[[Question, str], Decision]

    def hide(self, text: str) -> str:
        """``text`` without any password of ours, whoever wrote it there."""
        addresses = (*self.target.seeds, *([self.target.master] if self.target.master else []))
        for address in addresses:
            password = address.settings.get("password")
            if password:
                text = text.replace(str(password), "***")
        return text
