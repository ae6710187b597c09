"""The same library twice in one process: as it is, and uncompiled."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType


def load_pure() -> ModuleType:
    """``penstock`` loaded from source, beside the one that is imported already."""
    saved = {name: sys.modules.pop(name) for name in list(sys.modules) if _ours(name)}
    finders, wanted = list(sys.meta_path), os.environ.get("PENSTOCK_PURE")
    os.environ["PENSTOCK_PURE"] = "1"
    try:
        pure = importlib.import_module("penstock")
        importlib.import_module("penstock.testing")
        return pure
    finally:
        sys.meta_path[:] = finders
        if wanted is None:
            del os.environ["PENSTOCK_PURE"]
        else:
            os.environ["PENSTOCK_PURE"] = wanted
        for name in [name for name in sys.modules if _ours(name)]:
            del sys.modules[name]
        sys.modules.update(saved)


def _ours(name: str) -> bool:
    return name == "penstock" or name.startswith("penstock.")
