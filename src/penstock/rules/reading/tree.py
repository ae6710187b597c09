"""A light tree of what was written, in which every node knows its place.

It is between the text and its meaning: one parser reads it, whether the rules came from YAML or
from a Python dict. Scalars are kept as text, because their meaning depends on where they are:
``value: 1`` is the text ``1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.rules.problems import Place

# YAML's spellings of null.
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large rules may be. Anything larger is refused in bounded time and memory."""

    depth: int = 50
    nodes: int = 2_000_000  # an alias counts as what it stands for
    size: int = 64_000_000  # bytes of a file, characters of a text


BOUNDS = Bounds()


class CannotContinue(Exception):
    """Reading has to end here. The problem has been reported."""


class Origin(Protocol):
    """Knows how to name a place in what is being read."""

    def place(self, line: int, column: int) -> Place: ...


class FileOrigin:
    """A text with lines and columns."""

    __slots__ = ("file",)

    def __init__(self, file: str) -> None:
        self.file = file

    def place(self, line: int, column: int) -> Place:
        return Place(self.file, line, column)


class SyntaxNode:
    """Its place is created on demand, as a large file has a million nodes."""

    __slots__ = ("column", "line", "source")

    line: int
    column: int
    source: Origin

    @property
    def place(self) -> Place:
        return self.source.place(self.line, self.column)

    @property
    def is_null(self) -> bool:
        return False

    def __str__(self) -> str:
        """What it is, for messages: ``not a list``."""
        raise NotImplementedError


class ScalarNode(SyntaxNode):
    """``plain`` if it has no quotes: only then can it be a number, a boolean or null."""

    __slots__ = ("plain", "text")

    def __init__(self, text: str, plain: bool, line: int, column: int, source: Origin) -> None:
        self.text = text
        self.plain = plain
        self.line = line
        self.column = column
        self.source = source

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS

    def __str__(self) -> str:
        return "nothing" if self.is_null else shown(self.text)


class ListNode(SyntaxNode):
    __slots__ = ("items",)

    def __init__(self, items: list[SyntaxNode], line: int, column: int, source: Origin) -> None:
        self.items = items
        self.line = line
        self.column = column
        self.source = source

    def __str__(self) -> str:
        return "a list"


class MappingNode(SyntaxNode):
    __slots__ = ("pairs",)

    def __init__(
        self, pairs: Sequence[tuple[ScalarNode, SyntaxNode]], line: int, column: int, source: Origin
    ) -> None:
        self.pairs = pairs
        self.line = line
        self.column = column
        self.source = source

    def __str__(self) -> str:
        return "a mapping"


def shown(text: str, most: int = 60) -> str:
    """A text for a message: quoted, and truncated if it is long."""
    return repr(text if len(text) <= most else f"{text[: most - 3]}...")
