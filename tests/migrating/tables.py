"""Reads the migration pages: their programs, and their tables of equivalents.

A table has three columns: the other library, Penstock, and what there is to know. Every piece of
code in the first two columns runs, in this order, with the names of the page's programs: those in
``py`` blocks for the other library, those in ``python`` blocks for Penstock. A dash in the second
column means that there is no equivalent, and the third column says why.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any

HOWTO = Path(__file__).parents[2] / "docs/howto"
NOTHING = "—"
_SPAN = re.compile(r"`([^`]+)`")
_PIPE = re.compile(r"(?<!\\)\|")
_PROGRAM = re.compile(r"^```(py|python)\n(.*?)^```$", re.S | re.M)


@dataclass(frozen=True)
class Row:
    page: str
    section: str
    line: int
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    note: str
    text: str

    @property
    def differs(self) -> bool:
        return self.note.startswith("Differs:")

    def __str__(self) -> str:
        return f"line {self.line}: {' '.join(self.theirs):.60}"


def text_of(page: str) -> str:
    return (HOWTO / f"{page}.md").read_text()


def rows(page: str, section: str | None = None) -> list[Row]:
    """The rows of the tables whose second column is called Penstock."""
    found, heading, reading = [], "", False
    for line, text in enumerate(text_of(page).splitlines(), 1):
        if text.startswith("#"):
            heading = text.lstrip("# ").replace("`", "")
        if not text.startswith("|"):
            reading = False
            continue
        cells = [cell.strip() for cell in _PIPE.split(text)[1:-1]]
        if len(cells) == 3 and cells[1] == "Penstock":
            reading = True
        elif reading and not set(text) <= set("|- "):
            spans = [tuple(_SPAN.findall(cell)) for cell in cells]
            found.append(Row(page, heading, line, spans[0], spans[1], cells[2], text))
    return [row for row in found if section in (None, row.section)]


def programs(page: str, fence: str, section: str | None = None) -> str:
    """All blocks with this fence, as one program. Doctests are left to ``tests/test_docs.py``."""
    text = text_of(page)
    if section is not None:
        text = re.split(r"^## ", text.split(f"\n## {section}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    blocks = [source for kind, source in _PROGRAM.findall(text) if kind == fence]
    return "\n".join(source for source in blocks if not source.lstrip().startswith(">>>"))


def names_of(page: str, fence: str, section: str | None = None) -> dict[str, Any]:
    """What the programs of a page define. Each call runs them anew."""
    names: dict[str, Any] = {"__name__": "__docs__"}
    run(programs(page, fence, section), names)
    return names


def run(source: str, names: dict[str, Any]) -> Any:
    """Executes a program, which may `await`, and returns the value of its last expression."""
    value = None
    for code in _compiled(source):
        value = eval(code, names)
        if code.co_flags & inspect.CO_COROUTINE:
            value = asyncio.run(value)
    return value


async def run_in_loop(source: str, names: dict[str, Any]) -> Any:
    """The same in the event loop that is running."""
    value = None
    for code in _compiled(source):
        value = eval(code, names)
        if code.co_flags & inspect.CO_COROUTINE:
            value = await value
    return value


def _compiled(source: str) -> Iterator[CodeType]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    yield compile(tree, "<page>", "exec", flags, dont_inherit=True)
    if last is not None:
        expression = ast.Expression(last.value)
        yield compile(expression, "<page>", "eval", flags, dont_inherit=True)


def as_statements(spans: tuple[str, ...], function: str) -> str:
    """Decorators get a function to decorate, those that follow each other the same one."""
    lines = []
    for span, after in pairwise((*spans, "")):
        lines.append(span)
        if span.startswith("@") and not after.startswith("@"):
            lines.append(function)
    return "\n".join(lines)
