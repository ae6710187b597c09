"""Makes src/penstock/wires/grpc/descriptors.py from the .proto files in tools/protos.

    python tools/descriptors.py            writes it
    python tools/descriptors.py --check    fails if it would change

gRPC reflection hands out file descriptors: a .proto file as a protobuf message. protoc makes
them here, once, so that the server does not need a protobuf library to serve them.
"""

from __future__ import annotations

import base64
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from pprint import pformat

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

HERE = Path(__file__).parent
PROTOS = HERE / "protos"
TARGET = HERE.parent / "src/penstock/wires/grpc/descriptors.py"


def compiled() -> list[FileDescriptorProto]:
    """What protoc makes of our files, sorted by name."""
    paths = [str(path) for path in PROTOS.rglob("*.proto")]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "descriptors")
        if protoc.main(["protoc", f"-I{PROTOS}", f"--descriptor_set_out={out}", *paths]):
            raise SystemExit("protoc failed: see above")
        files = FileDescriptorSet.FromString(out.read_bytes()).file
    return sorted(files, key=lambda file: file.name)


def symbols(file: FileDescriptorProto) -> Iterator[str]:
    """The full name of every message, enum, service and method."""
    for message in file.message_type:
        yield from message_symbols(message, file.package)
    for enum in file.enum_type:
        yield f"{file.package}.{enum.name}"
    for service in file.service:
        yield f"{file.package}.{service.name}"
        for method in service.method:
            yield f"{file.package}.{service.name}.{method.name}"


def message_symbols(message: DescriptorProto, scope: str) -> Iterator[str]:
    if message.options.map_entry:
        return
    name = f"{scope}.{message.name}"
    yield name
    for nested in message.nested_type:
        yield from message_symbols(nested, name)
    for enum in message.enum_type:
        yield f"{name}.{enum.name}"


def module() -> str:
    files = compiled()
    lines = [
        '"""File descriptors of the services that we serve. Made by tools/descriptors.py."""',
        "",
        "# ruff: noqa: E501  # nobody edits it",
        "# fmt: off",
        "from __future__ import annotations",
        "",
        "from base64 import b64decode",
        "",
        "# By name: the FileDescriptorProto.",
        "FILES: dict[str, bytes] = {",
    ]
    for file in files:
        lines.append(f'    "{file.name}": b64decode(')
        encoded = base64.b64encode(file.SerializeToString(deterministic=True)).decode()
        lines += [f'        "{part}"' for part in textwrap.wrap(encoded, 88)]
        lines.append("    ),")
    imports = {file.name: list(file.dependency) for file in files}
    where = {symbol: file.name for file in files for symbol in symbols(file)}
    lines += [
        "}",
        "",
        "# By name: the files that it imports.",
        f"IMPORTS: dict[str, list[str]] = {pformat(imports, width=98)}",
        "",
        "# By full name, the file in which it is defined.",
        f"SYMBOLS: dict[str, str] = {pformat(where, width=98)}",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    made = module()
    if "--check" in sys.argv[1:]:
        return int(TARGET.read_text() != made)
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
