"""What all verbs need: the API, and how its answers are shown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import urlencode

from penstock.cli.paint import Paint

LONGEST_CELL = 80
# What the first word of a cell says, in a colour.
_RED = ("refused", "off", "down", "rejected", "closed")
_YELLOW = ("shadow", "needs", "behind", "listed")
_GREEN = ("allowed", "up", "on", "enforce")


class Client(Protocol):
    """The admin API of an instance, or what answers in its place."""

    def ask(self, method: str, path: str, body: Any = None) -> Any: ...

    def text(self, path: str) -> str: ...


class Asked:
    """A client, and what the command line says about its answers."""

    def __init__(self, client: Client, arguments: argparse.Namespace) -> None:
        self._client = client
        self.json: bool = arguments.json
        self.through_store = bool(arguments.control)
        self.paint = Paint(sys.stdout)

    def get(self, path: str, **query: Any) -> Any:
        return self._client.ask("GET", _with_query(path, query))

    def text(self, path: str) -> str:
        return self._client.text(path)

    def put(self, path: str, **body: Any) -> Any:
        return self._client.ask("PUT", path, _given(body))

    def post(self, path: str, **body: Any) -> Any:
        return self._client.ask("POST", path, _given(body))

    def delete(self, path: str, **query: Any) -> Any:
        return self._client.ask("DELETE", _with_query(path, query))

    @property
    def in_force(self) -> str:
        """What has become of a change."""
        return "is set for the fleet" if self.through_store else "is in force"

    def show(self, answer: Any, lines: Callable[[], Sequence[str]]) -> int:
        print(json.dumps(answer) if self.json else "\n".join(lines()))
        return 0

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
        """Columns without any content are left out."""
        if not rows:
            return ["none"]
        texts = [[*map(_cell, row[:-1]), clean(row[-1])] for row in rows]
        used = [at for at in range(len(head)) if any(row[at] for row in texts)]
        widths = {at: max(len(row[at]) for row in (head, *texts)) for at in used}
        lines = [self.paint.bold("  ".join(head[at].ljust(widths[at]) for at in used).rstrip())]
        for row in texts:
            cells = [self._coloured(row[at], widths[at]) for at in used[:-1]]
            lines.append("  ".join([*cells, self._coloured(row[used[-1]], 0)]).rstrip())
        return lines

    def _coloured(self, cell: str, width: int) -> str:
        word, text = cell.partition(" ")[0], cell.ljust(width)
        if word in _RED:
            return self.paint.red(text)
        if word in _YELLOW:
            return self.paint.yellow(text)
        return self.paint.green(text) if word in _GREEN else text


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value not in (None, "")}


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    given = _given(query)
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


# Texts -------------------------------------------------------------------------------------


def pair_of(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"a pair is KEY=VALUE, such as user=42, not {text!r:.100}")
    return key, value


def factor_of(text: str) -> float | None:
    """The number of ``x10``, ``10x`` or ``*10``; None if it is a limit."""
    if text[:1] not in ("x", "*") and text[-1:] not in ("x", "*"):
        return None
    try:
        factor = float(text.strip("x*"))
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise ValueError(
            "a limit is like 100/minute, or x10 for ten times the limits of the rules, not"
            f" {text!r:.50}"
        )
    return factor


def seconds(number: float | None) -> str:
    if number is None:
        return "never"
    for size, name, smaller, rest in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        whole, more = divmod(round(number), size)
        if whole:
            return f"{whole}{name}{more // smaller}{rest}" if more // smaller else f"{whole}{name}"
    return f"{number:.0f}s" if number >= 10 else f"{number:.1f}s"


def left(number: float | None) -> str:
    return "until it is removed" if number is None else seconds(number)


def moment(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M:%S")


def mode_text(mode: str | None) -> str:
    """As the command ``switch`` writes it."""
    return "on" if mode == "enforce" else mode or ""


def clean(cell: object) -> str:
    """Values come from requests: no control characters in a terminal."""
    return "".join(each if each.isprintable() else "?" for each in str(cell))


def _cell(cell: object) -> str:
    text = clean(cell)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 3]}..."
