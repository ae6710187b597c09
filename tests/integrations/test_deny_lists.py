"""Deny lists apply to all requests, also to those that are not counted."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import flask
import pytest
from django.http import HttpResponse
from django.test import Client as DjangoClient
from django.test import override_settings
from django.urls import path as route
from fastapi import Depends, FastAPI
from starlette.testclient import TestClient

from integrations.asgi.test_limit import hello
from integrations.django import site as _site  # noqa: F401 - Django wants settings before all else
from penstock import AsyncGate, Gate
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.fastapi import limit as fastapi_limit
from penstock.integrations.flask import Penstock
from penstock.integrations.wsgi import PenstockWSGI

PREFLIGHT = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
# The method, the path, the headers and the body; to a status.
Ask = Callable[..., int]


def rules(**more: Any) -> dict[str, Any]:
    return {"domain": "d", "descriptors": [{"key": "host", "limits": "1/hour", **more}]}


def everybody(key: str = "host") -> dict[str, Any]:
    return {**rules(), "deny": {key: ["testserver"]}}


def by_client(client: Any) -> Ask:
    def ask(method: str, path: str = "/", body: bytes = b"", **headers: str) -> int:
        named = {"host": "testserver", **headers}
        answer = client.request(method, path, headers=named, content=body or None)
        status: int = answer.status_code
        return status

    return ask


def asgi(rules: Any, **options: Any) -> Ask:
    return by_client(
        TestClient(PenstockMiddleware(hello, gate=AsyncGate.from_rules(rules), **options))
    )


def fastapi(rules: Any, **options: Any) -> Ask:
    limited = fastapi_limit(gate=AsyncGate.from_rules(rules), **options)
    app = FastAPI(dependencies=[Depends(limited)])
    app.api_route("/{rest:path}", methods=["GET", "HEAD", "POST", "OPTIONS"])(lambda rest: rest)
    return by_client(TestClient(app))


def by_werkzeug(app: flask.Flask) -> Ask:
    client = app.test_client()

    def ask(method: str, path: str = "/", body: bytes = b"", **headers: str) -> int:
        base = "http://testserver"
        return client.open(path, base, method=method, headers=headers, data=body).status_code

    return ask


def flask_site() -> flask.Flask:
    app = flask.Flask("site")
    for path in ("/", "/health"):
        app.add_url_rule(
            path, path, lambda: "in", methods=["GET", "POST", "OPTIONS"],
            provide_automatic_options=False,
        )  # fmt: skip
    return app


def by_flask(rules: Any, **options: Any) -> Ask:
    app = flask_site()
    Penstock(app, gate=Gate.from_rules(rules), **options)
    return by_werkzeug(app)


def wsgi(rules: Any, **options: Any) -> Ask:
    app = flask_site()
    app.wsgi_app = PenstockWSGI(app.wsgi_app, gate=Gate.from_rules(rules), **options)  # type: ignore[method-assign]
    return by_werkzeug(app)


def django(rules: Any, **options: Any) -> Ask:
    urls = types.ModuleType("urls")
    views = [route(path, lambda request: HttpResponse("in")) for path in ("", "health")]
    urls.urlpatterns = views  # type: ignore[attr-defined]
    settings = override_settings(
        ROOT_URLCONF=urls,
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=["penstock.integrations.django.PenstockMiddleware"],
        PENSTOCK={"gate": Gate.from_rules(rules), **options},
    )
    client = DjangoClient()
    with settings:
        client.get("/health")  # the middleware is made now

    def ask(method: str, path: str = "/", body: bytes = b"", **headers: str) -> int:
        with override_settings(ROOT_URLCONF=urls, ALLOWED_HOSTS=["*"]):
            return client.generic(
                method, path, body, headers={"host": "testserver", **headers}
            ).status_code

    return ask


EACH = pytest.mark.parametrize("made", [asgi, wsgi, by_flask, django, fastapi])


@EACH
def test_a_preflight_is_not_counted(made: Any) -> None:
    ask = made(rules(), exempt=["/health"])
    assert [ask("OPTIONS", **PREFLIGHT) for _ in range(3)] == [200] * 3
    assert [ask("GET") for _ in range(2)] == [200, 429]
    assert ask("OPTIONS", **PREFLIGHT) == 200, "not even if nothing is left"


@EACH
@pytest.mark.parametrize("denied", [everybody(), rules(deny=["testserver"])])
def test_but_who_is_denied_is_denied(made: Any, denied: Any) -> None:
    ask = made(denied, exempt=["/health"])
    assert [ask("OPTIONS", **PREFLIGHT), ask("GET", "/health"), ask("GET")] == [403] * 3


@EACH
def test_a_function_exempts_nobody_from_a_deny_list(made: Any) -> None:
    ask = made(everybody(), exempt=lambda request: request.method != "POST")
    assert [ask("GET"), ask("HEAD"), ask("POST")] == [403] * 3


@EACH
def test_in_shadow_nobody_is_refused(made: Any) -> None:
    ask = made(everybody(), exempt=["/health"], shadow=True)
    assert [ask("OPTIONS", **PREFLIGHT), ask("GET", "/health"), ask("GET")] == [200] * 3


@EACH
def test_preflights_can_be_counted(made: Any) -> None:
    ask = made(rules(), exempt=["/health"], count_preflight=True)
    assert [ask("OPTIONS", **PREFLIGHT) for _ in range(2)] == [200, 429]


@EACH
def test_a_preflight_with_a_body_is_none(made: Any) -> None:
    ask = made(rules(), exempt=["/health"])
    assert [ask("OPTIONS", body=b"much to do", **PREFLIGHT) for _ in range(2)] == [200, 429]


async def test_what_is_not_counted_asks_nothing_where_there_is_no_deny_list() -> None:
    asked: list[str] = []

    def user(request: Any) -> str:
        asked.append(request.path)
        return "ann"

    gate = AsyncGate.from_rules(
        {"domain": "d", "descriptors": [{"key": "user", "limits": "9/day"}]}
    )
    app = PenstockMiddleware(hello, gate=gate, dimensions={"user": user}, exempt=["/health"])
    client = TestClient(app)
    assert [client.get("/health").status_code, asked] == [200, []]
    gate.switches.deny("user", "bob")
    assert [client.get("/health").status_code, asked] == [200, ["/health"]]
    gate.switches.deny("user", "ann")
    assert client.get("/health").status_code == 403


def test_the_operator_s_deny_list_may_be_about_what_no_rule_is_about() -> None:
    gate = AsyncGate.from_rules(
        {"domain": "d", "descriptors": [{"key": "path", "limits": "9/day"}]}
    )
    client = TestClient(PenstockMiddleware(hello, gate=gate))
    gate.switches.deny("header:x-who", "eve")
    gate.switches.deny("nobody-knows", "eve")
    found = [client.get("/", headers={"x-who": who}).status_code for who in ("ann", "eve")]
    assert found == [200, 403]


def test_a_websocket_is_told_why() -> None:
    from starlette.websockets import WebSocketDisconnect

    client = TestClient(PenstockMiddleware(hello, gate=AsyncGate.from_rules(everybody())))
    with client.websocket_connect("/") as socket, pytest.raises(WebSocketDisconnect) as closed:
        socket.receive_text()
    assert closed.value.reason == "Forbidden"


def test_a_site_says_once_whether_preflights_count() -> None:
    app = flask_site()
    site = Penstock(app, count_preflight=True)
    app.add_url_rule(
        "/view", view_func=site.limit("1/hour")(lambda: "in"), endpoint="view",
        methods=["OPTIONS"], provide_automatic_options=False,
    )  # fmt: skip
    ask = by_werkzeug(app)
    assert [ask("OPTIONS", "/view", **PREFLIGHT) for _ in range(2)] == [200, 429]


def test_rules_that_change_are_looked_at_before_an_exempt_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = AsyncGate.from_rules(rules())
    client = TestClient(PenstockMiddleware(hello, gate=gate, exempt=["/health"]))
    assert client.get("/health").status_code == 200
    unknown = {"key": "moon", "limits": "1/hour"}
    gate.replace({**everybody(), "descriptors": [*rules()["descriptors"], unknown]})
    assert client.get("/health").status_code == 403
    assert "nobody says what 'moon' is" in caplog.text
