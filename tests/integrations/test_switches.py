"""Limits that are switched off, in every framework: nothing is decided, and nothing is added."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import path
from fastapi import Depends, FastAPI
from flask import Flask
from starlette.testclient import TestClient
from werkzeug.test import Client

from integrations.django.site import Asker, site
from penstock import CircuitBreaker, Gate, MemoryStore
from penstock.concurrency import AsyncConcurrencyLimiter, ConcurrencyLimiter
from penstock.integrations import by_ip, by_user
from penstock.integrations.asgi import BreakerMiddleware, ConcurrencyMiddleware, PenstockMiddleware
from penstock.integrations.django import limit as django_limit
from penstock.integrations.fastapi import limit as fastapi_limit
from penstock.integrations.flask import Penstock
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.wsgi import BreakerWSGI, ConcurrencyWSGI, PenstockWSGI
from penstock.switch import limits_off

BY_KEYS: Any = {by_ip: "1/minute; 9/day", by_user: "5/minute"}

Get = Callable[[], Any]  # asks the application, and returns its response


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def hello_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"hello"]


def asgi(**options: Any) -> Get:
    app = PenstockMiddleware(hello, limit="1/minute", **options)
    return lambda: TestClient(app).get("/")


def asgi_the_long_way(**options: Any) -> Get:
    app = PenstockMiddleware(hello, limit="1/minute", key=lambda request: "all", **options)
    return lambda: TestClient(app).get("/")


def asgi_by_keys(**options: Any) -> Get:
    del options["name"]
    app = PenstockMiddleware(hello, limit=BY_KEYS, **options)
    return lambda: TestClient(app).get("/")


def wsgi(**options: Any) -> Get:
    app = PenstockWSGI(hello_wsgi, limit="1/minute", **options)
    return lambda: Client(app).get("/")


def dependency(**options: Any) -> Get:
    app = FastAPI()
    app.add_api_route(
        "/", lambda: "hello", dependencies=[Depends(fastapi_limit("1/minute", **options))]
    )
    return lambda: TestClient(app).get("/")


def decorator(**options: Any) -> Get:
    app = FastAPI()
    app.get("/")(fastapi_limit("1/minute", **options)(lambda: "hello"))
    return lambda: TestClient(app).get("/")


def decorator_by_keys(**options: Any) -> Get:
    app = FastAPI()
    app.get("/")(fastapi_limit(BY_KEYS, override=True, **options)(lambda: "hello"))
    return lambda: TestClient(app).get("/")


def flask_extension(**options: Any) -> Get:
    app = Flask("shop")
    Penstock(app, "1/minute", **options)
    app.add_url_rule("/", "home", lambda: "hello")
    return lambda: app.test_client().get("/")


def flask_view(**options: Any) -> Get:
    app = Flask("shop")
    app.add_url_rule("/", "home", flask_limit("1/minute", **options)(lambda: "hello"))
    return lambda: app.test_client().get("/")


def flask_view_by_keys(**options: Any) -> Get:
    app = Flask("shop")
    app.add_url_rule("/", "home", flask_limit(BY_KEYS, **options)(lambda: "hello"))
    return lambda: app.test_client().get("/")


def flask_view_of_a_site(name: str, **options: Any) -> Get:
    app = Flask("shop")
    penstock = Penstock(app, **options)
    app.add_url_rule("/", "home", penstock.limit("1/minute")(lambda: "hello"))
    return lambda: app.test_client().get("/")


def django_site(**options: Any) -> Get:
    asker = None

    def get() -> Any:
        nonlocal asker
        with site(
            [path("", lambda request: HttpResponse("hello"))], {"limit": "1/minute", **options}
        ):
            asker = asker or Asker(False)
            return asker.ask()

    return get


def django_view(**options: Any) -> Get:
    view = django_limit("1/minute", **options)(lambda request: HttpResponse("hello"))

    def get() -> Any:
        with site([path("", view)]):
            return Asker(False).ask()

    return get


def throttle(**options: Any) -> Get:
    # These need the settings that `site` has made.
    from rest_framework.response import Response as RestResponse
    from rest_framework.views import APIView

    from penstock.integrations.django.rest_framework import PenstockThrottle

    kind = type("OneThrottle", (PenstockThrottle,), {"limit": "1/minute", **options})

    class View(APIView):  # type: ignore[misc]  # REST framework has no types
        throttle_classes = (kind,)

        def get(self, request: Any) -> Any:
            return RestResponse("hello")

    def get() -> Any:
        with site([path("", View.as_view())]):
            return Asker(False).ask()

    return get


LIMITED = [
    asgi, asgi_the_long_way, asgi_by_keys, wsgi, dependency, decorator, decorator_by_keys,
    flask_extension, flask_view, flask_view_by_keys, flask_view_of_a_site, django_site, django_view,
    throttle,
]  # fmt: skip


def by_option(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    return {"enabled": False}, nullcontext()


def by_environment(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    monkeypatch.setenv("PENSTOCK_ENABLED", "0")
    return {}, nullcontext()


def by_block(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    return {}, limits_off()


@pytest.mark.parametrize("limited", LIMITED)
@pytest.mark.parametrize("how", [by_option, by_environment, by_block])
def test_what_is_off_decides_nothing(
    limited: Callable[..., Get],
    how: Callable[[Any], tuple[dict[str, Any], AbstractContextManager[None]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options, block = how(monkeypatch)
    store = MemoryStore()
    get = limited(store=store, name="one", **options)
    with block:
        answers = [get() for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    names = [name.lower() for answer in answers for name in dict(answer.headers)]
    assert [name for name in names if "ratelimit" in name] == []
    assert store.keys == 0


@pytest.mark.parametrize("limited", LIMITED)
def test_what_is_on_decides_again_after_a_block(limited: Callable[..., Get]) -> None:
    get = limited(store=MemoryStore(), name="one", enabled=True)
    with limits_off():
        assert [get().status_code for _ in range(2)] == [200, 200]
    assert [get().status_code for _ in range(2)] == [200, 429]


def test_an_explicit_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_ENABLED", "0")
    get = asgi(enabled=True)
    assert [get().status_code for _ in range(2)] == [200, 429]


def test_the_environment_is_read_when_the_middleware_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get = asgi()
    monkeypatch.setenv("PENSTOCK_ENABLED", "0")
    assert [get().status_code for _ in range(2)] == [200, 429]


def test_a_word_in_the_environment_that_is_neither_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_ENABLED", "off")
    with pytest.raises(ValueError, match="PENSTOCK_ENABLED is 1, 0, true or false, not 'off'"):
        asgi()


def test_wrong_options_are_errors_also_when_it_is_off() -> None:
    with pytest.raises(ValueError, match="trusted names networks"):
        asgi(enabled=False, trusted=["everybody"])


def test_deny_lists_are_off_as_well() -> None:
    rules = {"domain": "web", "deny": {"remote_address": ["192.0.2.7"]}, "descriptors": [
        {"key": "path", "limits": "1/minute"}]}  # fmt: skip
    environ = {"REMOTE_ADDR": "192.0.2.7"}
    for enabled, status in ((True, 403), (False, 200)):
        app = PenstockWSGI(hello_wsgi, gate=Gate.from_rules(rules), enabled=enabled)
        assert Client(app).get("/", environ_overrides=environ).status_code == status


# Limits that override -----------------------------------------------------------------------


def overriding_in_fastapi(**options: Any) -> Get:
    app = FastAPI(dependencies=[Depends(fastapi_limit("2/minute"))])
    app.get("/")(fastapi_limit(BY_KEYS, override=True, **options)(lambda: "hello"))
    return lambda: TestClient(app).get("/")


def overriding_a_middleware(**options: Any) -> Get:
    app = FastAPI()
    app.get("/")(fastapi_limit("1/minute", override=True, **options)(lambda: "hello"))
    app.add_middleware(PenstockMiddleware, limit="2/minute")
    return lambda: TestClient(app).get("/")


def overriding_in_flask(**options: Any) -> Get:
    app = Flask("shop")
    Penstock(app, "2/minute")
    view = flask_limit(BY_KEYS, override=True, **options)(lambda: "hello")
    app.add_url_rule("/", "home", view)
    return lambda: app.test_client().get("/")


def overriding_in_django(**options: Any) -> Get:
    decorate = django_limit(BY_KEYS, override=True, **options)
    urls = [path("", decorate(lambda request: HttpResponse("hello")))]
    asker = None

    def get() -> Any:
        nonlocal asker
        with site(urls, {"limit": "2/minute"}):
            asker = asker or Asker(False)
            return asker.ask()

    return get


OVERRIDING = [
    overriding_in_fastapi, overriding_a_middleware, overriding_in_flask, overriding_in_django,
]  # fmt: skip


@pytest.mark.parametrize("overriding", OVERRIDING)
def test_a_limit_that_is_off_overrides_nothing(overriding: Callable[..., Get]) -> None:
    on, off = overriding(), overriding(enabled=False)
    assert [on().status_code for _ in range(2)] == [200, 429]
    assert [off().status_code for _ in range(3)] == [200, 200, 429]
    other = overriding()
    with limits_off():
        assert [other().status_code for _ in range(4)] == [200] * 4


# Concurrency limits and breakers ----------------------------------------------------------------


@pytest.mark.parametrize("off", [True, False])
def test_no_slot_is_needed(off: bool) -> None:
    full = ConcurrencyLimiter(1)
    with full.slot("requests"):
        app = ConcurrencyWSGI(hello_wsgi, full, timeout=0, enabled=not off)
        assert Client(app).get("/").status_code == (200 if off else 429)
        with limits_off():
            assert Client(app).get("/").status_code == 200


async def test_no_slot_is_needed_in_asgi() -> None:
    full = AsyncConcurrencyLimiter(1)
    statuses = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("::1", 1)}
    async with full.slot("requests"):
        for enabled in (True, False):
            app = ConcurrencyMiddleware(hello, full, timeout=0, enabled=enabled)
            await app(dict(scope), None, send)  # type: ignore[arg-type]  # nobody reads
    assert statuses == [429, 200]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_open_circuit_is_not_asked(asynchronous: bool) -> None:
    def get(**options: Any) -> int:
        if asynchronous:
            return TestClient(BreakerMiddleware(hello, breaker, **options)).get("/").status_code
        status: int = Client(BreakerWSGI(hello_wsgi, breaker, **options)).get("/").status_code
        return status

    breaker = CircuitBreaker()
    breaker.trip("maintenance")
    assert [get(), get(enabled=False)] == [503, 200]
    with limits_off():
        assert get() == 200
    assert breaker.state == "open"
