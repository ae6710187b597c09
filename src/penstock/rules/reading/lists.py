"""Reads the lists of ``allow`` and ``deny``, from the rules and from files beside them."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import RulesError
from penstock.rules.lists import ValueList
from penstock.rules.problems import Place
from penstock.rules.reading.files import CannotRead, digest_of, named, read_bytes
from penstock.rules.reading.keywords import LIST_FILE
from penstock.rules.reading.tree import MappingNode, ScalarNode, SyntaxNode, shown
from penstock.rules.reading.values import Reading, read_fields, read_list


def read_values(reading: Reading, node: SyntaxNode, what: str) -> ValueList:
    """A list of texts, networks and files."""
    places: list[tuple[Place, str]] = []
    for item in read_list(reading, node, what):
        if isinstance(item, MappingNode):
            places += ((item.place, entry) for entry in _entries_of_file(reading, item))
        elif isinstance(item, ScalarNode) and not item.is_null and item.text:
            places.append((item.place, item.text))
        else:
            message = f"an entry of {what} must be a text or {{file: ...}}, not {item}"
            reading.error(item.place, message)
    try:
        return ValueList(entry for _, entry in places)
    except RulesError:
        for place, entry in places:
            try:
                ValueList((entry,))
            except RulesError as error:
                reading.error(place, str(error))
        return ValueList()


def read_lists(reading: Reading, node: SyntaxNode, what: str) -> dict[str, ValueList]:
    """Lists by key, for a whole domain."""
    if not isinstance(node, MappingNode):
        reading.error(node.place, f"{what} must be a mapping of keys to lists here, not {node}")
        return {}
    lists = {}
    for key, inner in node.pairs:
        if not key.text:
            reading.error(key.place, f"a key of {what} must not be empty")
        elif not inner.is_null:
            lists[key.text] = read_values(reading, inner, f"the list of {shown(key.text)}")
    return lists


def _entries_of_file(reading: Reading, node: MappingNode) -> tuple[str, ...]:
    fields = read_fields(reading, node, LIST_FILE, "an entry")
    name = None if fields is None else fields.values.get("file")
    if fields is None or name is None:
        return ()
    path = Path(os.path.normpath(reading.folder / name))
    if path not in reading.list_files:
        reading.list_files[path] = None
        try:
            data = read_bytes(path)
            reading.digests[str(path)] = digest_of(data)
            reading.list_files[path] = tuple(_entries(data.decode("utf-8-sig")))
        except CannotRead as error:
            reading.error(fields.place("file"), str(error))
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            message = f"{named(path)} is not UTF-8 text: see its line {line}"
            reading.error(fields.place("file"), message)
    return reading.list_files[path] or ()


def _entries(text: str) -> list[str]:
    """One per line; ``#`` starts a comment at the start of a line or after a space."""
    entries = [f" {line}".split(" #", 1)[0].strip() for line in text.splitlines()]
    return [entry for entry in entries if entry]
