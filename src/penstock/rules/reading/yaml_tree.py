"""From YAML text to a tree, within bounds for any text.

The tree is built from the events of PyYAML's parser, with a stack of its own. PyYAML's composer
recurses, in C if libyaml is used, so a deeply nested file would crash the process. Events come
one by one, so a file that is too deep or too large is refused long before its end. An alias
counts as what it stands for, so a few lines cannot become millions of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from penstock.rules.problems import Place, Problems
from penstock.rules.reading.tree import (
    BOUNDS,
    Bounds,
    CannotContinue,
    FileOrigin,
    ListNode,
    MappingNode,
    ScalarNode,
    SyntaxNode,
    shown,
)
from penstock.rules.reading.yaml_messages import explain, line_and_column

# libyaml is ten times as fast, but not every wheel of PyYAML has it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# What YAML calls printable. PyYAML checks it, too, but reports bytes instead of lines.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Refused because libyaml compares each of them with all before it.
_TAG_DIRECTIVE = re.compile("^%TAG", re.M)
_YAML_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"


def decode(data: bytes, file: str, problems: Problems) -> str | None:
    """The text of a file; None, and a problem, if it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        problems.error(
            _place_of(before, len(before), file),
            f"the file is not UTF-8 text: byte 0x{data[error.start]:02x} cannot stand here",
        )
        return None


def read_yaml(
    text: str, file: str, problems: Problems, bounds: Bounds = BOUNDS, loader: Any = None
) -> SyntaxNode | None:
    """The one document of ``text``; None if there is none or it cannot be read.

    Errors go to ``problems``. A repeated key, a tag or a key that is not a text does not end the
    reading, so that more errors can be reported at once.
    """
    if len(text) > bounds.size:
        problems.error(Place(file, 1, 1), f"the file is larger than {bounds.size // 10**6} MB")
        return None
    text = text.removeprefix("\ufeff")
    bad = _UNPRINTABLE.search(text)
    if bad is not None:
        code = ord(bad[0])
        hint = f': write it in double quotes, as "\\x{code:02X}"' if code < 0x100 else ""
        problems.error(
            _place_of(text, bad.start(), file),
            f"the character U+{code:04X} cannot stand in a file{hint}",
        )
        return None
    tag = _TAG_DIRECTIVE.search(text)
    if tag is not None:
        problems.error(_place_of(text, tag.start(), file), "%TAG: rules have no tags")
        return None
    try:
        return _Builder(file, problems, bounds).build(yaml.parse(text, loader or _Loader))
    except CannotContinue:
        return None
    except yaml.MarkedYAMLError as error:
        line, column, message = explain(error, text)
        problems.error(Place(file, line, column), message)
        return None
    except yaml.YAMLError as error:
        problems.error(Place(file, 1, 1), f"not YAML: {error}")
        return None


def _place_of(text: str, index: int, file: str) -> Place:
    return Place(file, *line_and_column(text, index))


