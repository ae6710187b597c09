"""Makes src/penstock/server/wires/descriptors.py of the .proto files in tools/protos.

    python tools/descriptors.py            writes it
    python tools/descriptors.py --check    fails if it would change

gRPC's reflection hands out file descriptors: a .proto file as a protobuf message. The server
must not need a protobuf library for that, so they are made here, once, and kept as bytes.
This reads just as much of the language as our files use: syntax proto3, package, import,
message, enum, service, oneof and map, one field on a line, no options.
"""

from __future__ import annotations

import base64
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
PROTOS = HERE / "protos"
TARGET = HERE.parent / "src/penstock/server/wires/descriptors.py"

SCALARS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9,
    "bytes": 12, "uint32": 13,
}  # fmt: skip
MESSAGE, ENUM = 11, 14
OPTIONAL, REPEATED = 1, 3

FIELD = re.compile(r"(?:(repeated) )?(map<string, ([\w.]+)>|[\w.]+) (\w+) = (\d+);")
VALUE = re.compile(r"(\w+) = (\d+);")
RPC = re.compile(r"rpc (\w+) \((stream )?(\w+)\) returns \((stream )?(\w+)\);")
BLOCK = re.compile(r"(message|enum|service|oneof) (\w+) \{")


@dataclass
class Block:
    """A message, an enum, a service or a oneof, with its lines and its inner blocks."""

    kind: str
    name: str
    lines: list[str | Block] = field(default_factory=list)


@dataclass
class File:
    name: str
    package: str = ""
    imports: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


def read(path: Path) -> File:
    file = File(path.relative_to(PROTOS).as_posix())
    open_blocks: list[Block] = []
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.strip()
        if found := BLOCK.fullmatch(line):
            block = Block(found[1], found[2])
            if open_blocks:
                open_blocks[-1].lines.append(block)
            else:
                file.blocks.append(block)
            open_blocks.append(block)
        elif line == "}":
            open_blocks.pop()
        elif open_blocks:
            open_blocks[-1].lines.append(line)
        elif found := re.fullmatch(r"package ([\w.]+);", line):
            file.package = found[1]
        elif found := re.fullmatch(r'import "([\w./]+)";', line):
            file.imports.append(found[1])
        elif line not in ("", 'syntax = "proto3";'):
            raise SystemExit(f"{path}:{number}: cannot read {line!r}")
    return file


# Writing protobuf --------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def text(tag: int, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(tag << 3 | 2) + varint(len(data)) + data


