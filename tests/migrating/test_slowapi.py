"""The page for users of slowapi: its tables are complete, and both sides answer alike."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from migrating.checks import check_names, check_row, left_names, takes_environment
from migrating.tables import NOTHING, Row, names_of, rows
from migrating.web import fastapi_statuses

slowapi = pytest.importorskip("slowapi")

PAGE = "coming-from-slowapi"
ROWS = rows(PAGE)
COMPARED = [
    row
    for row in ROWS
    if row.section in ("Decorators", "Limiter")
    and row.ours
    and (row.ours[-1].startswith("@") or "add_middleware" in row.ours[-1])
    and "redis:" not in row.text
]


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    return names_of(PAGE, "py")


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    return names_of(PAGE, "python")


def test_the_quick_starts_answer_alike(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    steps = ["/home"] * 7 + ["/mars"] * 7
    with TestClient(theirs["app"]) as a, TestClient(ours["app"]) as b:
        expected = [a.get(path).status_code for path in steps]
        assert expected == ([200] * 5 + [429] * 2) * 2
        assert [b.get(path).status_code for path in steps] == expected


def test_limits_for_all_routes_are_replaced_alike(
    theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    steps = ["/list"] * 7 + ["/upload"] * 7 + ["/live"] * 7
    with TestClient(theirs["shop"]) as a, TestClient(ours["shop"]) as b:
        expected = [a.get(path).status_code for path in steps]
        assert [expected.count(429), expected[7:].count(429), expected[14:].count(429)] == [6, 2, 0]
        assert [b.get(path).status_code for path in steps] == expected


@pytest.mark.parametrize("row", [row for row in ROWS if row.section != "Settings"], ids=str)
def test_both_sides_of_a_row_run(row: Row, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    theirs, ours = {**theirs, "app": FastAPI()}, {**ours, "app": FastAPI()}
    check_row(row, theirs, "def view(request: Request): ...", ours, "def view(): ...")


def _wire_slowapi(app: FastAPI, value: Any, theirs: dict[str, Any]) -> None:
    app.state.limiter = value if isinstance(value, slowapi.Limiter) else theirs["limiter"]
    app.add_exception_handler(theirs["RateLimitExceeded"], theirs["_rate_limit_exceeded_handler"])
    app.add_middleware(theirs["SlowAPIMiddleware"])


@pytest.mark.parametrize("row", COMPARED, ids=str)
def test_both_sides_of_a_row_answer_alike(row: Row, ours: dict[str, Any]) -> None:
    theirs = names_of(PAGE, "py")  # slowapi counts in its limiter
    expected = fastapi_statuses(
        row.theirs, theirs, "request: Request", lambda app, value: _wire_slowapi(app, value, theirs)
    )
    statuses = fastapi_statuses(row.ours, ours, "", lambda app, value: None)
    assert (statuses == expected) is not row.differs


@pytest.mark.parametrize("row", rows(PAGE, "Settings"), ids=str)
def test_a_setting_exists_on_both_sides(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = vars(slowapi.extension.C).values()
    assert set(row.theirs) <= set(known)
    takes_environment(row, tmp_path, monkeypatch)


def test_nothing_of_slowapi_is_left_out() -> None:
    limiter = slowapi.Limiter
    wanted = {
        *(name for name in vars(limiter) if not name.startswith("_")),
        *inspect.signature(limiter).parameters,
        *inspect.signature(limiter.limit).parameters,
        *inspect.signature(limiter.shared_limit).parameters,
        *(name for key, name in vars(slowapi.extension.C).items() if not key.startswith("_")),
        *("SlowAPIMiddleware", "SlowAPIASGIMiddleware", "get_ipaddr", "get_remote_address"),
    } - {"self", "logger"}
    check_names(wanted, left_names(ROWS))
    assert all(row.note for row in ROWS if NOTHING in row.text)
