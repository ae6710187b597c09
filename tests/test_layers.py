"""Imports point one way: a room may use those below it, never those above.

The order, from bottom to top, is `ORDER`. What is imported only for a type
checker does not count: it is never there when the program runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent
ORDER = [
    {"errors"},
    {"durations", "limit_text", "limit"},
    {"clock", "keys"},
    {"decision", "events"},
    {"numbers"},
    {"circuit"},
    {"algorithms"},
    {"stores"},
    {"flows"},
    {"line", "flow", "drivers", "guard", "request", "reservation", "undecided"},
    {"limiter"},
    {"async_limiter"},
    {"breaker"},
    {"concurrency"},
    {"adaptive"},
    {"rules"},
    {"gate"},
    {"integrations"},
    {"client"},
    {"metrics"},
    {"service"},
    {"wires"},
    {"admin"},
    {"running"},
    {"proxy"},
    {"loadgen"},
    {"testing"},
    {"cli", "__main__"},
]
FLOOR = {room: floor for floor, rooms in enumerate(ORDER) for room in rooms}
FOR_ANYONE = {"_mode", "_version", "_no_cython"}
FILES = [
    path
    for path in sorted(SOURCE.rglob("*"))
    if path.suffix in (".py", ".pyx", ".pxd") and path != SOURCE / "__init__.py"
]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].partition(".")[0]


def imports(path: Path) -> Iterator[str]:
    """The rooms that a file imports from."""
    if path.suffix == ".py":
        package = ["penstock", *path.relative_to(SOURCE).parts[:-1]]
        names = names_in(ast.parse(path.read_text()), package)
    else:
        names = cython_names(path.read_text())
    for name in names:
        if name.startswith("penstock."):
            yield name.split(".")[1]
        elif name == "penstock":
            yield "__init__"


def names_in(tree: ast.AST, package: list[str]) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and is_for_type_checkers(node.test):
            for other in node.orelse:
                yield from names_in(ast.Module([other], []), package)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            if base == "penstock":  # from penstock import limit_text
                yield from (f"penstock.{alias.name}" for alias in node.names)
            else:
                yield base
        else:
            yield from names_in(node, package)


def is_for_type_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def cython_names(text: str) -> Iterator[str]:
    for base, names in re.findall(r"^\s*from\s+([\w.]+)\s+c?import\s+([\w, ]+)", text, re.M):
        if base == "penstock":
            yield from (f"penstock.{name.strip()}" for name in names.split(","))
        else:
            yield base
    yield from re.findall(r"^\s*c?import\s+([\w.]+)", text, re.M)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    if room in FOR_ANYONE:
        assert set(imports(path)) <= FOR_ANYONE, "what anyone may import imports nobody"
        return
    assert room in FLOOR, f"{room} is new: say in ORDER where it belongs"
    wrong = {
        other
        for other in set(imports(path)) - FOR_ANYONE
        if other not in FLOOR or FLOOR[other] > FLOOR[room]
    }
    assert wrong == set(), f"{room} must not import {', '.join(sorted(wrong))}"


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in FILES} - FOR_ANYONE == set(FLOOR)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import penstock.limiter", {"penstock.limiter"}),
        ("from penstock.limiter import Limiter", {"penstock.limiter"}),
        ("from penstock import limiter, clock", {"penstock.limiter", "penstock.clock"}),
        ("from . import clock", {"penstock.stores"}),
        ("from ..limiter import Limiter", {"penstock.limiter"}),
        ("from .. import limiter", {"penstock.limiter"}),
        ("def f():\n    import penstock.cli", {"penstock.cli"}),
        ("try:\n    import penstock.cli\nexcept ImportError:\n    pass", {"penstock.cli"}),
        ("if TYPE_CHECKING:\n    import penstock.cli\nelse:\n    import penstock.clock",
         {"penstock.clock"}),
        ("if COMPILED and not TYPE_CHECKING:\n    import penstock.cli", {"penstock.cli"}),
    ],
)  # fmt: skip
def test_the_walk_sees_every_kind_of_import(code: str, found: set[str]) -> None:
    assert set(names_in(ast.parse(code), ["penstock", "stores"])) == found


def test_the_walk_sees_cython_imports() -> None:
    code = "cimport cython\nfrom penstock.limiter cimport Limiter\n    from penstock.cli import x\n"
    assert set(cython_names(code)) == {"cython", "penstock.limiter", "penstock.cli"}
