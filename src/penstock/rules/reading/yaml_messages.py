"""What YAML's parser says, in words for someone who writes rules.

libyaml and the parser in Python word the same mistake differently. Both are brought to
one wording here, so that a message does not depend on how PyYAML was built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class _Case:
    """If ``told`` is found in "context: problem", say ``words`` instead.

    ``{line}`` is where the thing began that the parser was in; with ``at_start`` the
    message points there, too, because that is what must be mended.
    """

    told: re.Pattern[str]
    words: str
    at_start: bool = False


_CASES = [
    _Case(re.compile(told), words, at_start)
    for told, words, at_start in [
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


def in_plain_words(error: Any, text: str) -> tuple[int, int, str]:
    """Line, column and message for a ``MarkedYAMLError`` about ``text``."""
    told = f"{error.context}: {error.problem}"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return 1, 1, f"not YAML: {error.problem}"
    if _CANNOT_START in told:
        return (*_where(mark, text), _cannot_start(text[mark.index : mark.index + 1]))
    for case in _CASES:
        if case.told.search(told):
            start = error.context_mark or mark
            words = case.words.format(line=_where(start, text)[0])
            return (*_where(start if case.at_start else mark, text), f"not YAML: {words}")
    return (*_where(mark, text), f"not YAML: {error.problem}")


def _where(mark: Any, text: str) -> tuple[int, int]:
    if mark.index >= len(text):  # libyaml sees one line more if the last one has no end
        return line_and_column(text, len(text))
    return mark.line + 1, mark.column + 1


def line_and_column(text: str, index: int) -> tuple[int, int]:
    """Of a character, counted as YAML counts."""
    line, start = 1, 0
    for end in _LINE_END.finditer(text, 0, index):
        line, start = line + 1, end.end()
    return line, index - start + 1


def _cannot_start(character: str) -> str:
    if character == "\t":
        return "not YAML: a tab cannot indent: use spaces"
    return f"not YAML: a text that begins with {character!r} needs quotes"
