"""Paths with several readings: which there are, and what middleware makes of them."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

import flask
import pytest
from django.test import Client as DjangoClient
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from integrations.asgi.test_limit import hello, scope, statuses
from integrations.django import site as _site  # noqa: F401 - Django wants settings before all else
from integrations.serving import ask, uvicorn_server
from penstock import AsyncGate, Gate
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding.exempt import as_exempt
from penstock.integrations.deciding.paths import AmbiguousText, decoded, plain, plain_raw
from penstock.integrations.fastapi import limit as fastapi_limit
from penstock.integrations.flask import PathUnclear, Penstock
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.wsgi import PenstockWSGI

LOGIN = {"domain": "d", "descriptors": [{"key": "path", "value": "/login", "limits": "1/hour"}]}


def readings(path: str) -> set[str]:
    found = plain_raw(path)
    if not isinstance(found, AmbiguousText):
        return {found}
    assert not found.problem, found.problem
    return {str(found), *found.others}


# The rule itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("/", "/"), ("/a/b/", "/a/b/"), ("/a%20b", "/a b"), ("/%6Cogin", "/login"),
        ("/%6cogin", "/login"), ("/%C3%A9", "/é"), ("/é".encode().decode("latin-1"), "/é"),
        ("/.well-known/x", "/.well-known/x"), ("/...", "/..."), ("/a..b", "/a..b"),
        ("/..a", "/..a"), ("/a%25", "/a%"), ("/a%2520", "/a%20"), ("/Login", "/Login"),
        ("*", "*"), ("/a+b", "/a+b"), ("/%E9", "/\ufffd"),
    ],
)  # fmt: skip
def test_plain_paths_have_one_reading(raw: str, path: str) -> None:
    assert readings(raw) == {path}
    assert decoded(raw) == path


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ("//a", {"//a", "/a"}),
        ("//a//b", {"//a//b", "/a//b", "/a/b"}),
        ("/a%2Fb", {"/a%2Fb", "/a/b"}),
        ("/a%2fb", {"/a%2Fb", "/a/b"}),
        ("/a;b/c", {"/a;b/c", "/a/c"}),
        ("/a%3Bb", {"/a;b", "/a"}),
        ("/a%3Fb", {"/a?b", "/a"}),
        ("/a#b", {"/a#b", "/a"}),
        ("/a./b ", {"/a./b ", "/a/b"}),
        ("/;x/a", {"/;x/a", "//a", "/a"}),
    ],
)
def test_readings(raw: str, found: set[str]) -> None:
    assert readings(raw) == found


@pytest.mark.parametrize(
    "raw",
    [
        "", "a", "http://h/a", "/..", "/.", "/a/../b", "/a/./b", "/%2e%2e/a", "/.%2E", "/..;/a",
        "/.;a", "/..%3b/a", "/..%2fa", "/..%20/a", "/..%23", "/..%3F", "/a\\b", "/a%5Cb",
        "/a%00", "/a\x7f", "/a%0a", "/%252e", "/%252F", "/%255c", "/%2500", "/%256C", "/%25252e",
        "/%", "/%2", "/%zz", "/%u002e", "/%c0%ae", "/%C1%9C", "/%e0%80%af", "/%f0%80%80%af",
        "//" + "a" * 2048,
    ],
)  # fmt: skip
def test_paths_that_are_not_decided_on(raw: str) -> None:
    found = plain_raw(raw)
    assert isinstance(found, AmbiguousText)
    assert found.problem


@given(st.text(st.sampled_from("/.;%2fFeE5cC a?#\\x\x00é"), max_size=12))
def test_what_common_servers_make_of_a_path_is_among_its_readings(text: str) -> None:
    raw = "/" + text.encode().decode("latin-1")
    found = plain_raw(raw)
    if isinstance(found, AmbiguousText) and found.problem:
        return
    known = {str(found), *getattr(found, "others", ())}
    path = decoded(raw)
    leading = "/" + path.lstrip("/")
    merged = re.sub("//+", "/", path)
    assert {path, leading} <= known  # Starlette and Django; Werkzeug, wsgiref
    assert merged in known  # nginx, and who serves files
    without = "/".join(segment.partition(";")[0] for segment in path.split("/"))
    assert without in known  # Tomcat


@given(st.text(max_size=30))
def test_a_path_that_was_decoded_and_one_that_was_not_are_judged_alike(text: str) -> None:
    path = "/" + text.encode("utf-8", "replace").decode("utf-8")
    raw = quote(path)
    one, other = plain(path), plain_raw(raw)
    assert isinstance(one, AmbiguousText) == isinstance(other, AmbiguousText)
    assert one == other


# Exempt --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/a//b", "/a/../b", "/a%62", "/a;b", "/a\\b", "//*"])
def test_an_exempt_path_is_written_plainly(path: str) -> None:
    with pytest.raises(ValueError, match="written decoded, and without"):
        as_exempt([path])


@pytest.mark.parametrize("path", ["/favicon.*", "/*", "/", "/a b", "/é/*", "/.well-known/*"])
def test_exempt_paths_that_are_plain(path: str) -> None:
    assert as_exempt([path]) is not None


async def test_a_path_is_exempt_if_all_its_readings_are() -> None:
    app = PenstockMiddleware(hello, limit="1/hour", exempt=["/static/*", "/health"])
    for path, last in [
        ("/static//a", 200), ("/static/a;b", 200), ("/static/a#b", 200), ("/health;b", 429),
        ("/health ", 429), ("/static;x/a", 429), ("/static/%2e%2e/a", 429),
    ]:  # fmt: skip
        found = await statuses(app, scope(path), scope(path))
        assert found == [200, last] or (found == [429, 429] and last == 429), path


# Middleware ----------------------------------------------------------------------------------

ROUND_ABOUT = [
    "//login",
    "///login",
    "/login;x",
    "/./login",
    "/x/../login",
    "/login%23",
    "/%2Flogin",
    "/%2e/login",
    "/login%2e",
]


def check(get: Any) -> None:
    """That ``/login`` is served once, and no other spelling of it at all."""
    assert [get("/login"), get("/login"), get("/%6Cogin")] == [200, 429, 429]
    for path in ROUND_ABOUT:
        assert get(path) in (400, 404), path
    assert get("/other/https://example.com/%C3%A9") == 200


def flask_app() -> flask.Flask:
    app = flask.Flask("site")
    app.add_url_rule("/login", view_func=lambda: "in")
    app.add_url_rule("/other/<path:rest>", "other", lambda rest: rest)
    return app


def test_flask() -> None:
    """Its router takes ``//login`` for ``/login``."""
    app = flask_app()
    app.url_map.merge_slashes = False
    Penstock(app, gate=Gate.from_rules(LOGIN))
    client = app.test_client()

    def get(path: str) -> int:
        environ = {"PATH_INFO": unquote(path).encode().decode("latin-1")}
        return client.get("/", environ_overrides=environ).status_code

    check(get)


