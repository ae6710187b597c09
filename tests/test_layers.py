"""Imports point one way: a room may use those below it, never those above.

The order is in `layers.py`. Between rooms, what is imported only for a type checker does not
count: it is never there when the program runs. Inside a room it does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from layers import FOR_ANYONE, INSIDE, ORDER, ROOT, map_of_rooms, with_map

SOURCE = Path(penstock.__file__).parent
FLOOR = {room: floor for floor, (rooms, _) in enumerate(ORDER) for room in rooms}
FILES = [
    path
    for path in sorted(SOURCE.rglob("*"))
    if path.suffix in (".py", ".pyx", ".pxd") and path != SOURCE / "__init__.py"
]


def name_of(path: Path) -> str:
    """A file's module, without `penstock`: ``stores.base``, ``stores.__init__``."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def room_of(path: Path) -> str:
    return name_of(path).split(".")[0]


def imports(path: Path, *, for_types: bool) -> Iterator[str]:
    """What a file imports from `penstock`: ``stores.base.Store``, or ``__init__``."""
    if path.suffix == ".py":
        package = ["penstock", *path.relative_to(SOURCE).parts[:-1]]
        names = names_in(ast.parse(path.read_text()), package, for_types=for_types)
    else:
        names = cython_names(path.read_text())
    for name in names:
        if name == "penstock":
            yield "__init__"
        elif name.startswith("penstock."):
            yield name.removeprefix("penstock.")


def names_in(tree: ast.AST, package: list[str], *, for_types: bool) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and is_for_type_checkers(node.test) and not for_types:
            for other in node.orelse:
                yield from names_in(ast.Module([other], []), package, for_types=for_types)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        else:
            yield from names_in(node, package, for_types=for_types)


def is_for_type_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def cython_names(text: str) -> Iterator[str]:
    for base, names in re.findall(
        r"^\s*from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^\n]+)", text, re.M
    ):
        for name in names.strip("()").split(","):
            if name.strip():
                yield f"{base}.{name.split()[0]}"  # without "as"
    yield from re.findall(r"^\s*c?import\s+([\w.]+)", text, re.M)


def part_of(name: str, room: str) -> str | None:
    """The part of a room in which a name is, if it is in that room."""
    inside = name.removeprefix(f"{room}.")
    return inside.split(".")[0] if inside != name else None


def steps_up(name: str, imported: set[str], room: str, layers: list[set[str]]) -> set[str]:
    """The parts of a room that one of its modules imports although it must not."""
    layer = {part: number for number, parts in enumerate(layers) for part in parts}
    own = part_of(name, room)
    assert own is not None
    if own == "__init__":
        return set()
    assert own in layer, f"{name} is new: say in INSIDE where it belongs"
    others = {part for other in imported if (part := part_of(other, room)) is not None} - {own}
    # What is no part of the room is a name that its `__init__` exports.
    return {part for part in others if part not in layer or layer[part] >= layer[own]}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    others = {name.split(".")[0] for name in imports(path, for_types=False)}
    if room in FOR_ANYONE:
        assert others <= FOR_ANYONE, "what anyone may import imports nobody"
        return
    assert room in FLOOR, f"{room} is new: say in ORDER where it belongs"
    wrong = {
        other for other in others - FOR_ANYONE if other not in FLOOR or FLOOR[other] > FLOOR[room]
    }
    assert wrong == set(), f"{room} must not import {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("room", INSIDE)
def test_imports_inside_a_room_point_down(room: str) -> None:
    for path in FILES:
        name = name_of(path)
        if part_of(name, room) is not None:
            imported = set(imports(path, for_types=True))
            wrong = steps_up(name, imported, room, INSIDE[room])
            assert wrong == set(), f"{name} must not import {', '.join(sorted(wrong))}"


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in FILES} - FOR_ANYONE == set(FLOOR)


@pytest.mark.parametrize("room", INSIDE)
def test_every_part_of_a_room_exists_and_is_named_once(room: str) -> None:
    parts = [part for layer in INSIDE[room] for part in layer]
    existing = {part for path in FILES if (part := part_of(name_of(path), room)) is not None}
    assert sorted(parts) == sorted(existing - {"__init__"})


def test_the_map_in_contributing_is_up_to_date() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert map_of_rooms() in page, "run python tests/layers.py"
    assert with_map(page) == page


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import penstock.limiter", {"penstock.limiter"}),
        ("from penstock.limiter import Limiter", {"penstock.limiter.Limiter"}),
        ("from penstock import limiter, clock", {"penstock.limiter", "penstock.clock"}),
        ("from . import clock", {"penstock.stores.clock"}),
        ("from ..limiter import Limiter", {"penstock.limiter.Limiter"}),
        ("from .. import limiter", {"penstock.limiter"}),
        ("def f():\n    import penstock.cli", {"penstock.cli"}),
        ("try:\n    import penstock.cli\nexcept ImportError:\n    pass", {"penstock.cli"}),
        ("if TYPE_CHECKING:\n    import penstock.cli\nelse:\n    import penstock.clock",
         {"penstock.clock"}),
        ("if COMPILED and not TYPE_CHECKING:\n    import penstock.cli", {"penstock.cli"}),
    ],
)  # fmt: skip
def test_the_walk_sees_every_kind_of_import(code: str, names: set[str]) -> None:
    assert set(names_in(ast.parse(code), ["penstock", "stores"], for_types=False)) == names


def test_the_walk_sees_imports_for_types_where_they_count() -> None:
    code = "if TYPE_CHECKING:\n    import penstock.cli\nelse:\n    import penstock.clock"
    names = set(names_in(ast.parse(code), ["penstock"], for_types=True))
    assert names == {"penstock.cli", "penstock.clock"}


def test_the_walk_sees_cython_imports() -> None:
    code = (
        "cimport cython\n"
        "from penstock.limiter cimport Limiter as L\n"
        "    from penstock.cli import x, y\n"
        "from penstock.clock import (\n    a,\n    b,\n)\n"
    )
    assert set(cython_names(code)) == {
        "cython", "penstock.limiter.Limiter", "penstock.cli.x", "penstock.cli.y",
        "penstock.clock.a", "penstock.clock.b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("imported", "wrong"),
    [
        ({"stores.base.Store", "clock.Clock", "stores_of_mine.x"}, set()),
        ({"stores.redis.store.RedisStore"}, {"redis"}),
        ({"stores.shared.SharedMemoryStore"}, {"shared"}),  # neighbours are independent
        ({"stores.MemoryStore"}, {"MemoryStore"}),  # exports are for other rooms
    ],
)
def test_a_step_up_inside_a_room_is_seen(imported: set[str], wrong: set[str]) -> None:
    layers = [{"base"}, {"memory", "shared"}, {"redis"}]
    assert steps_up("stores.memory", imported, "stores", layers) == wrong
