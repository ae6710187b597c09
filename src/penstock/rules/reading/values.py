"""Reads mappings and scalars by the table of keywords, and tells what does not fit it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from penstock.rules.problems import Place, Problem, Problems
from penstock.rules.reading.keywords import (
    FLAG,
    NUMBER,
    SCALARS,
    TEXT,
    WHOLE,
    Keyword,
    Section,
    nearest,
    unknown_key,
)
from penstock.rules.reading.tree import ListNode, MappingNode, ScalarNode, SyntaxNode, shown

_DIGITS = re.compile(r"-?(?:0|[1-9][0-9]*)", re.A)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", re.A)
_MOST_DIGITS = 30
_LONGEST_MESSAGE = 700
_FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_FLAGS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _cut(message: str) -> str:
    """Most messages quote what is wrong, and some of that comes from elsewhere, uncut."""
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."


class Enough(Exception):
    """So many errors that no more would be shown: reading on is a waste."""


class Reading:
    """What all readers of one load share: where problems go, and what is known already."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self._told: set[Problem] = set()
        self._zones: dict[str, bool] = {}
        self.folder = Path()  # of the file that is being read; files of lists are beside it
        self.list_files: dict[Path, tuple[str, ...] | None] = {}
        self.digests: dict[str, str] = {}  # of each file as it was read

    def error(self, place: Place, message: str) -> None:
        """Tell it once: what an alias stands for is read as often as the alias is used."""
        problem = Problem(place, _cut(message))
        if problem not in self._told:
            self._told.add(problem)
            self.problems.error(place, problem.message)
            if len(self.problems.errors) >= self.problems.MOST:
                raise Enough

    def warn(self, place: Place, message: str) -> None:
        problem = Problem(place, _cut(message))
        if len(self.problems.warnings) < self.problems.MOST and problem not in self._told:
            self._told.add(problem)
            self.problems.warn(place, problem.message)

    def is_zone(self, name: str) -> bool:
        if name not in self._zones:
            try:
                ZoneInfo(name)
                self._zones[name] = True
            except Exception:  # zoneinfo raises half a dozen kinds for a bad name
                self._zones[name] = False
        return self._zones[name]


class Fields:
    """A mapping, read: scalars in ``values``, the nodes of all known keys in ``nodes``.

    A scalar that could not be read is in ``nodes`` only; it has been told.
    """

    __slots__ = ("meant", "node", "nodes", "values")

    def __init__(self, node: MappingNode) -> None:
        self.node = node
        self.nodes: dict[str, SyntaxNode] = {}
        self.values: dict[str, Any] = {}
        self.meant: set[str | None] = set()  # what misspelt keys should probably have been

    def place(self, name: str) -> Place:
        return self.nodes.get(name, self.node).place

    def require(self, reading: Reading, *names: str) -> None:
        """Tell which of these are missing; a misspelt one has been told already."""
        for name in names:
            if name not in self.nodes and name not in self.meant:
                reading.error(self.node.place, f"{name!r} is missing")


def read_fields(reading: Reading, node: SyntaxNode, section: Section, what: str) -> Fields | None:
    """The keys of a mapping; None, and an error, if it is no mapping."""
    if not isinstance(node, MappingNode):
        reading.error(node.place, f"{what} must be a mapping, not {node}")
        return None
    fields = Fields(node)
    keywords = section.keywords
    for key, inner in node.pairs:
        keyword = keywords.get(key.text)
        if keyword is None:
            message, meant = unknown_key(key.text, section)
            fields.meant.add(meant)
            reading.error(key.place, message)
        elif inner.is_null:
            if keyword.required:
                reading.error(inner.place, f"{keyword.name!r} must not be empty")
                fields.nodes[keyword.name] = inner
        else:
            fields.nodes[keyword.name] = inner
            if keyword.kind in SCALARS:
                value = read_scalar(reading, keyword, inner)
                if value is not None:
                    fields.values[keyword.name] = value
    if section.required:
        fields.require(reading, *section.required)
    return fields