def test_a_flask_handler_for_it() -> None:
    app = flask_app()
    app.add_url_rule(
        "/all", view_func=flask_limit(gate=Gate.from_rules(LOGIN))(lambda: "x"), endpoint="all"
    )
    Penstock(app, gate=Gate.from_rules(LOGIN))
    app.register_error_handler(PathUnclear, lambda error: (error.answer.body, 418))
    answer = app.test_client().get("/", environ_overrides={"PATH_INFO": "//login"})
    assert (answer.status_code, "can be read as" in answer.text) == (418, True)


def test_wsgi() -> None:
    app = flask_app()
    app.url_map.merge_slashes = False
    served = flask.Flask("front")
    served.wsgi_app = PenstockWSGI(app.wsgi_app, gate=Gate.from_rules(LOGIN))  # type: ignore[method-assign]
    client = served.test_client()

    def get(path: str) -> int:
        environ = {"PATH_INFO": unquote(path).encode().decode("latin-1")}
        return client.get("/", environ_overrides=environ).status_code

    check(get)


def starlette_app() -> Starlette:
    async def view(request: Any) -> PlainTextResponse:
        return PlainTextResponse("in")

    return Starlette(routes=[Route("/login", view), Route("/other/{rest:path}", view)])


def test_asgi_on_a_real_server() -> None:
    app = starlette_app()
    app.add_middleware(PenstockMiddleware, gate=AsyncGate.from_rules(LOGIN))
    with uvicorn_server(app) as port:
        check(lambda path: ask(port, path).status)


