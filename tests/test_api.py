"""The public names: exactly these, and each says what it is for."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
import penstock.testing

SOURCE = Path(penstock.__file__).parent

NAMES = [
    "AsyncConcurrencyLimiter",
    "AsyncGate",
    "AsyncLimiter",
    "CircuitBreaker",
    "CircuitOpen",
    "Clock",
    "ConcurrencyLimiter",
    "Decision",
    "Descriptor",
    "ForeignValue",
    "Gate",
    "InvalidCost",
    "InvalidKey",
    "Limit",
    "LimitError",
    "LimitExceeded",
    "Limiter",
    "LineFull",
    "MemoryStore",
    "MonotonicClock",
    "NoSlot",
    "NotReplicated",
    "PenstockError",
    "RedisStore",
    "RevisionConflict",
    "RulesError",
    "SharedMemoryStore",
    "StoreError",
    "StoreFileError",
    "StoreUnavailable",
    "TooManyLimits",
    "UnsupportedLimit",
    "ValueTooLarge",
    "Verdict",
    "WaitedTooLong",
    "WallClock",
    "__version__",
]
CLASSES = [getattr(penstock, name) for name in NAMES if name != "__version__"]
VERBS = [
    "hit", "peek", "wait", "refund", "reset", "hit_many", "hit_all", "reserve", "slot", "limit",
    "charge", "hit_up_to", "limited",
]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert penstock.__all__ == NAMES
    assert penstock.testing.__all__ == [
        "FakeClock",
        "StoreConformance",
        "allow_all",
        "assert_limited",
        "forget_counts",
        "use_clock",
    ]


def test_every_public_name_can_be_imported() -> None:
    for module in (penstock, penstock.testing):
        for name in module.__all__:
            assert hasattr(module, name)
    assert penstock.__version__.count(".") >= 2


def test_a_star_import_brings_the_public_names_and_nothing_else() -> None:
    scope: dict[str, object] = {}
    exec("from penstock import *", scope)
    assert sorted(scope.keys() - {"__builtins__"}) == sorted(NAMES)


def test_both_limiters_have_the_same_verbs() -> None:
    for limiter in (penstock.Limiter, penstock.AsyncLimiter):
        assert [verb for verb in VERBS if not callable(getattr(limiter, verb, None))] == []


@pytest.mark.parametrize(
    "kind", [*CLASSES, *(getattr(penstock.testing, name) for name in penstock.testing.__all__)]
)
def test_everything_public_has_a_docstring(kind: type) -> None:
    assert (kind.__doc__ or "").strip(), kind
    missing = []
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or member is None:
            continue
        if kind.__name__ == "StoreConformance" and name.startswith("test_"):
            continue  # their names are sentences
        spoken = callable(member) or isinstance(inspect.getattr_static(kind, name), property)
        if spoken and not (inspect.getdoc(member) or is_explained(kind, name)):
            missing.append(name)
    assert missing == []


def is_explained(kind: type, name: str) -> bool:
    """By the class itself (``name``), or by the protocol that it follows."""
    if f"``{name}``" in (kind.__doc__ or ""):
        return True
    return issubclass(kind, penstock.Clock) and bool(inspect.getdoc(getattr(penstock.Clock, name)))


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_every_module_says_what_it_holds(path: Path) -> None:
    tree = ast.parse(path.read_text())
    # The version is read by the build, which wants nothing but an assignment there.
    assert ast.get_docstring(tree) or path.name == "_version.py"


def test_init_only_re_exports() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    kinds = {type(node) for node in tree.body[1:]}
    # The condition is for type checkers, which cannot see what is imported lazily.
    assert kinds == {ast.ImportFrom, ast.Assign, ast.If}


def test_importing_starts_no_thread_and_needs_no_other_package() -> None:
    code = (
        f"import sys, threading; sys.path.insert(0, {str(SOURCE.parent)!r}); import penstock;"
        "penstock.Limiter('5/minute').hit('k');"
        "assert threading.active_count() == 1"
    )
    # -S: without site-packages.
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_errors_are_one_tree() -> None:
    errors = importlib.import_module("penstock.errors")
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    ours = [kind for kind in kinds if kind.__module__ == "penstock.errors"]
    assert all(issubclass(kind, penstock.PenstockError) for kind in ours)
    assert {kind.__name__ for kind in ours} <= set(NAMES)
    drawn = errors.__doc__ or ""
    assert all(kind.__name__ in drawn for kind in ours), "the tree in the docstring is whole"
