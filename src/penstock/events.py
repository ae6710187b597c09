"""What Penstock tells about itself, for logs and metrics to listen to.

A hook is any function of one event. It is called where the event happens, in whatever
thread or event loop that is, so it must be quick. What it raises is logged and goes no
further: a broken metric never breaks a decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.limit import Limit

logger = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Event:
    """The root of them all. ``store`` says which one, without its secrets."""

    store: str


@dataclass(frozen=True, slots=True)
class StoreDown(Event):
    """A shared store is not asked any more: its circuit breaker opened."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreUp(Event):
    """It answers again and is asked again, or others do in its place, after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Degraded(Event):
    """A verb could not be asked of the shared store and was answered by ``policy``."""

    limit: Limit
    key: str
    verb: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Damaged(Event):
    """The row of a key in a shared store made no sense (NaN, for one), and begins anew."""

    limit: Limit
    key: str


@dataclass(frozen=True, slots=True)
class RulesLoaded(Event):
    """Other rules are in force: so many domains."""

    domains: int


@dataclass(frozen=True, slots=True)
class RulesRejected(Event):
    """Rules were read and are wrong; the old ones stay."""

    problems: str


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """A middleware refused a request; in shadow, it would have. ``key`` is what it counted by."""

    key: str
    shadow: bool


Hook = Callable[[Event], None]


class Hooks:
    """Those who listen to one source."""

    def __init__(self) -> None:
        self._hooks: tuple[Hook, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: Hook) -> None:
        if not callable(hook):
            raise TypeError(f"a hook is a function of one event, not {hook!r}")
        self._hooks = (*self._hooks, hook)

    def remove(self, hook: Hook) -> None:
        self._hooks = tuple(other for other in self._hooks if other != hook)

    def emit(self, event: Event) -> None:
        for hook in self._hooks:
            try:
                hook(event)
            except Exception:
                logger.exception("a hook failed on %s", type(event).__name__)
