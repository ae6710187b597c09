"""gRPC over nghttp2: the fast wire, if the extension was built.

Without it, `penstock.wires.grpc.grpcio` serves the same methods.
"""

from __future__ import annotations

import importlib


def available() -> bool:
    """Whether the extension was built and its library can be loaded."""
    try:
        importlib.import_module("penstock.wires.grpc.h2._nghttp2")
    except ImportError:
        return False
    return True
