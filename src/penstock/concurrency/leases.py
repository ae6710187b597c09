"""Leases: slots that are held in a shared store, for as long as they are renewed.

A lease is trusted for 98 % of its time, counted from *before* it was requested. The server
counts from a later moment, so it gives the slot to another holder only after this one could
know that it is lost. The remaining 2 % allow for clocks that run at different speeds.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from penstock import keys
from penstock.clock import Clock, MonotonicClock

_BELIEVED = 98  # in a hundred


class LeaseClock(MonotonicClock):
    """Monotonic, and keeps running while the machine sleeps, as the server's clock does."""

    def now(self) -> int:
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return time.monotonic_ns()


@dataclass(slots=True, eq=False)
class Lease:
    """A slot of ``key``, held in the store under ``id`` once it is counted there.

    ``home`` is the event loop whose task holds it; None if a thread does.
    """

    key: str
    id: str
    _clock: Clock
    home: Any = None
    counted: bool = False
    ended: bool = False
    owed_until: int = 0
    _until: int = 0
    _lost: bool = False

    def renewed(self, sent: int, length: int) -> None:
        """The store has granted it for ``length``, from some moment after ``sent``."""
        if not self.lost:
            self.counted = True
            self._until = sent + length * _BELIEVED // 100

    @property
    def lost(self) -> bool:
        """Whether its time has ever run out."""
        if self.counted and self._clock.now() > self._until:
            self._lost = True
        return self._lost

    def lose(self) -> None:
        self._lost = True


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call of the script."""

    keys: tuple[bytes, ...]
    args: tuple[Any, ...]
    # Sent even while the store counts as down: renewals find out first that it is back.
    insists: bool = False


# Yields calls and is sent their answers.
LeaseFlow = Generator[ScriptCall, Any, Any]


class ScriptCalls:
    """Builds the calls of the script, with all their key names and numbers."""

    def __init__(self, prefix: str, classes: int, length: int) -> None:
        self._prefix = prefix
        self._classes = classes
        self._length = length // 1000
        self.start_over()

    def start_over(self) -> None:
        """A unique name for this process that a person can read in Redis."""
        host = keys.part(socket.gethostname())
        self._process = f"{host}:{os.getpid()}:{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        return f"{self._process}:{next(self._numbers)}"

    def ask(self, lease: Lease, stay: int, number: int, capacities: Iterable[int]) -> ScriptCall:
        """Ask for a slot; ``number`` is the class, ``capacities`` what each class may use.

        If none is free, the process stays in the fleet's queue for another ``stay``.
        """
        args = ("ask", lease.id, self._length, self._process, stay // 1000, number + 1, *capacities)
        return ScriptCall(self._names(lease.key), args)

    def renew(self, key: str, ids: Iterable[str], verb: str = "renew") -> ScriptCall:
        return ScriptCall(self._names(key)[:2], (verb, self._length, *ids), insists=True)

    def release(self, key: str, ids: Iterable[str], insists: bool = False) -> ScriptCall:
        return ScriptCall(self._names(key)[:2], ("release", *ids), insists)

    def _names(self, key: str) -> tuple[bytes, ...]:
        return keys.slot_keys(self._prefix, key, self._classes)
