"""Reads mappings and scalars by the table of words, and tells what does not fit it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from penstock.rules.problems import Place, Problem, Problems
from penstock.rules.tree import ListNode, MappingNode, Node, ScalarNode, shown
from penstock.rules.words import (
    FLAG,
    NUMBER,
    SCALARS,
    TEXT,
    WHOLE,
    Section,
    Word,
    nearest,
    unknown_key,
)

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
        self.nodes: dict[str, Node] = {}
        self.values: dict[str, Any] = {}
        self.meant: set[str | None] = set()  # what misspelt keys should probably have been

    def place(self, name: str) -> Place:
        return self.nodes.get(name, self.node).place

    def require(self, reading: Reading, *names: str) -> None:
        """Tell which of these are missing; a misspelt one has been told already."""
        for name in names:
            if name not in self.nodes and name not in self.meant:
                reading.error(self.node.place, f"{name!r} is missing")


def read_fields(reading: Reading, node: Node, section: Section, what: str) -> Fields | None:
    """The keys of a mapping; None, and an error, if it is no mapping."""
    if not isinstance(node, MappingNode):
        reading.error(node.place, f"{what} must be a mapping, not {node}")
        return None
    fields = Fields(node)
    words = section.words
    for key, inner in node.pairs:
        word = words.get(key.text)
        if word is None:
            message, meant = unknown_key(key.text, section)
            fields.meant.add(meant)
            reading.error(key.place, message)
        elif inner.is_null:
            if word.required:
                reading.error(inner.place, f"{word.name!r} must not be empty")
                fields.nodes[word.name] = inner
        else:
            fields.nodes[word.name] = inner
            if word.kind in SCALARS:
                value = read_scalar(reading, word, inner)
                if value is not None:
                    fields.values[word.name] = value
    if section.required:
        fields.require(reading, *section.required)
    return fields


def read_scalar(reading: Reading, word: Word, node: Node) -> Any:
    """The value of a scalar by its word; None, and an error, if it does not fit."""
    if not isinstance(node, ScalarNode):
        reading.error(node.place, f"{word.name!r} must be {_WANTED[word.kind]}, not {node}")
        return None
    return _READERS[word.kind](reading, word, node)


def _text(reading: Reading, word: Word, node: ScalarNode) -> str | None:
    text = node.text
    if not text and not word.may_be_empty:
        reading.error(node.place, f"{word.name!r} must not be empty")
        return None
    if word.choices:
        if word.any_case:
            text = text.lower()
        if text not in word.choices:
            hint = nearest(text, word.choices) or f": use one of {', '.join(word.choices)}"
            reading.error(node.place, f"unknown {word.name} {shown(node.text)}{hint}")
            return None
    return text


def _written(reading: Reading, word: Word, node: ScalarNode, shape: re.Pattern[str]) -> str | None:
    """The digits of a number; None, and an error, if it is none, quoted or too long."""
    text = node.text
    fits = shape.fullmatch(text)
    if not fits or not node.plain:
        hint = " (without quotes)" if fits else ""
        reading.error(node.place, f"{word.name!r} must be {_WANTED[word.kind]}, not {node}{hint}")
        return None
    if len(text) > _MOST_DIGITS:
        reading.error(node.place, f"{word.name!r} has a number of {len(text)} digits")
        return None
    return text


def _whole(reading: Reading, word: Word, node: ScalarNode) -> int | None:
    text = _written(reading, word, node, _DIGITS)
    if text is None:
        return None
    number = int(text)
    if word.least is not None and number < word.least:
        reading.error(node.place, f"{word.name!r} must be at least {word.least}, not {number}")
        return None
    if word.most is not None and number > word.most:
        reading.error(node.place, f"{word.name!r} must be at most {word.most}, not {number}")
        return None
    return number


def _number(reading: Reading, word: Word, node: ScalarNode) -> float | None:
    text = _written(reading, word, node, _NUMBER)
    if text is None:
        return None
    number = float(text)
    if word.above is not None and word.most is not None and not word.above < number <= word.most:
        reading.error(
            node.place,
            f"{word.name!r} must be above {word.above} and at most {word.most}, not {number:g}",
        )
        return None
    return number


def _flag(reading: Reading, word: Word, node: ScalarNode) -> bool | None:
    flag = _FLAGS.get(node.text)
    if flag is not None and node.plain:
        return flag
    old = _OLD_FLAGS.get(node.text.lower())
    hint = f" (write {old})" if old else " (without quotes)" if flag is not None else ""
    reading.error(node.place, f"{word.name!r} must be true or false, not {node}{hint}")
    return None


_READERS = {TEXT: _text, WHOLE: _whole, NUMBER: _number, FLAG: _flag}
_WANTED = {TEXT: "a text", WHOLE: "a whole number", NUMBER: "a number", FLAG: "true or false"}


def read_list(reading: Reading, node: Node, what: str) -> list[Node]:
    """The items of a list; none of them, and an error, if it is no list."""
    if isinstance(node, ListNode):
        return node.items
    reading.error(node.place, f"{what} must be a list, not {node}")
    return []


def to_python(node: Node) -> Any:
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
