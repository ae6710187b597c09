"""Chooses between the compiled core and the same source uncompiled.

The core's modules may lie here twice: ``decision.py`` and, where a compiler was
at hand, ``decision.*.so`` built from it. Python prefers the ``.so``. This module
is imported before any of them and overrules that in two cases: the user asked
for plain Python (``PENSTOCK_PURE=1``), or the build is incomplete, because the
compiled modules call each other in C and work only together.
"""

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

CORE = (
    "decision",
    "algorithms.base",
    "algorithms.around",
    "algorithms.token_bucket",
    "algorithms.fixed_window",
    "algorithms.sliding_window",
    "algorithms.sliding_log",
    "algorithms.lockout",
    "algorithms.soft",
    "stores.base",
    "stores._table",
    "stores._memory",
    "stores._mapped",
    "limiter",
    "server.rls",
    "server.rls_answer",
    "server.rls_quick",
)


def _all_built() -> bool:
    here = Path(__file__).parent
    return all(
        any(
            here.joinpath(*name.split(".")).with_suffix(suffix).exists()
            for suffix in importlib.machinery.EXTENSION_SUFFIXES
        )
        for name in CORE
    )


class _SourceOnly:
    """Finds ``.py`` files of this package and no extension modules."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is None or not name.startswith("penstock."):
            return None
        details = (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES)
        for folder in path:
            spec = importlib.machinery.FileFinder(folder, details).find_spec(name)
            if spec is not None:
                return spec
        return None


PURE_WANTED = os.environ.get("PENSTOCK_PURE", "") not in ("", "0")
COMPILED = not PURE_WANTED and _all_built()
if not COMPILED:
    sys.meta_path.insert(0, _SourceOnly)


def describe() -> str:
    """One phrase for ``penstock --version``."""
    if COMPILED:
        return "compiled core"
    if PURE_WANTED:
        return "pure Python core (PENSTOCK_PURE is set)"
    return "pure Python core (the compiled one was not built: no C compiler or Python headers?)"