def test_fastapi() -> None:
    from fastapi import Depends, FastAPI

    gate = AsyncGate.from_rules(LOGIN)
    app = FastAPI(dependencies=[Depends(fastapi_limit(gate=gate))])
    app.get("/login")(lambda: "in")
    app.get("/other/{rest:path}")(lambda rest: rest)
    app.get("//login")(lambda: "in by another way")
    with uvicorn_server(app) as port:
        check(lambda path: ask(port, path).status)


def django_login(request: Any, **rest: str) -> Any:
    from django.http import HttpResponse

    return HttpResponse("in")


def test_django() -> None:
    import types

    from django.urls import path as route

    urls = types.ModuleType("urls")
    urls.urlpatterns = [  # type: ignore[attr-defined]
        route("login", django_login), route("/login", django_login),
        route("other/<path:rest>", django_login),
    ]  # fmt: skip
    with override_settings(
        ROOT_URLCONF=urls,
        MIDDLEWARE=["penstock.integrations.django.PenstockMiddleware"],
        PENSTOCK={"gate": Gate.from_rules(LOGIN)},
    ):
        client = DjangoClient()

        def get(path: str) -> int:
            info = unquote(path).encode().decode("latin-1")
            return client.generic("GET", "/", PATH_INFO=info).status_code

        check(get)


async def test_static_files_are_counted_under_every_name_of_theirs(tmp_path: Any) -> None:
    """Who serves files resolves ``//`` and ``/../`` itself, after the middleware."""
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    (tmp_path / "big.zip").write_text("big")
    (tmp_path / "x").mkdir()
    rules = {
        "domain": "d",
        "descriptors": [{"key": "path", "value": "/static/big.zip", "limits": "1/hour"}],
    }
    app = Starlette(routes=[Mount("/static", StaticFiles(directory=tmp_path))])
    app.add_middleware(PenstockMiddleware, gate=AsyncGate.from_rules(rules))
    with uvicorn_server(app) as port:
        assert ask(port, "/static/big.zip").status == 200
        for path in ("/static/big.zip", "/static//big.zip", "/static/x/../big.zip"):
            assert ask(port, path).status in (400, 429), path


def test_a_dimension_of_ones_own_decides_for_itself() -> None:
    app = starlette_app()
    gate = AsyncGate.from_rules(LOGIN)
    dimensions = {"path": lambda request: request.path.replace("//", "/")}
    app.add_middleware(PenstockMiddleware, gate=gate, dimensions=dimensions)
    client = TestClient(app)
    found = [client.get(f"http://testserver{path}").status_code for path in ("/login", "//login")]
    assert found == [200, 429]


def test_rules_that_are_switched_off_refuse_no_path() -> None:
    gate = AsyncGate.from_rules(LOGIN)
    app = starlette_app()
    app.add_middleware(PenstockMiddleware, gate=gate)
    with uvicorn_server(app) as port:
        assert ask(port, "//login").status == 400
        for mode in ("shadow", "off"):
            gate.switches.mode(mode)
            assert ask(port, "//login").status == 404


async def test_a_path_on_an_allow_list_is_allowed_in_that_reading_alone() -> None:
    rules = {
        "domain": "d",
        "allow": {"path": ["/health"]},
        "descriptors": [{"key": "remote_address", "limits": "1/hour"}],
    }
    app = PenstockMiddleware(hello, gate=AsyncGate.from_rules(rules))
    asked = [scope(path) for path in ("/health", "/health", "//health", "/health;x", "/a", "/a")]
    assert await statuses(app, *asked) == [200, 200, 400, 400, 200, 429]