@dataclass(slots=True)
class _Anchored:
    """The node of an anchor, and how many nodes and levels an alias to it adds."""

    node: SyntaxNode | None = None  # None while it is open: an alias is a cycle then
    nodes: int = 0
    levels: int = 0


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been read yet."""

    node: ListNode | MappingNode
    anchored: _Anchored | None
    before: int  # nodes that were counted before it
    deepest: int = 0  # levels below it
    items: list[SyntaxNode] = field(default_factory=list)  # of a mapping: key, value, key, value


class _Builder:
    def __init__(self, file: str, problems: Problems, bounds: Bounds) -> None:
        self._source = FileOrigin(file)
        self._problems = problems
        self._bounds = bounds
        self._anchors: dict[str, _Anchored] = {}
        self._count = 0
        self._open: list[_Open] = []
        self._root: SyntaxNode | None = None

    def build(self, events: Iterator[Any]) -> SyntaxNode | None:
        most = self._bounds.nodes
        source, opened = self._source, self._open
        documents = 0
        for event in events:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                mark = event.start_mark
                self._count += 1
                node: SyntaxNode = ScalarNode(
                    event.value, event.implicit[0], mark.line + 1, mark.column + 1, source
                )
                if event.tag is not None:
                    self._check_tag(event, "str")
                if event.anchor is not None:
                    self._anchors[event.anchor] = _Anchored(node, 1)
                if opened:
                    opened[-1].items.append(node)
                else:
                    self._root = node
            elif kind is yaml.MappingStartEvent:
                self._begin(event, MappingNode((), *self._where(event), source), "map")
            elif kind is yaml.SequenceStartEvent:
                self._begin(event, ListNode([], *self._where(event), source), "seq")
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise self._refuse(event, "a second document: a file of rules has only one")
            if self._count > most:
                raise self._refuse(
                    event, f"more than {most} nodes, with every alias as what it stands for"
                )
        return self._root

    @staticmethod
    def _where(event: Any) -> tuple[int, int]:
        return event.start_mark.line + 1, event.start_mark.column + 1

    def _refuse(self, event: Any, message: str) -> CannotContinue:
        self._problems.error(self._source.place(*self._where(event)), message)
        return CannotContinue()

    def _check_tag(self, event: Any, usual: str) -> None:
        if event.tag not in ("!", _YAML_TAG + usual):
            tag = event.tag
            if tag.startswith(_YAML_TAG):
                tag = "!!" + tag.removeprefix(_YAML_TAG)
            self._problems.error(
                self._source.place(*self._where(event)), f"the tag {shown(tag)}: rules have no tags"
            )

    def _begin(self, event: Any, node: ListNode | MappingNode, usual: str) -> None:
        if event.tag is not None:
            self._check_tag(event, usual)
        anchored = None
        if event.anchor is not None:
            anchored = self._anchors[event.anchor] = _Anchored()
        self._open.append(_Open(node, anchored, self._count))
        self._count += 1
        self._check_depth(event, len(self._open))

    def _check_depth(self, event: Any, depth: int) -> None:
        if depth > self._bounds.depth:
            raise self._refuse(event, f"nested deeper than {self._bounds.depth} levels")

    def _end(self) -> None:
        done = self._open.pop()
        node = done.node
        if isinstance(node, MappingNode):
            node.pairs = self._pairs(done.items)
        else:
            node.items = done.items
        if done.anchored is not None:
            done.anchored.node = node
            done.anchored.nodes = self._count - done.before
            done.anchored.levels = done.deepest + 1
        if self._open:
            above = self._open[-1]
            above.items.append(node)
            above.deepest = max(above.deepest, done.deepest + 1)
        else:
            self._root = node

    def _alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise self._refuse(
                event,
                f"the alias {shown('*' + event.anchor)} has no anchor"
                " (a text that begins with '*' needs quotes)",
            )
        if anchored.node is None:
            raise self._refuse(event, f"the alias {shown('*' + event.anchor)} is inside itself")
        self._count += anchored.nodes
        self._check_depth(event, len(self._open) + anchored.levels)
        above = self._open[-1]  # at the top there cannot be an anchor yet
        above.deepest = max(above.deepest, anchored.levels)
        above.items.append(anchored.node)

    def _pairs(self, items: list[SyntaxNode]) -> list[tuple[ScalarNode, SyntaxNode]]:
        pairs: list[tuple[ScalarNode, SyntaxNode]] = []
        keys: dict[str, ScalarNode] = {}
        merged: list[SyntaxNode] = []
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                self._problems.error(key.place, f"a key must be a text, not {key}")
            elif key.text in keys:
                first = keys[key.text].line
                self._problems.error(
                    key.place, f"the key {shown(key.text)} a second time: first at line {first}"
                )
            else:
                keys[key.text] = key
                if key.plain and key.text == _MERGE:
                    merged.append(value)
                else:
                    pairs.append((key, value))
        for value in merged:
            self._merge(value, pairs, keys)
        return pairs

    def _merge(
        self,
        value: SyntaxNode,
        pairs: list[tuple[ScalarNode, SyntaxNode]],
        keys: dict[str, ScalarNode],
    ) -> None:
        """``<<``: the keys of other mappings that this one does not have."""
        for node in value.items if isinstance(value, ListNode) else [value]:
            if not isinstance(node, MappingNode):
                self._problems.error(node.place, f"'<<' takes mappings, not {node}")
                continue
            for key, inner in node.pairs:
                if key.text not in keys:
                    keys[key.text] = key
                    pairs.append((key, inner))
