"""From a Python dict to the same tree as from YAML, with the same bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.rules.problems import Place, Problems
from penstock.rules.reading.tree import (
    BOUNDS,
    Bounds,
    CannotContinue,
    ListNode,
    MappingNode,
    ScalarNode,
    SyntaxNode,
    shown,
)


@dataclass(frozen=True, slots=True, order=True)
class KeyPlace(Place):
    """A place in a dict: the keys that lead there. There is no line, so that is 0."""

    number: int  # of the node, so that problems can be sorted as they were written
    path: str

    def __str__(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file


class _DictOrigin:
    """Names places by path. The line of a node is the number of its path."""

    __slots__ = ("file", "paths")

    def __init__(self, file: str) -> None:
        self.file = file
        # For each node, the number of its parent, and its key or index there.
        self.paths: list[tuple[int, str | int]] = []

    def place(self, line: int, column: int) -> Place:
        parts: list[str] = []
        number = line
        while number:
            number, key = self.paths[number]
            parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
        return KeyPlace(self.file, 0, 0, line, "".join(reversed(parts)).removeprefix("."))


def read_dict(
    rules: Mapping[str, Any], file: str, problems: Problems, bounds: Bounds = BOUNDS
) -> SyntaxNode | None:
    """The tree of a dict; None, and problems, if it has something that YAML does not."""
    before = len(problems.errors)
    try:
        node = _Reader(file, problems, bounds).read(rules, 0, 0, "")
    except CannotContinue:
        return None
    return node if len(problems.errors) == before else None


class _Reader:
    def __init__(self, file: str, problems: Problems, bounds: Bounds) -> None:
        self._source = _DictOrigin(file)
        self._problems = problems
        self._bounds = bounds

    def read(self, value: Any, depth: int, above: int, key: str | int) -> SyntaxNode:
        """Recursive, but not deeper than the bounds: a dict may contain itself."""
        source, bounds = self._source, self._bounds
        number = len(source.paths)
        source.paths.append((above, key))
        if number >= bounds.nodes:
            raise self._refuse(number, f"more than {bounds.nodes} nodes")
        if isinstance(value, Mapping | list | tuple) and depth >= bounds.depth:
            raise self._refuse(number, f"nested deeper than {bounds.depth} levels")
        if isinstance(value, Mapping):
            pairs = []
            for name, inner in value.items():
                if isinstance(name, str):
                    node = self.read(inner, depth + 1, number, name)
                    pairs.append((ScalarNode(name, False, node.line, 0, source), node))
                else:
                    place = source.place(number, 0)
                    self._problems.error(place, f"a key must be a text, not {shown(str(name))}")
            return MappingNode(pairs, number, 0, source)
        if isinstance(value, list | tuple):
            items = [self.read(item, depth + 1, number, i) for i, item in enumerate(value)]
            return ListNode(items, number, 0, source)
        text, plain = self._scalar(value, number)
        return ScalarNode(text, plain, number, 0, source)

    def _scalar(self, value: Any, number: int) -> tuple[str, bool]:
        """As it would be written in YAML: a text in quotes, a number without."""
        if isinstance(value, str):
            return value, False
        if value is None:
            return "", True
        if isinstance(value, bool):
            return ("true" if value else "false"), True
        if isinstance(value, int | float):
            try:
                return repr(value), True
            except ValueError:  # more digits than Python would print
                pass
        message = f"{type(value).__name__} is nothing that YAML could say"
        self._problems.error(self._source.place(number, 0), message)
        return "", False

    def _refuse(self, number: int, message: str) -> CannotContinue:
        self._problems.error(self._source.place(number, 0), message)
        return CannotContinue()
