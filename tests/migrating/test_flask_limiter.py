"""The page for users of Flask-Limiter: its tables are complete, and both sides answer alike."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask

from migrating.checks import check_names, check_row, left_names, takes_environment
from migrating.tables import Row, names_of, programs, rows, run
from migrating.web import flask_statuses

flask_limiter = pytest.importorskip("flask_limiter")
constants = pytest.importorskip("flask_limiter.constants")

PAGE = "coming-from-flask-limiter"
ROWS = rows(PAGE)
COMPARED = [
    row
    for row in ROWS
    if row.section in ("Decorators", "Limiter")
    and row.ours
    and (row.ours[-1].startswith("@") or "app=app" in row.theirs[0])
]

pytestmark = pytest.mark.filterwarnings("ignore:Using the in-memory storage:UserWarning")


def test_the_quick_starts_answer_alike() -> None:
    steps = ["/slow"] * 3 + ["/medium"] * 3 + ["/fast"] * 55 + ["/ping"] * 60

    def statuses(fence: str) -> list[int]:
        # An hour for a second: a slow machine answers the same
        source = programs(PAGE, fence).replace("1/second", "1/hour")
        names: dict[str, Any] = {"__name__": "__docs__"}
        run(source, names)
        client = names["app"].test_client()
        return [client.get(path).status_code for path in steps]

    expected = [200, 429, 429] * 2 + [200] * 50 + [429] * 5 + [200] * 60
    assert statuses("py") == expected
    assert statuses("python") == expected


@pytest.mark.parametrize("row", [row for row in ROWS if row.section != "Settings"], ids=str)
def test_both_sides_of_a_row_run(row: Row) -> None:
    sides = []
    for fence in ("py", "python"):
        names = names_of(PAGE, fence)
        names["app"], names["blueprint"] = Flask("app"), Blueprint("shop", "shop")
        sides.append(names)
    with sides[0]["app"].test_request_context(headers={"x-tenant": "x"}):
        check_row(row, sides[0], "def view(): ...", sides[1], "def view(): ...")


@pytest.mark.parametrize("row", COMPARED, ids=str)
def test_both_sides_of_a_row_answer_alike(row: Row) -> None:
    theirs = names_of(PAGE, "py")

    def attach(app: Flask, names: dict[str, Any]) -> None:
        if "app=app" not in row.theirs[0]:
            names["limiter"] = names["Limiter"](names["get_remote_address"], app=app)

    expected = flask_statuses(row.theirs, theirs, attach)
    statuses = flask_statuses(row.ours, names_of(PAGE, "python"), lambda app, names: None)
    assert (statuses == expected) is not row.differs


@pytest.mark.parametrize("row", rows(PAGE, "Settings"), ids=str)
def test_a_setting_exists_on_both_sides(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(row.theirs) <= set(vars(constants.ConfigVars).values())
    takes_environment(row, tmp_path, monkeypatch)


def test_nothing_of_flask_limiter_is_left_out() -> None:
    limiter = flask_limiter.Limiter
    config = vars(constants.ConfigVars)
    wanted = {
        *flask_limiter.__all__,
        *(name for name in vars(limiter) if not name.startswith("_")),
        *inspect.signature(limiter).parameters,
        *inspect.signature(limiter.limit).parameters,
        *inspect.signature(limiter.shared_limit).parameters,
        *inspect.signature(limiter.exempt).parameters,
        *(name for key, name in config.items() if not key.startswith("_")),
    } - {"self", "obj"}
    check_names(wanted, left_names(ROWS))
