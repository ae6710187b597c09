"""What the log says once: keys that are missing, and proxies that nobody declared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from flask import Flask
from starlette.testclient import TestClient
from werkzeug.test import Client

from penstock import AsyncGate, MemoryStore
from penstock.integrations import (
    Request,
    by_api_key,
    by_cookie,
    by_header,
    by_ip,
    by_region,
    by_user,
    combined,
)
from penstock.integrations.asgi import ConcurrencyMiddleware, PenstockMiddleware
from penstock.integrations.deciding import notices, proxy_notice
from penstock.integrations.fastapi import limit as fastapi_limit
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.wsgi import PenstockWSGI

PROXY = "10.0.0.5"


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_logged", set())


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def hello_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"hello"]


def ask(app: Any, peer: str | None = "203.0.113.7", **headers: str) -> int:
    """Call an ASGI application once; returns the status."""
    pairs = [(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()]
    client = None if peer is None else (peer, 1)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": pairs, "client": client}
    statuses: list[int] = []

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    asyncio.run(app(scope, None, send))
    return statuses[0]


# A key function that returns nothing -----------------------------------------------------------


def no_tenant(request: Request) -> str | None:
    return request.header("x-tenant")


def empty_tenant(request: Request) -> str | None:
    return request.header("x-tenant") or ""


async def no_tenant_later(request: Request) -> str | None:
    return request.header("x-tenant")


@pytest.mark.parametrize("key", [no_tenant, empty_tenant, no_tenant_later])
def test_without_a_key_requests_are_counted_by_address(
    key: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = PenstockMiddleware(hello, limit="1/minute", key=key)
    assert [ask(app), ask(app), ask(app, "198.51.100.1")] == [200, 429, 200]
    assert [ask(app, x_tenant="a"), ask(app, x_tenant="a")] == [200, 429]
    (text,) = logged(caplog)  # once for all of them
    assert f"test_notices.{key.__name__} returned" in text
    assert "counted by address" in text


@pytest.mark.parametrize("key", [no_tenant, empty_tenant, no_tenant_later])
def test_so_is_a_key_of_several(key: Any, caplog: pytest.LogCaptureFixture) -> None:
    app = PenstockMiddleware(hello, limit={key: "1/minute", by_ip: "3/minute; 9/day"})
    assert [ask(app), ask(app), ask(app, "198.51.100.1")] == [200, 429, 200]
    assert [ask(app, x_tenant=name) for name in ("a", "a", "b", "c")] == [200, 429, 200, 429]
    (text,) = logged(caplog)
    assert f"test_notices.{key.__name__} returned" in text


def test_each_function_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    for key in (no_tenant, empty_tenant, no_tenant):
        ask(PenstockMiddleware(hello, limit="1/minute", key=key))
    assert len(logged(caplog)) == 2


def test_part_of_a_combined_key_may_be_missing() -> None:
    app = PenstockMiddleware(hello, limit="1/minute", key=combined(by_user, no_tenant))
    assert [ask(app), ask(app), ask(app, "198.51.100.1")] == [200, 429, 200]


def test_views_in_one_store_stay_apart_without_a_key() -> None:
    app, store = Flask("shop"), MemoryStore()
    for name in ("a", "b"):
        view = flask_limit("1/minute", key=no_tenant, store=store, name=name)(lambda: "hi")
        app.add_url_rule(f"/{name}", name, view)
    statuses = [app.test_client().get(path).status_code for path in ("/a", "/b", "/a", "/b")]
    assert statuses == [200, 200, 429, 429]


@pytest.mark.parametrize(
    "options", [{"limit": "1/minute", "key": no_tenant}, {"limit": {no_tenant: "1/minute"}}]
)
def test_dependencies_in_one_store_stay_apart_without_a_key(options: Any) -> None:
    app, store = FastAPI(), MemoryStore()
    for name in ("a", "b"):
        limit = fastapi_limit(**options, store=store, name=name)
        app.add_api_route(f"/{name}", lambda: "hi", dependencies=[Depends(limit)])
    statuses = [TestClient(app).get(path).status_code for path in ("/a", "/b", "/a", "/b")]
    assert statuses == [200, 200, 429, 429]


# Costs ------------------------------------------------------------------------------------------


def test_a_request_that_costs_nothing_passes_uncounted() -> None:
    def cost(request: Request) -> int:
        return int(request.header("x-units") or 1)

    app = PenstockMiddleware(hello, limit="1/minute", cost=cost)
    assert [ask(app, x_units="0") for _ in range(3)] == [200] * 3
    assert [ask(app), ask(app), ask(app, x_units="0")] == [200, 429, 200]


def test_deny_lists_apply_to_requests_that_cost_nothing() -> None:
    rules = {"domain": "web", "deny": {"remote_address": ["203.0.113.7"]}, "descriptors": [
        {"key": "path", "limits": "1/minute"}]}  # fmt: skip
    app = PenstockMiddleware(hello, gate=AsyncGate.from_rules(rules), cost=lambda request: 0)
    assert [ask(app), ask(app, "198.51.100.1"), ask(app, "198.51.100.1")] == [403, 200, 200]


@pytest.mark.parametrize("wrong", [-1, 0.0, False, None])
def test_other_costs_are_errors(wrong: Any) -> None:
    app = PenstockMiddleware(hello, limit="1/minute", cost=lambda request: wrong)
    with pytest.raises(ValueError, match="cost is"):
        ask(app)


# Proxies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "headers", "advice"),
    [
        (PROXY, {"x_forwarded_for": "198.51.100.1"}, f"write trusted=['{PROXY}'], or its network"),
        ("127.0.0.1", {"x_forwarded_for": "1.2.3.4"}, "write trusted=['127.0.0.1'], or"),
        ("fd00::7", {"x_forwarded_for": "1.2.3.4"}, "write trusted=['fd00::7'], or"),
        (None, {"x_forwarded_for": "1.2.3.4"}, "write trusted=['unix'], or"),
        (PROXY, {"forwarded": "for=1.2.3.4"}, f"trusted=['{PROXY}'] and forwarded='forwarded', or"),
    ],
)
def test_a_proxy_that_nobody_declared_is_reported_once(
    peer: str | None, headers: dict[str, str], advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = PenstockMiddleware(hello, limit="1/minute")
    assert [ask(app, peer, **headers) for _ in range(40)] == [200] + [429] * 39
    (text,) = logged(caplog)
    assert advice in text
    ask(PenstockMiddleware(hello, limit="1/minute"), peer, **headers)
    assert len(logged(caplog)) == 1  # not for every middleware


@pytest.mark.parametrize(
    ("peer", "headers", "options"),
    [
        ("203.0.113.7", {"x_forwarded_for": "1.2.3.4"}, {}),  # a client that forges it
        ("testclient", {"x_forwarded_for": "1.2.3.4"}, {}),
        (PROXY, {}, {}),
        (PROXY, {"x_forwarded_for": "1.2.3.4"}, {"trusted": ["10.0.0.0/8"]}),
        (PROXY, {"x_forwarded_for": "1.2.3.4"}, {"trusted": ["192.0.2.1"]}),
        (PROXY, {"x_forwarded_for": "1.2.3.4"}, {"hops": 1}),
        (PROXY, {"x_forwarded_for": "1.2.3.4"}, {"key": lambda request: "all"}),
    ],
)
def test_nothing_is_reported(
    peer: str, headers: dict[str, str], options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = PenstockMiddleware(hello, limit="100/minute", **options)
    for _ in range(40):
        ask(app, peer, **headers)
    assert logged(caplog) == []


def test_a_proxy_is_seen_behind_requests_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    app = PenstockMiddleware(hello, limit="100/minute")
    for _ in range(5):
        ask(app, PROXY)  # such as health checks
    for _ in range(16):
        ask(app, PROXY, x_forwarded_for="1.2.3.4")
    assert len(logged(caplog)) == 1


def test_it_stops_looking_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proxy_notice, "LOOK_UNTIL", 32)
    trust = proxy_notice.trust_of((), 0, "x-forwarded-for")
    absent: dict[str, str] = {}
    for _ in range(33):
        assert not trust.nobody
        assert trust.client(PROXY, absent.get) == PROXY
    assert trust.nobody
    assert logged(caplog) == []


def with_rules() -> Any:
    rules = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "9/minute"}]}
    return PenstockMiddleware(hello, gate=AsyncGate.from_rules(rules))


@pytest.mark.parametrize(
    "made",
    [
        with_rules,
        lambda: PenstockMiddleware(hello, limit="9/minute", key=by_user),
        lambda: ConcurrencyMiddleware(hello, 9, key=by_ip),
    ],
)
def test_every_count_by_address_sees_it(
    made: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    ask(made(), PROXY, x_forwarded_for="1.2.3.4")
    assert len(logged(caplog)) == 1


def test_so_does_wsgi(caplog: pytest.LogCaptureFixture) -> None:
    app = PenstockWSGI(hello_wsgi, limit="9/minute")
    environ = {"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": "1.2.3.4"}
    assert Client(app).get("/", environ_overrides=environ).status_code == 200
    assert len(logged(caplog)) == 1


# What to write instead --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("user", "write key=by_user, not 'user'"),
        ("by_ip", "write key=by_ip, not 'by_ip'"),
        ("api_key", r"write key=by_api_key\(\), not"),
        ("x-tenant", r"write key=by_header\('x-tenant'\), not"),
        (7, "key is a function, such as by_ip, not 7"),
        (by_api_key, r"by_api_key returns a key function: write key=by_api_key\(\)"),
        (by_header, r"write key=by_header\('x-tenant'\)"),
        (by_cookie, r"write key=by_cookie\('session'\)"),
        (by_region, r"write key=by_region\('cf-ipcountry'\)"),
        (combined, r"write key=combined\(by_user, by_route\)"),
    ],
)
@pytest.mark.parametrize(
    "made",
    [
        lambda key: PenstockMiddleware(hello, limit="1/minute", key=key),
        lambda key: fastapi_limit("1/minute", key=key, name="one"),
        lambda key: flask_limit("1/minute", key=key),
    ],
)
def test_what_is_no_key_function(made: Callable[[Any], Any], key: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        made(key)


def test_a_factory_without_parentheses_is_seen_in_other_places() -> None:
    factory: Any = by_api_key
    with pytest.raises(TypeError, match=r"returns a key function: write by_api_key\(\)"):
        combined(by_user, factory)
    with pytest.raises(TypeError, match=r"write otherwise=by_api_key\(\)"):
        by_header("x-tenant", otherwise=factory)
    with pytest.raises(TypeError, match=r"returns a key function: write by_api_key\(\)"):
        PenstockMiddleware(hello, limit={factory: "1/minute"})
    with pytest.raises(TypeError, match=r"write by=by_api_key\(\)"):
        ConcurrencyMiddleware(hello, 5, by=factory)
    with pytest.raises(TypeError, match=r"write key=by_api_key\(\)"):
        ConcurrencyMiddleware(hello, 5, key=factory)
