"""What holds for every row of every page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from migrating.tables import NOTHING, Row, as_statements, run
from penstock.integrations.asgi import PenstockMiddleware

_RULES = """
domain: web
descriptors:
  - key: remote_address
    limits: 5/minute
"""


def check_row(
    row: Row, theirs: dict[str, Any], their_function: str, ours: dict[str, Any], our_function: str
) -> None:
    """Both sides run. If there is no equivalent, the row says why."""
    assert row.theirs, row.text
    assert row.ours or (NOTHING in row.text and row.note), row.text
    run(as_statements(row.theirs, their_function), dict(theirs))
    run(as_statements(row.ours, our_function), dict(ours))


def left_names(rows: Iterable[Row]) -> set[str]:
    return {word for row in rows for span in row.theirs for word in re.findall(r"\w+", span)}


def check_names(wanted: Iterable[str], named: set[str]) -> None:
    assert sorted(set(wanted) - named) == []


def takes_environment(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables in the second column make a middleware."""
    names: dict[str, Any] = {}
    run("\n".join(row.ours), names)
    variables = {name: value for name, value in names.items() if name.startswith("PENSTOCK_")}
    assert variables or NOTHING in row.text
    (tmp_path / "rules.yaml").write_text(_RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_LIMIT", "1/minute")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if "PENSTOCK_RULES" in variables:
        monkeypatch.delenv("PENSTOCK_LIMIT")
    PenstockMiddleware(Starlette(), from_env=True)
