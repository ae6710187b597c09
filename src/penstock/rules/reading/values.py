"""Reads mappings and scalars by the table of keywords, and reports what does not fit it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from penstock.rules.problems import Place, Problem, Problems, nearest
from penstock.rules.reading.keywords import (
    FLAG,
    NUMBER,
    SCALARS,
    TEXT,
    WHOLE,
    Keyword,
    Section,
    unknown_key,
)
from penstock.rules.reading.tree import ListNode, MappingNode, ScalarNode, SyntaxNode, shown

_DIGITS = re.compile(r"-?(?:0|[1-9][0-9]*)", re.A)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", re.A)
_MOST_DIGITS = 30
_LONGEST_MESSAGE = 700
FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_FLAGS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _cut(message: str) -> str:
    """Truncate a message: it may quote a long text."""
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."


class Enough(Exception):
    """There are so many errors that no more would be shown."""


class Reading:
    """What all readers of one load share: the problems so far, and caches."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self._reported: set[Problem] = set()
        self._zones: dict[str, bool] = {}
        self.folder = Path()  # of the file that is being read; files of lists are beside it
        self.list_files: dict[Path, tuple[str, ...] | None] = {}
        self.digests: dict[str, str] = {}  # of each file as it was read

    def error(self, place: Place, message: str) -> None:
        """Report an error once, even if an alias repeats what is wrong."""
        problem = Problem(place, _cut(message))
        if problem not in self._reported:
            self._reported.add(problem)
            self.problems.error(place, problem.message)
            if len(self.problems.errors) >= self.problems.MOST:
                raise Enough

    def warn(self, place: Place, message: str) -> None:
        problem = Problem(place, _cut(message))
        if len(self.problems.warnings) < self.problems.MOST and problem not in self._reported:
            self._reported.add(problem)
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

    A scalar that could not be read is in ``nodes`` only; the error has been reported.
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
        """Report which of these are missing; misspelt ones have been reported already."""
        for name in names:
            if name not in self.nodes and name not in self.meant:
                reading.error(self.node.place, f"{name!r} is missing")


def read_fields(
    reading: Reading, node: SyntaxNode, section: Section, what: str, text_belongs: str = ""
) -> Fields | None:
    """The keys of a mapping; None, and an error, if it is not a mapping.

    ``text_belongs`` is the key under which a text was probably meant.
    """
    if not isinstance(node, MappingNode):
        hint = ""
        if text_belongs and isinstance(node, ScalarNode) and not node.is_null:
            hint = f": write {shown(f'{text_belongs}: {node.text}')}"
        reading.error(node.place, f"{what} must be a mapping, not {node}{hint}")
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


def _number(reading: Reading, keyword: Keyword, node: ScalarNode) -> int | float | None:
    text = node.text
    is_whole = keyword.kind == WHOLE
    fits = (_DIGITS if is_whole else _NUMBER).fullmatch(text)
    if not fits or not node.plain:
        hint = " (without quotes)" if fits else ""
        problem: str | None = f"must be {_WANTED[keyword.kind]}, not {node}{hint}"
    elif len(text) > _MOST_DIGITS:
        problem = f"has a number of {len(text)} digits"
    else:
        number = int(text) if is_whole else float(text)
        problem = _out_of_bounds(keyword, number)
        if problem is None:
            return number
    reading.error(node.place, f"{keyword.name!r} {problem}")
    return None


def _out_of_bounds(keyword: Keyword, number: float) -> str | None:
    above, least, most = keyword.above, keyword.least, keyword.most
    if above is not None and most is not None and not above < number <= most:
        return f"must be above {above} and at most {most}, not {number:g}"
    if least is not None and number < least:
        return f"must be at least {least}, not {number}"
    if most is not None and number > most:
        return f"must be at most {most}, not {number}"
    return None


def _flag(reading: Reading, keyword: Keyword, node: ScalarNode) -> bool | None:
    flag = FLAGS.get(node.text)
    if flag is not None and node.plain:
        return flag
    old = _OLD_FLAGS.get(node.text.lower())
    hint = f" (write {old})" if old else " (without quotes)" if flag is not None else ""
    reading.error(node.place, f"{keyword.name!r} must be true or false, not {node}{hint}")
    return None


_READERS = {TEXT: _text, WHOLE: _number, NUMBER: _number, FLAG: _flag}
_WANTED = {TEXT: "a text", WHOLE: "a whole number", NUMBER: "a number", FLAG: "true or false"}


def read_list(
    reading: Reading, node: SyntaxNode, what: str, first_key: str = ""
) -> list[SyntaxNode]:
    """The items of a list; empty, and an error, if it is not a list.

    ``first_key`` is the key with which an item begins.
    """
    if isinstance(node, ListNode):
        return node.items
    hint = f": begin each item with '- {first_key}:'" if first_key else ""
    reading.error(node.place, f"{what} must be a list, not {node}{hint}")
    return []


def to_python(node: SyntaxNode) -> Any:
    """A node as Python objects, by the rules of YAML: for metadata."""
    if isinstance(node, MappingNode):
        return {key.text: to_python(inner) for key, inner in node.pairs}
    if isinstance(node, ListNode):
        return [to_python(inner) for inner in node.items]
    assert isinstance(node, ScalarNode)
    text = node.text
    if node.is_null:
        return None
    if node.plain and text in FLAGS:
        return FLAGS[text]
    if node.plain and len(text) <= _MOST_DIGITS:
        if _DIGITS.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text):
            return float(text)
    return text


def refer(first: Place, place: Place) -> str:
    """``line 7`` if ``place`` is in the same file, else the whole place."""
    return f"line {first.line}" if first.line and first.file == place.file else str(first)
