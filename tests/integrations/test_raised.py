"""Errors of ours that a handler raises are answered in every framework, on real servers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import fastapi
import flask
import pytest
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse

from integrations.django.site import site  # settings come first
from integrations.flask.site import new_app
from integrations.serving import Raw, ask, uvicorn_server
from penstock import CircuitBreaker, CircuitOpen, Limiter, LimitExceeded, LineFull, WaitedTooLong
from penstock.errors import NoSlot, PenstockError
from penstock.integrations.asgi import BreakerMiddleware, ConcurrencyMiddleware, PenstockMiddleware
from penstock.integrations.fastapi import LimitFields, limit
from penstock.integrations.flask import Penstock
from penstock.integrations.wsgi import BreakerWSGI, ConcurrencyWSGI, PenstockWSGI


def exceeded() -> LimitExceeded:
    limiter = Limiter("1/minute")
    limiter.hit("user:7")
    return LimitExceeded("user:7", limiter.hit("user:7"))


ERRORS: dict[str, tuple[Callable[[], PenstockError], int, str]] = {
    "limit": (exceeded, 429, "60"),
    "line": (lambda: LineFull("k", 1, 0, "no place to wait"), 429, "1"),
    "waited": (lambda: WaitedTooLong("k", 1, 1, "5 s are over"), 504, "1"),
    "slots": (lambda: NoSlot("k", 1, 1, "Redis is away"), 503, "1"),
    "circuit": (lambda: CircuitOpen("payments", 6.5, "5 failures"), 503, "7"),
}


def fail(kind: str) -> None:
    raise ERRORS[kind][0]()


# Applications that raise what their path says ----------------------------------------------


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    fail(scope["path"].strip("/"))


def wsgi(environ: Any, start_response: Any) -> list[bytes]:
    fail(environ["PATH_INFO"].strip("/"))
    return []


def late(environ: Any, start_response: Any) -> Iterator[bytes]:
    fail(environ["PATH_INFO"].strip("/"))
    yield b""


def fastapi_app(*middleware: tuple[Any, dict[str, Any]], **options: Any) -> fastapi.FastAPI:
    app = fastapi.FastAPI(**options)

    @app.get("/{kind}")
    async def raising(kind: str) -> None:
        fail(kind)

    for kind, options in middleware:
        app.add_middleware(kind, **options)
    return app


def limited_by_dependency(
    *middleware: tuple[Any, dict[str, Any]], **options: Any
) -> fastapi.FastAPI:
    return fastapi_app(*middleware, dependencies=[fastapi.Depends(limit(**options))])


def flask_app(**options: Any) -> flask.Flask:
    app = new_app()
    app.add_url_rule("/<kind>", view_func=fail)
    Penstock(app, "9/minute", **options)
    return app


def django_view(request: Any, kind: str) -> HttpResponse:
    fail(kind)
    return HttpResponse()


async def django_view_async(request: Any, kind: str) -> HttpResponse:
    return django_view(request, kind)


def rest_view(request: Any, kind: str) -> HttpResponse:
    from rest_framework.decorators import api_view  # it reads the settings

    answer: HttpResponse = api_view(["GET"])(django_view)(request, kind)
    return answer


class Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@contextlib.contextmanager
def wsgi_server(app: Any) -> Iterator[int]:
    server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def django_server(view: Any, handler: Any, serve: Any, options: Any) -> Iterator[int]:
    with site([path("<kind>", view)], options), serve(handler()) as port:
        yield port


LIMIT = {"limit": "9/minute"}
EXEMPT = {**LIMIT, "key": lambda request: None}
SERVERS: dict[str, Callable[[], Any]] = {
    "asgi": lambda: uvicorn_server(PenstockMiddleware(asgi, limit="9/minute")),
    "asgi exempt": lambda: uvicorn_server(
        PenstockMiddleware(asgi, limit="9/minute", key=lambda request: None)
    ),
    "asgi twice": lambda: uvicorn_server(
        PenstockMiddleware(PenstockMiddleware(asgi, limit="8/minute", name="in"), limit="9/minute")
    ),
    "asgi slots": lambda: uvicorn_server(ConcurrencyMiddleware(asgi, 5)),
    "asgi breaker": lambda: uvicorn_server(BreakerMiddleware(asgi, CircuitBreaker())),
    "asgi all": lambda: uvicorn_server(
        PenstockMiddleware(
            BreakerMiddleware(ConcurrencyMiddleware(asgi, 5), CircuitBreaker()), limit="9/minute"
        )
    ),
    "fields": lambda: uvicorn_server(LimitFields(asgi)),
    "fastapi": lambda: uvicorn_server(fastapi_app((PenstockMiddleware, LIMIT))),
    "fastapi dependency": lambda: uvicorn_server(limited_by_dependency(**LIMIT)),
    "fastapi dependency exempt": lambda: uvicorn_server(limited_by_dependency(**EXEMPT)),
    "fastapi dependency in middleware": lambda: uvicorn_server(
        limited_by_dependency((PenstockMiddleware, {"limit": "8/minute"}), **LIMIT)
    ),
    "wsgi": lambda: wsgi_server(PenstockWSGI(wsgi, limit="9/minute")),
    "wsgi late": lambda: wsgi_server(PenstockWSGI(late, limit="9/minute")),
    "wsgi exempt": lambda: wsgi_server(
        PenstockWSGI(wsgi, limit="9/minute", key=lambda request: None)
    ),
    "wsgi slots": lambda: wsgi_server(ConcurrencyWSGI(wsgi, 5)),
    "wsgi slots late": lambda: wsgi_server(ConcurrencyWSGI(late, 5)),
    "wsgi breaker": lambda: wsgi_server(BreakerWSGI(wsgi, CircuitBreaker())),
    "wsgi all": lambda: wsgi_server(
        PenstockWSGI(BreakerWSGI(ConcurrencyWSGI(late, 5), CircuitBreaker()), limit="9/minute")
    ),
    "flask": lambda: wsgi_server(flask_app()),
    "flask exempt": lambda: wsgi_server(flask_app(key=lambda request: None)),
    "flask in wsgi": lambda: wsgi_server(PenstockWSGI(flask_app(), limit="8/minute")),
    "django": lambda: django_server(django_view, WSGIHandler, wsgi_server, LIMIT),
    "django exempt": lambda: django_server(django_view, WSGIHandler, wsgi_server, EXEMPT),
    "django async": lambda: django_server(django_view_async, ASGIHandler, uvicorn_server, LIMIT),
    "django without a limit": lambda: django_server(django_view, WSGIHandler, wsgi_server, {}),
    "rest framework": lambda: django_server(rest_view, WSGIHandler, wsgi_server, LIMIT),
}


@pytest.mark.parametrize("server", SERVERS)
def test_every_error_has_its_answer(server: str) -> None:
    with SERVERS[server]() as port:
        for kind, (_, status, after) in ERRORS.items():
            answer = ask(port, f"/{kind}")
            assert (answer.status, answer.header("Retry-After")) == (status, after), kind
            assert f'"retry_after": {after}'.encode() in answer.body
            assert answer.header("Cache-Control") == "no-store"
            if kind == "limit":
                check_fields(answer)


def check_fields(answer: Raw) -> None:
    """Of the limit that refused, and of those of the middleware, each once."""
    told = answer.header("RateLimit") or ""
    assert told.startswith('"1/minute";r=0;t=')
    assert (answer.header("RateLimit-Policy") or "").startswith('"1/minute";q=1;w=60')
    assert answer.header("X-RateLimit-Limit") == "1"
    assert answer.header("X-RateLimit-Remaining") == "0"


@pytest.mark.parametrize("server", ["asgi", "fastapi dependency", "wsgi", "flask", "django"])
def test_problem_details_by_accept(server: str) -> None:
    with SERVERS[server]() as port:
        answer = ask(port, "/limit", headers=(("Accept", "application/problem+json"),))
        problem = json.loads(answer.body)
    assert answer.header("Content-Type") == "application/problem+json"
    assert problem["violated-policies"] == ["1/minute"]
    assert len((answer.header("RateLimit") or "").split(",")) == 2


# Handlers of the application's own ---------------------------------------------------------


@pytest.mark.parametrize("kind", [LimitExceeded, PenstockError])
@pytest.mark.parametrize("dependency", [False, True])
def test_a_handler_of_fastapi_goes_first(kind: type[Exception], dependency: bool) -> None:
    app = limited_by_dependency(**LIMIT) if dependency else fastapi_app((PenstockMiddleware, LIMIT))

    @app.exception_handler(kind)
    async def own(request: Any, error: Exception) -> fastapi.Response:
        return fastapi.Response("own", 418)

    answer = TestClient(app).get("/limit")
    assert (answer.status_code, answer.text) == (418, "own")


def test_a_dependency_answers_for_its_routes_only() -> None:
    app = fastapi.FastAPI()
    app.get("/limited/{kind}", dependencies=[fastapi.Depends(limit("9/minute"))])(fail)
    app.get("/{kind}")(fail)
    client = TestClient(app, raise_server_exceptions=False)
    urls = ("/limited/limit", "/limit", "/limited/circuit", "/circuit")
    assert [client.get(url).status_code for url in urls] == [429, 500, 503, 500]


@pytest.mark.parametrize("kind", [LimitExceeded, PenstockError, Exception])
@pytest.mark.parametrize("place", ["before", "after", "blueprint"])
def test_a_handler_of_flask_goes_first(kind: type[Exception], place: str) -> None:
    app, shop = new_app(), flask.Blueprint("shop", "shop")

    def own(error: Exception) -> tuple[str, int]:
        return "own", 418

    if place == "before":
        app.register_error_handler(kind, own)
    shop.add_url_rule("/<kind>", view_func=fail)
    Penstock(shop if place == "blueprint" else app, "9/minute")
    if place != "before":
        app.register_error_handler(kind, own)
    app.register_blueprint(shop)
    answer = app.test_client().get("/limit")
    assert (answer.status_code, answer.text) == (418, "own")


def test_a_blueprint_answers_for_its_views() -> None:
    app, shop = new_app(), flask.Blueprint("shop", "shop")
    shop.add_url_rule("/shop/<kind>", view_func=fail)
    app.add_url_rule("/<kind>", view_func=fail)
    Penstock(shop, "9/minute")
    app.register_blueprint(shop)
    client = app.test_client()
    assert [client.get(url).status_code for url in ("/shop/limit", "/limit")] == [429, 500]


class OwnAnswer:
    """A middleware of Django's with an answer to exceptions."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: Any) -> Any:
        return self._get_response(request)

    def process_exception(self, request: Any, error: Exception) -> HttpResponse:
        return HttpResponse("own", status=418)