class Writer:
    """Writes files, knowing the names of all of them."""

    def __init__(self, files: list[File]) -> None:
        self.kinds: dict[str, int] = {}
        self.symbols: dict[str, str] = {}
        for file in files:
            for name, kind in names(file.blocks, file.package):
                self.symbols[name] = file.name
                if kind in ("message", "enum"):
                    self.kinds[name] = MESSAGE if kind == "message" else ENUM

    def file(self, file: File) -> bytes:
        out = text(1, file.name) + text(2, file.package)
        for name in file.imports:
            out += text(3, name)
        for tag, kind in ((4, "message"), (5, "enum"), (6, "service")):
            for block in file.blocks:
                if block.kind == kind:
                    out += text(tag, getattr(self, kind)(block, file.package))
        return out + text(12, "proto3")

    def message(self, block: Block, scope: str) -> bytes:
        inside = f"{scope}.{block.name}"
        fields, nested, enums, oneofs = b"", b"", b"", b""
        count = 0
        for line in block.lines:
            if isinstance(line, str):
                more, entry = self.field(line, inside, None)
                fields += more
                nested += entry
            elif line.kind == "oneof":
                for inner in line.lines:
                    assert isinstance(inner, str)
                    fields += self.field(inner, inside, count)[0]
                oneofs += text(8, text(1, line.name))
                count += 1
            elif line.kind == "message":
                nested += text(3, self.message(line, inside))
            else:
                enums += text(4, self.enum(line, inside))
        return text(1, block.name) + fields + nested + enums + oneofs

    def field(self, line: str, scope: str, oneof: int | None) -> tuple[bytes, bytes]:
        """A field, and the message of its entries if it is a map."""
        found = FIELD.fullmatch(line)
        if found is None:
            raise SystemExit(f"cannot read the field {line!r} of {scope}")
        repeated, kind, value, name, tag = found.groups()
        entry = b""
        if value is not None:
            camel = "".join(part.title() for part in name.split("_")) + "Entry"
            entry = text(3, self.entry(camel, value, scope))
            label, told = REPEATED, number(5, MESSAGE) + text(6, f".{scope}.{camel}")
        else:
            label = REPEATED if repeated else OPTIONAL
            told = self.type(kind, scope)
        out = text(1, name) + number(3, int(tag)) + number(4, label) + told
        if oneof is not None:
            out += number(9, oneof)
        return text(2, out + text(10, json_name(name))), entry

    def entry(self, name: str, value: str, scope: str) -> bytes:
        key = text(1, "key") + number(3, 1) + number(4, OPTIONAL) + number(5, SCALARS["string"])
        pair = text(1, "value") + number(3, 2) + number(4, OPTIONAL) + self.type(value, scope)
        is_map = text(7, number(7, 1))
        fields = text(2, key + text(10, "key")) + text(2, pair + text(10, "value"))
        return text(1, name) + fields + is_map

    def type(self, kind: str, scope: str) -> bytes:
        if kind in SCALARS:
            return number(5, SCALARS[kind])
        full = self.resolve(kind, scope)
        return number(5, self.kinds[full]) + text(6, f".{full}")

    def resolve(self, kind: str, scope: str) -> str:
        """Names are looked up from the inside out."""
        parts = scope.split(".")
        for length in range(len(parts), -1, -1):
            full = ".".join([*parts[:length], kind])
            if full in self.symbols:
                return full
        raise SystemExit(f"{scope} speaks of {kind}, which is not there")

    def enum(self, block: Block, scope: str) -> bytes:
        out = text(1, block.name)
        for line in block.lines:
            found = VALUE.fullmatch(str(line))
            if found is None:
                raise SystemExit(f"cannot read the value {line!r} of {scope}.{block.name}")
            out += text(2, text(1, found[1]) + number(2, int(found[2])))
        return out

    def service(self, block: Block, scope: str) -> bytes:
        out = text(1, block.name)
        for line in block.lines:
            found = RPC.fullmatch(str(line))
            if found is None:
                raise SystemExit(f"cannot read the method {line!r} of {scope}.{block.name}")
            name, client, wanted, server, given = found.groups()
            method = text(1, name)
            method += text(2, f".{self.resolve(wanted, scope)}")
            method += text(3, f".{self.resolve(given, scope)}")
            method += number(5, 1) if client else b""
            method += number(6, 1) if server else b""
            out += text(2, method)
        return out


def names(blocks: list[Block], scope: str) -> Iterator[tuple[str, str]]:
    """Every symbol with its kind: messages, enums, services and methods."""
    for block in blocks:
        if block.kind == "oneof":
            continue
        full = f"{scope}.{block.name}"
        yield full, block.kind
        yield from names([line for line in block.lines if isinstance(line, Block)], full)
        if block.kind == "service":
            for line in block.lines:
                if found := RPC.fullmatch(str(line)):
                    yield f"{full}.{found[1]}", "method"


def json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def module() -> str:
    files = [read(path) for path in sorted(PROTOS.rglob("*.proto"))]
    writer = Writer(files)
    lines = [
        '"""File descriptors of the services that we serve. Made by tools/descriptors.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from base64 import b64decode",
        "",
        "# By name: the FileDescriptorProto.",
        "FILES: dict[str, bytes] = {",
    ]
    for file in files:
        lines.append(f'    "{file.name}": b64decode(')
        encoded = base64.b64encode(writer.file(file)).decode()
        lines += [f'        "{part}"' for part in textwrap.wrap(encoded, 88)]
        lines.append("    ),")
    lines += ["}", "", "# By name: the files that it imports.", "IMPORTS: dict[str, list[str]] = {"]
    for file in files:
        if len(file.imports) < 2:
            lines.append(f'    "{file.name}": {str(file.imports).replace(chr(39), chr(34))},')
            continue
        lines.append(f'    "{file.name}": [')
        lines += [f'        "{name}",' for name in file.imports]
        lines.append("    ],")
    lines += ["}", "", "# By full name, the file in which it is defined."]
    lines.append("SYMBOLS: dict[str, str] = {")
    for symbol, name in sorted(writer.symbols.items()):
        line = f'    "{symbol}": "{name}",'
        if len(line) > 100:
            lines += [f'    "{symbol}": (', f'        "{name}"', "    ),"]
        else:
            lines.append(line)
    return "\n".join([*lines, "}", ""])


def main() -> int:
    made = module()
    if "--check" in sys.argv[1:]:
        return int(TARGET.read_text() != made)
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
