"""Chooses between the compiled core and the same source uncompiled.

The core's modules may lie here twice: ``decision.py`` and, where a compiler was
at hand, ``decision.*.so`` built from it. Python prefers the ``.so``. This module
is imported before any of them and overrules that in two cases: the user asked
for plain Python (``PENSTOCK_PURE=1``), or the build is incomplete, because the
compiled modules call each other in C and work only together. A service that was not
built leaves the limiter's core compiled.
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
    "algorithms.initial_bucket",
    "algorithms.fixed_window",
    "algorithms.sliding_window",
    "algorithms.sliding_log",
    "algorithms.stock",
    "algorithms.lockout",
    "algorithms.soft",
    "stores.base",
    "stores._table",
    "stores._memory",
    "stores._mapped",
    "limiter",
    "pending",
)
# Leases, plans of requests, and the service's messages. They call the core in C, but the core
# does not need them.
SERVICE = (
    "stores.leased.lease",
    "stores.leased.counters",
    "rules.deciding.plan",
    "metrics.flight",
    "service.rls_request",
    "service.rls_response",
    "service.rls_quick",
)
# Reading and replaying logs. Nothing else needs them.
REPLAY = (
    "replay.reading._scanner",
    "replay.deciding._decider",
    "replay.recommending.arrivals",
)


def _all_built(modules: Sequence[str]) -> bool:
    here = Path(__file__).parent
    return all(
        any(
            here.joinpath(*name.split(".")).with_suffix(suffix).exists()
            for suffix in importlib.machinery.EXTENSION_SUFFIXES
        )
        for name in modules
    )


class _SourceOnly:
    """Finds the ``.py`` files of some modules, and not their extension modules."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = {f"penstock.{name}" for name in modules}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is None or name not in self._modules:
            return None
        details = (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES)
        for folder in path:
            spec = importlib.machinery.FileFinder(folder, details).find_spec(name)
            if spec is not None:
                return spec
        return None


PURE_WANTED = os.environ.get("PENSTOCK_PURE", "") not in ("", "0")
COMPILED = not PURE_WANTED and _all_built(CORE)
if not COMPILED:
    sys.meta_path.insert(0, _SourceOnly((*CORE, *SERVICE)))
elif not _all_built(SERVICE):
    sys.meta_path.insert(0, _SourceOnly(SERVICE))
REPLAY_COMPILED = COMPILED and _all_built(REPLAY)
if not REPLAY_COMPILED:
    sys.meta_path.insert(0, _SourceOnly(REPLAY))


def describe() -> str:
    """One phrase for ``penstock --version``."""
    if COMPILED:
        return "compiled core"
    if PURE_WANTED:
        return "pure Python core (PENSTOCK_PURE is set)"
    return "pure Python core (the compiled one was not built: no C compiler or Python headers?)"
