"""Makes src/penstock/wires/grpc/descriptors.binpb from the .proto files in tools/protos.

    python tools/descriptors.py            writes it
    python tools/descriptors.py --check    fails if it would change

gRPC reflection hands out file descriptors: a .proto file as a protobuf message. protoc makes
them here, once, so that the server does not need a protobuf library to serve them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent
PROTOS = HERE / "protos"
TARGET = HERE.parent / "src/penstock/wires/grpc/descriptors.binpb"


def compiled() -> bytes:
    """The descriptor set of all files."""
    paths = sorted(str(path) for path in PROTOS.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "descriptors")
        if protoc.main(["protoc", f"-I{PROTOS}", f"--descriptor_set_out={out}", *paths]):
            raise SystemExit("protoc failed: see above")
        return out.read_bytes()


def main() -> int:
    content = compiled()
    if "--check" in sys.argv[1:]:
        return int(TARGET.read_bytes() != content)
    TARGET.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