def read_scalar(reading: Reading, keyword: Keyword, node: SyntaxNode) -> Any:
    """The value of a scalar by its keyword; None, and an error, if it does not fit."""
    if not isinstance(node, ScalarNode):
        reading.error(node.place, f"{keyword.name!r} must be {_WANTED[keyword.kind]}, not {node}")
        return None
    return _READERS[keyword.kind](reading, keyword, node)


def _text(reading: Reading, keyword: Keyword, node: ScalarNode) -> str | None:
    text = node.text
    if not text and not keyword.may_be_empty:
        reading.error(node.place, f"{keyword.name!r} must not be empty")
        return None
    if keyword.choices:
        if keyword.any_case:
            text = text.lower()
        if text not in keyword.choices:
            hint = nearest(text, keyword.choices) or f": use one of {', '.join(keyword.choices)}"
            reading.error(node.place, f"unknown {keyword.name} {shown(node.text)}{hint}")
            return None
    return text


def _written(
    reading: Reading, keyword: Keyword, node: ScalarNode, shape: re.Pattern[str]
) -> str | None:
    """The digits of a number; None, and an error, if it is none, quoted or too long."""
    text = node.text
    fits = shape.fullmatch(text)
    if not fits or not node.plain:
        hint = " (without quotes)" if fits else ""
        reading.error(
            node.place, f"{keyword.name!r} must be {_WANTED[keyword.kind]}, not {node}{hint}"
        )
        return None
    if len(text) > _MOST_DIGITS:
        reading.error(node.place, f"{keyword.name!r} has a number of {len(text)} digits")
        return None
    return text


def _whole(reading: Reading, keyword: Keyword, node: ScalarNode) -> int | None:
    text = _written(reading, keyword, node, _DIGITS)
    if text is None:
        return None
    number = int(text)
    if keyword.least is not None and number < keyword.least:
        reading.error(
            node.place, f"{keyword.name!r} must be at least {keyword.least}, not {number}"
        )
        return None
    if keyword.most is not None and number > keyword.most:
        reading.error(node.place, f"{keyword.name!r} must be at most {keyword.most}, not {number}")
        return None
    return number


def _number(reading: Reading, keyword: Keyword, node: ScalarNode) -> float | None:
    text = _written(reading, keyword, node, _NUMBER)
    if text is None:
        return None
    number = float(text)
    if (
        keyword.above is not None
        and keyword.most is not None
        and not keyword.above < number <= keyword.most
    ):
        reading.error(
            node.place,
            f"{keyword.name!r} must be above {keyword.above} and at most {keyword.most},"
            f" not {number:g}",
        )
        return None
    return number


def _flag(reading: Reading, keyword: Keyword, node: ScalarNode) -> bool | None:
    flag = _FLAGS.get(node.text)
    if flag is not None and node.plain:
        return flag
    old = _OLD_FLAGS.get(node.text.lower())
    hint = f" (write {old})" if old else " (without quotes)" if flag is not None else ""
    reading.error(node.place, f"{keyword.name!r} must be true or false, not {node}{hint}")
    return None


_READERS = {TEXT: _text, WHOLE: _whole, NUMBER: _number, FLAG: _flag}
_WANTED = {TEXT: "a text", WHOLE: "a whole number", NUMBER: "a number", FLAG: "true or false"}


def read_list(reading: Reading, node: SyntaxNode, what: str) -> list[SyntaxNode]:
    """The items of a list; none of them, and an error, if it is no list."""
    if isinstance(node, ListNode):
        return node.items
    reading.error(node.place, f"{what} must be a list, not {node}")
    return []


def to_python(node: SyntaxNode) -> Any:
    """A node as what YAML would make of it: for metadata, which nobody here reads."""
    if isinstance(node, MappingNode):
        return {key.text: to_python(inner) for key, inner in node.pairs}
    if isinstance(node, ListNode):
        return [to_python(inner) for inner in node.items]
    assert isinstance(node, ScalarNode)
    text = node.text
    if not node.plain:
        return text
    if node.is_null:
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    if len(text) <= _MOST_DIGITS:
        if _DIGITS.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text):
            return float(text)
    return text


def refer(first: Place, place: Place) -> str:
    """``line 7``, as seen from a place in the same file; else the whole place."""
    return f"line {first.line}" if first.line and first.file == place.file else str(first)
