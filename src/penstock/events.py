"""Events that Penstock emits, for logs and metrics.

A hook is any function of one event. It is called where the event happens, in any thread or
event loop, so it must be fast. Its exceptions are logged and suppressed: a broken metric never
breaks a decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.limits import Limit

logger = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Event:
    """The base class. ``store`` names the store or other source, without secrets."""

    store: str


@dataclass(frozen=True, slots=True)
class StoreDown(Event):
    """A shared store is no longer used: its circuit breaker opened."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreUp(Event):
    """The store, or its replacement, is used again, after ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Degraded(Event):
    """The shared store was unavailable, and ``policy`` answered the call."""

    limit: Limit
    key: str
    verb: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Damaged(Event):
    """The state of a key in a shared store was invalid (NaN, for example) and was reset."""

    limit: Limit
    key: str


@dataclass(frozen=True, slots=True)
class RulesLoaded(Event):
    """New rules are in force, with this many domains."""

    domains: int


@dataclass(frozen=True, slots=True)
class RulesRejected(Event):
    """New rules were invalid; the old ones stay in force."""

    problems: str


@dataclass(frozen=True, slots=True)
class SlotTaken(Event):
    """A request holds slots of a rule's concurrency, ``until`` it is released or that time."""

    rule: str
    units: int
    until: int


@dataclass(frozen=True, slots=True)
class SlotReleased(Event):
    """The slots of a request are free again. ``until`` is when their lease would have ended."""

    rule: str
    units: int
    until: int


@dataclass(frozen=True, slots=True)
class SlotRefused(Event):
    """A request got no slot of a rule's concurrency; in shadow mode it ran all the same."""

    rule: str


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """A middleware refused a request, or would have in shadow mode. ``key`` is its key."""

    key: str
    shadow: bool


@dataclass(frozen=True, slots=True)
class QuotaNearEmpty(Event):
    """An account's balance in a ledger fell to its threshold: ``remaining`` of ``amount`` units.

    ``runs_out`` is when nothing will be left at the pace of the running period, in nanoseconds
    since 1970, or None if that is not before its end.
    """

    account: str
    meter: str
    remaining: int
    amount: int
    runs_out: int | None


Hook = Callable[[Event], None]


class Hooks:
    """The hooks of one source of events."""

    def __init__(self) -> None:
        self._hooks: tuple[Hook, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: Hook) -> None:
        if not callable(hook):
            raise TypeError(f"a hook must be a function of one event, not {hook!r}")
        self._hooks = (*self._hooks, hook)

    def remove(self, hook: Hook) -> None:
        self._hooks = tuple(other for other in self._hooks if other != hook)

    def emit(self, event: Event) -> None:
        for hook in self._hooks:
            try:
                hook(event)
            except Exception:
                logger.exception("a hook failed on %s", type(event).__name__)
