"""The rules in force: read from files, compared with new ones, and sent to worker processes."""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.async_gate import AsyncGate
from penstock.clock import WALL
from penstock.rules.deciding.lineage import Lineage
from penstock.rules.model import RuleSet, in_quota_mode
from penstock.running.rule_changes import RuleChanges
from penstock.running.settings import Settings

# Reads rules that do not come from the files of the settings.
Read = Callable[[], RuleSet]


def read_rules(settings: Settings) -> RuleSet:
    """Raises `RulesError`, with all problems of the files."""
    if not settings.rules:
        return RuleSet({})
    from penstock.rules.reading.parse import load_files

    rules = load_files(settings.rules, merge_domains=settings.merge_domains)
    return in_quota_mode(rules) if settings.quota_mode else rules


def read_new(settings: Settings, read: Read | None) -> RuleSet:
    if read is None:
        return read_rules(settings)
    return in_quota_mode(read()) if settings.quota_mode else read()


@dataclass(frozen=True, slots=True)
class NewRules:
    """Rules that were read and checked, but are not in force yet."""

    rules: RuleSet
    changes: RuleChanges
    pickled: bytes = b""  # the rules and their lineage, for workers in other processes


class RulesInForce(Protocol):
    """The rules that the workers use now."""

    def current(self) -> RuleSet:
        """The rules themselves."""

    def loaded(self) -> Mapping[str, str]:
        """A digest of each file that they were read from."""

    def read_new(self, read: Read | None = None) -> NewRules:
        """Read the files again, or other rules. Blocks, so it is called in a thread."""

    def keep(self, new: NewRules) -> None:
        """Every worker has prepared these rules: new workers start with them from now on."""


class GateRules:
    """The rules of a gate in this process."""

    def __init__(self, settings: Settings, gate: AsyncGate) -> None:
        self._settings = settings
        self._gate = gate

    def current(self) -> RuleSet:
        return self._gate.rules

    def loaded(self) -> Mapping[str, str]:
        return self._gate.rules.digests

    def read_new(self, read: Read | None = None) -> NewRules:
        rules = read_new(self._settings, read)
        return NewRules(rules, RuleChanges.between(self._gate.rules, rules))

    def keep(self, new: NewRules) -> None:
        """The gate keeps them."""


class PickledRules:
    """The rules of worker processes, and their lineage. Only the pickle is kept, to save memory."""

    def __init__(self, settings: Settings, rules: RuleSet) -> None:
        self._settings = settings
        self._digests = rules.digests
        self.pickled = pickle.dumps((rules, Lineage()))

    def current(self) -> RuleSet:
        rules: RuleSet = pickle.loads(self.pickled)[0]
        return rules

    def loaded(self) -> Mapping[str, str]:
        return self._digests

    def read_new(self, read: Read | None = None) -> NewRules:
        rules = read_new(self._settings, read)
        before, lineage = pickle.loads(self.pickled)
        pickled = pickle.dumps((rules, lineage.after(before, rules, WALL.now())))
        return NewRules(rules, RuleChanges.between(before, rules), pickled)

    def keep(self, new: NewRules) -> None:
        self.pickled, self._digests = new.pickled, new.rules.digests


# Pickled rules may be too large for the channel. They are written to an unnamed file, whose
# descriptor is sent over a socket of its own (SCM_RIGHTS).


def send_rules(pickled: bytes, to: socket.socket) -> None:
    """`OSError` if the worker is gone."""
    with tempfile.TemporaryFile() as file:
        file.write(pickled)
        file.flush()
        socket.send_fds(to, [b"r"], [file.fileno()])


def receive_rules(from_: socket.socket) -> tuple[RuleSet, Lineage]:
    """Unpickling is safe: only the supervisor has the other end of the socket."""
    _, descriptors, _, _ = socket.recv_fds(from_, 1, 1)
    with os.fdopen(descriptors[0], "rb") as file:
        file.seek(0)
        rules, lineage = pickle.load(file)
    return rules, lineage
