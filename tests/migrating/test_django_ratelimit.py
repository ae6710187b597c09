"""The page for users of django-ratelimit."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.test import RequestFactory, override_settings

from integrations.django import site  # noqa: F401 - configures Django
from migrating.checks import check_names, check_row, left_names
from migrating.tables import NOTHING, Row, names_of, rows, run
from migrating.web import STEPS, views
from penstock.integrations.django import PenstockMiddleware

core = pytest.importorskip("django_ratelimit.core")
exceptions = pytest.importorskip("django_ratelimit.exceptions")

PAGE = "coming-from-django-ratelimit"
ROWS = [row for row in rows(PAGE) if row.section != "django-smart-ratelimit"]
SMART = rows(PAGE, "django-smart-ratelimit")
VIEW = "def view(request): ..."


@pytest.fixture(autouse=True)
def _one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """django-ratelimit's windows end at any second: stop its clock."""
    monkeypatch.setattr(core, "time", SimpleNamespace(time=lambda: 1_000_000_000))
    cache.clear()


def _request(method: str, path: str, tenant: str) -> Any:
    request = RequestFactory().generic(method, path, headers={"x-tenant": tenant})
    request.user = SimpleNamespace(pk=None, is_authenticated=False)
    return request


def _statuses(spans: tuple[str, ...], fence: str) -> list[int]:
    names = names_of(PAGE, fence)
    views(spans, names, "request", "HttpResponse('done')")
    statuses = []
    for method, path, tenant in STEPS:
        try:
            response = names[path[1:]](_request(method, path, tenant))
            statuses.append(response.status_code)
        except exceptions.Ratelimited:
            statuses.append(429)  # it is a 403 there
    return statuses


def test_the_first_programs_answer_alike() -> None:
    expected = [200] * 5 + [429] * 2
    ours = names_of(PAGE, "python")["search"]
    assert [ours(_request("GET", "/", "x")).status_code for _ in range(7)] == expected
    theirs = names_of(PAGE, "py")["search"]
    assert [theirs(_request("GET", "/", "x")).status_code for _ in range(5)] == [200] * 5
    with pytest.raises(names_of(PAGE, "py")["Ratelimited"]):
        theirs(_request("GET", "/", "x"))


@pytest.mark.parametrize("row", [row for row in ROWS if row.section != "Settings"], ids=str)
def test_both_sides_of_a_row_run(row: Row) -> None:
    theirs = {**names_of(PAGE, "py"), "request": _request("GET", "/", "x")}
    check_row(row, theirs, VIEW, names_of(PAGE, "python"), VIEW)


@pytest.mark.parametrize("row", [row for row in ROWS if row.section == "Decorator"], ids=str)
def test_both_sides_of_a_row_answer_alike(row: Row) -> None:
    alike = _statuses(row.theirs, "py") == _statuses(row.ours, "python")
    assert alike is not row.differs


@pytest.mark.parametrize("row", [*rows(PAGE, "Settings"), *SMART], ids=str)
def test_a_setting_is_taken(row: Row) -> None:
    assert row.ours or (NOTHING in row.text and row.note)
    names = names_of(PAGE, "python")
    if row.ours and row.ours[0].startswith("@"):
        views(row.ours, names, "request", "HttpResponse('done')")
    else:
        run("\n".join(row.ours), names)
    with override_settings(PENSTOCK={"limit": "5/m", **names.get("PENSTOCK", {})}):
        PenstockMiddleware(lambda request: None)


def test_nothing_of_django_ratelimit_is_left_out() -> None:
    source = "".join(file.read_text() for file in Path(core.__file__).parent.glob("[!t]*.py"))
    decorators = pytest.importorskip("django_ratelimit.decorators")
    wanted = {
        *re.findall(r"RATELIMIT_\w+", source),
        *("ratelimit", "is_ratelimited", "get_usage", "Ratelimited", "RatelimitMiddleware"),
        *("ALL", "UNSAFE", *core._SIMPLE_KEYS, *core._ACCESSOR_KEYS),
        *inspect.signature(decorators.ratelimit).parameters,
        *inspect.signature(core.is_ratelimited).parameters,
        *inspect.signature(core.get_usage).parameters,
    }
    check_names(wanted, left_names(ROWS))
