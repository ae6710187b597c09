"""Problems of rules: collected, each with its place in a file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from penstock.errors import RulesError


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something was written; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem, and usually how to fix it."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class Problems:
    """Collects errors and warnings while rules are read."""

    # Enough to fix a file; a completely wrong file need not flood the screen.
    MOST = 100

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def error(self, place: Place, message: str) -> None:
        if len(self.errors) < self.MOST:
            self.errors.append(Problem(place, message))

    def warn(self, place: Place, message: str) -> None:
        if len(self.warnings) < self.MOST:
            self.warnings.append(Problem(place, message))

    def raise_errors(self) -> None:
        if self.errors:
            raise RulesError(sorted(self.errors))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'descriptors'?)``, or nothing if nothing is near."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def nearest(name: str, known: Collection[str]) -> str:
    """As `did_you_mean`, but only where that is quick: for a short name, among few."""
    return did_you_mean(name, known) if len(name) <= 40 and len(known) <= 1000 else ""
