"""A light tree of what was written, in which everything knows its place.

It stands between the text and its meaning: one parser reads it, whether the rules came
from YAML or from a Python dict. Texts are kept as they were written, because what a
scalar means is a question of where it stands: ``value: 1`` is the text ``1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.rules.problems import Place

# YAML's own way to say "nothing here".
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


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
    """A place is made only when it is asked for: a large file has a million nodes."""

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
    """``plain`` if it had no quotes: only then can it be a number, a truth value or null."""

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
    """A text for a message: quoted, and cut where it would fill the screen."""
    return repr(text if len(text) <= most else f"{text[: most - 3]}...")
