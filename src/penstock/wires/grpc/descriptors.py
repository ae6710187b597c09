"""File descriptors of the services that we serve.

``descriptors.binpb`` is a FileDescriptorSet that protoc makes of the files in tools/protos: run
tools/descriptors.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from penstock.wires.grpc.protobuf_fields import read_fields, text_of

_KIND = "FileDescriptorSet"
# The fields that hold definitions, by number, and the same for each of these definitions.
_MESSAGE: dict[int, Any] = {4: {}}  # enums
_MESSAGE[3] = _MESSAGE  # nested messages
_FILE = {4: _MESSAGE, 5: {}, 6: {2: {}}}  # messages, enums, services with methods

FILES: dict[str, bytes] = {}
"""By name: the FileDescriptorProto."""
IMPORTS: dict[str, list[str]] = {}
"""By name: the files that it imports."""
SYMBOLS: dict[str, str] = {}
"""By full name: the file in which it is defined."""


def _symbols(definition: bytes, scope: str, parts: dict[int, Any]) -> Iterator[str]:
    fields = read_fields(definition, _KIND)
    for number, inner in parts.items():
        for part in _messages(fields.get(number, ())):
            name = f"{scope}.{text_of(read_fields(part, _KIND), 1, _KIND)}"
            yield name
            yield from _symbols(part, name, inner)


def _messages(values: Any) -> Iterator[bytes]:
    return (value for value in values if isinstance(value, bytes))


for _file in _messages(
    read_fields(files(__package__).joinpath("descriptors.binpb").read_bytes(), _KIND)[1]
):
    _fields = read_fields(_file, _KIND)
    _name, _package = text_of(_fields, 1, _KIND), text_of(_fields, 2, _KIND)
    FILES[_name] = _file
    IMPORTS[_name] = [value.decode() for value in _messages(_fields.get(3, ()))]
    SYMBOLS.update(dict.fromkeys(_symbols(_file, _package, _FILE), _name))
