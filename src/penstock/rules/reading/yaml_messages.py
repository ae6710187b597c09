"""Translates messages of the YAML parser for authors of rules.

libyaml and PyYAML's own parser describe the same mistake differently. Both are translated to one
wording, so that a message does not depend on how PyYAML was built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class _Case:
    """If ``pattern`` is in "context: problem", the message is ``text``.

    ``{line}`` is where the construct began that the parser was in. With ``at_start``, the message
    points there, too, because that is what has to be fixed.
    """

    pattern: re.Pattern[str]
    text: str
    at_start: bool = False


_CASES = [
    _Case(re.compile(pattern), text, at_start)
    for pattern, text, at_start in [
        ("tab character", "a tab cannot indent: use spaces", False),
        ("an alias: ", "a text that begins with '*' needs quotes", True),
        ("an anchor: ", "a text that begins with '&' needs quotes", True),
        ("a tag: |undefined tag handle", "a text that begins with '!' needs quotes", True),
        ("quoted scalar: found unexpected", "these quotes are not closed", True),
        ("unknown escape", r"an unknown escape: in double quotes, a backslash is '\\'", True),
        ("quoted scalar: ", r"a wrong escape: in double quotes, a backslash is '\\'", True),
        ("a simple key: ", "expected ': ' behind this key", True),
        ("a block scalar: ", "expected a new line behind '|' or '>'", False),
        (
            "mapping values are not allowed",
            "a ':' that cannot stand here: check the indentation, or put the text in quotes",
            False,
        ),
        ("sequence entries are not allowed", "a list cannot begin here: use a new line", False),
        ("a block mapping: ", "expected a key of the mapping that began at line {line}", False),
        ("a block collection: ", "expected a '-' of the list that began at line {line}", False),
        ("a flow sequence: ", "expected ',' or ']': the list began at line {line}", False),
        ("a flow mapping: ", "expected ',' or '}}': the mapping began at line {line}", False),
        ("expected.* node content", "expected a text, a list or a mapping", False),
        ("expected '?<document start>", "expected the end of the file", False),
        ("incompatible YAML", "a version of YAML that cannot be read: leave %YAML out", False),
        ("directive", "a line that begins with '%' needs quotes around its text", False),
    ]
]
_CANNOT_START = "cannot start any token"


def explain(error: Any, text: str) -> tuple[int, int, str]:
    """Line, column and message for a ``MarkedYAMLError`` about ``text``."""
    description = f"{error.context}: {error.problem}"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return 1, 1, f"not YAML: {error.problem}"
    if _CANNOT_START in description:
        return (*_where(mark, text), _cannot_start(text[mark.index : mark.index + 1]))
    for case in _CASES:
        if case.pattern.search(description):
            start = error.context_mark or mark
            message = case.text.format(line=_where(start, text)[0])
            return (*_where(start if case.at_start else mark, text), f"not YAML: {message}")
    return (*_where(mark, text), f"not YAML: {error.problem}")


def _where(mark: Any, text: str) -> tuple[int, int]:
    if mark.index >= len(text):  # libyaml counts one line more if the last one has no end
        return line_and_column(text, len(text))
    return mark.line + 1, mark.column + 1


def line_and_column(text: str, index: int) -> tuple[int, int]:
    """The position of a character, as YAML counts lines."""
    line, start = 1, 0
    for end in _LINE_END.finditer(text, 0, index):
        line, start = line + 1, end.end()
    return line, index - start + 1


def _cannot_start(character: str) -> str:
    if character == "\t":
        return "not YAML: a tab cannot indent: use spaces"
    return f"not YAML: a text that begins with {character!r} needs quotes"