def test_a_middleware_of_django_further_in_goes_first() -> None:
    own = f"{__name__}.OwnAnswer"
    ours = "penstock.integrations.django.PenstockMiddleware"
    urls = [path("<kind>", django_view)]
    with (
        site(urls, LIMIT),
        override_settings(MIDDLEWARE=[ours, own]),
        wsgi_server(WSGIHandler()) as port,
    ):
        assert ask(port, "/limit").status == 418


# What has begun, and what is counted --------------------------------------------------------


def test_an_answer_that_has_begun_is_left_alone() -> None:
    async def begun(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        fail("limit")

    for app in (PenstockMiddleware(begun, limit="9/minute"), ConcurrencyMiddleware(begun, 5)):
        with pytest.raises(LimitExceeded):
            TestClient(app).get("/")


@pytest.mark.parametrize("middleware", [PenstockWSGI, ConcurrencyWSGI])
def test_a_wsgi_answer_that_has_begun_is_left_alone(middleware: Any) -> None:
    def begun(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"hello"
        fail("limit")

    limit: Any = "9/minute" if middleware is PenstockWSGI else 5
    body = middleware(begun, limit=limit)(
        {"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda status, headers: None
    )
    with pytest.raises(LimitExceeded):
        list(body)


def test_count_when_sees_the_answer() -> None:
    seen: list[int] = []
    options = {**LIMIT, "count_when": lambda response: seen.append(response.status) or False}
    client = TestClient(fastapi_app((PenstockMiddleware, options)))
    dependency = TestClient(limited_by_dependency(**options))
    wsgi_app = PenstockWSGI(late, **options)
    flask_client = flask_app(count_when=options["count_when"]).test_client()
    left = [client.get("/line").headers["x-ratelimit-remaining"] for _ in range(2)]
    list(wsgi_app({"REQUEST_METHOD": "GET", "PATH_INFO": "/waited"}, lambda *args: None))
    flask_client.get("/circuit")
    dependency.get("/waited")
    assert (seen, left) == ([429, 429, 504, 503, 504], ["8", "8"])


def test_a_breaker_counts_no_refusal_as_a_failure() -> None:
    breaker = CircuitBreaker(failures=2, ratio=0.01)
    client = TestClient(BreakerMiddleware(asgi, breaker))
    wsgi_app = BreakerWSGI(wsgi, breaker)
    for _ in range(5):
        assert client.get("/limit").status_code == 429
        list(wsgi_app({"REQUEST_METHOD": "GET", "PATH_INFO": "/line"}, lambda *args: None))
    assert [client.get("/waited").status_code for _ in range(3)][-1] == 503


@pytest.mark.parametrize(
    "app",
    [PenstockMiddleware(asgi, limit="9/minute"), ConcurrencyMiddleware(asgi, 5), LimitFields(asgi)],
)
def test_a_websocket_that_was_not_accepted_is_answered_where_the_server_can(app: Any) -> None:
    with pytest.raises(WebSocketDenialResponse) as denied:
        TestClient(app).websocket_connect("/limit").__enter__()
    assert (denied.value.status_code, denied.value.headers["retry-after"]) == (429, "60")
