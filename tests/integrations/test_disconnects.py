"""Clients that hang up, or never send the rest of their body: that is no server's failure.

Everywhere with ``count_when=lambda r: not r.failed``, which gives back what the server spoiled:
a handler must not run more often than the limit says because its clients leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastapi
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from integrations.asgi.test_limit import call, scope, statuses
from integrations.serving import ask, uvicorn_server
from integrations.test_gunicorn import gunicorn
from penstock import CircuitBreaker
from penstock.integrations.asgi import BreakerMiddleware, PenstockMiddleware
from penstock.integrations.fastapi import limit
from penstock.integrations.wsgi import BreakerWSGI, PenstockWSGI

LIMIT, TRIES = "5/hour", 12
HALF = b"POST /%b HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nhalf of it"
CHUNKED = b"POST /%b HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf of it"


def unless_failed(response: Any) -> bool:
    return not response.failed


def everybody(request: Any) -> str:
    """A server does not know the address of a client that left before it was accepted."""
    return "everybody"


def hang_up(port: int, message: bytes, reset: bool = False) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(message)
        if reset:  # at once, without a good-bye
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
            )


def eventually(check: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not check():
        assert time.monotonic() < until, "it never came to pass"
        time.sleep(0.01)


# A real ASGI server --------------------------------------------------------------------------


class Runs:
    """How often a handler ran, and how it ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended: list[str] = []

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        self.begun += 1
        try:
            yield
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        self.ended.append("")


def starlette_app(runs: Runs, middleware: bool) -> Any:
    async def whole(request: Request) -> PlainTextResponse:
        with runs.one():
            return PlainTextResponse(await request.body())

    async def other_error(request: Request) -> PlainTextResponse:
        with runs.one():
            try:
                await request.body()
            except Exception:
                raise RuntimeError("something else") from None
            return PlainTextResponse("")

    async def impatient(request: Request) -> PlainTextResponse:
        with runs.one():
            async with asyncio.timeout(0.05):
                return PlainTextResponse(await request.body())

    async def answers_by_itself(request: Request) -> PlainTextResponse:
        with runs.one():
            try:
                return PlainTextResponse(await request.body())
            except Exception:
                return PlainTextResponse("oh", 503)

    handlers = [whole, other_error, impatient, answers_by_itself]
    if middleware:
        app: Any = Starlette(
            routes=[Route(f"/{h.__name__}", h, methods=["POST"]) for h in handlers]
        )
        return PenstockMiddleware(app, limit=LIMIT, key=everybody, count_when=unless_failed)
    app = fastapi.FastAPI()
    for handler in handlers:
        handler.__annotations__["request"] = fastapi.Request
        depends = fastapi.Depends(limit(LIMIT, key=everybody, count_when=unless_failed))
        app.post(f"/{handler.__name__}", response_model=None, dependencies=[depends])(handler)
    return app


@pytest.mark.parametrize("middleware", [True, False], ids=["middleware", "dependency"])
@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("path", ["whole", "other_error", "impatient", "answers_by_itself"])
def test_uvicorn_handlers_that_are_left_in_the_body(path: str, http: str, middleware: bool) -> None:
    if path == "answers_by_itself" and not middleware:
        pytest.skip("a dependency does not see the status of a response that is returned")
    runs = Runs()
    app = starlette_app(runs, middleware)
    with uvicorn_server(app, http=http, log_level="critical") as port:
        for number in range(TRIES):
            begun = runs.begun
            hang_up(port, (HALF, CHUNKED)[number % 2] % path.encode(), reset=number % 3 == 0)
            if begun < 5:
                eventually(lambda begun=begun: len(runs.ended) == begun + 1)  # type: ignore[misc]
        assert ask(port, f"/{path}", "POST", body=b"all of it").status == 429
    assert runs.begun == 5
    assert all(runs.ended) or path == "answers_by_itself", "none was left alone: nothing is shown"


@pytest.mark.parametrize("middleware", [True, False], ids=["middleware", "dependency"])
def test_uvicorn_a_body_that_never_comes(middleware: bool) -> None:
    runs = Runs()
    with (
        uvicorn_server(starlette_app(runs, middleware), log_level="critical") as port,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(TRIES):  # they stay, and keep the handler waiting
            connection = socket.create_connection(("127.0.0.1", port), timeout=60)
            stack.enter_context(connection)
            connection.sendall(HALF % b"impatient")
            connection.recv(1000)
    assert runs.ended == ["TimeoutError"] * 5


def test_a_failure_of_the_servers_own_is_given_back() -> None:
    async def broken(request: Request) -> PlainTextResponse:
        await request.body()
        raise RuntimeError("as asked")

    app = Starlette(routes=[Route("/", broken, methods=["POST"])])
    limited = PenstockMiddleware(app, limit=LIMIT, count_when=unless_failed)
    with uvicorn_server(limited, log_level="critical") as port:
        assert {ask(port, "/", "POST", body=b"x").status for _ in range(TRIES)} == {500}


@pytest.mark.parametrize("depends", [False, True], ids=["middleware", "dependency"])
def test_uvicorn_streams_that_are_left_in_the_middle(depends: bool) -> None:
    runs = Runs()

    async def pieces() -> Any:
        for _ in range(1000):
            yield b"x" * 100_000
            await asyncio.sleep(0)

    app: Any = fastapi.FastAPI()
    view_limit = [fastapi.Depends(limit(LIMIT, count_when=unless_failed))] if depends else []

    @app.get("/", dependencies=view_limit, response_model=None)
    async def stream() -> StreamingResponse:
        with runs.one():
            return StreamingResponse(pieces())

    if not depends:
        app = PenstockMiddleware(app, limit=LIMIT, count_when=unless_failed)
    with uvicorn_server(app, log_level="critical") as port:
        for _ in range(TRIES):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
                connection.recv(1000)
        eventually(lambda: ask(port).status == 429)
    assert runs.begun == 5


# Message by message --------------------------------------------------------------------------


async def leaving(app: Any, asked: dict[str, Any], *messages: dict[str, Any]) -> list[Any]:
    """What is sent to a client that says this, and then leaves."""
    told = [*messages, {"type": f"{asked['type']}.disconnect"}]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return told.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    with contextlib.suppress(Exception):
        await app(asked, receive, send)
    return sent


async def test_a_websocket_whose_client_left_before_it_was_accepted() -> None:
    begun: list[int] = []

    async def chat(websocket: WebSocket) -> None:
        begun.append(1)
        await websocket.receive()
        await websocket.receive()
        await websocket.receive()  # an error: it was told before

    app = Starlette(routes=[WebSocketRoute("/", chat)])
    limited = PenstockMiddleware(app, limit=LIMIT, count_when=unless_failed)
    asked = {"type": "websocket", "path": "/", "headers": [], "client": ("203.0.113.7", 1)}
    for _ in range(TRIES):
        await leaving(limited, dict(asked), {"type": "websocket.connect"})
    assert len(begun) == 5


async def test_a_handler_that_is_cancelled_for_a_client_that_left() -> None:
    async def cancelled(scope: Any, receive: Any, send: Any) -> None:
        raise asyncio.CancelledError

    app = PenstockMiddleware(cancelled, limit=LIMIT, count_when=lambda response: False)
    for _ in range(5):
        with pytest.raises(asyncio.CancelledError):
            await call(app)
    assert await statuses(app, scope()) == [429]


async def test_an_answer_to_a_client_that_left_is_an_answer() -> None:
    """The application knew better than to fail: its own status decides."""

    async def home(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = PenstockMiddleware(home, limit="1/hour", count_when=lambda r: r.status != 401)
    for _ in range(3):
        assert (await leaving(app, scope()))[0]["status"] == 401


async def test_a_breaker_does_not_hear_of_clients_that_left() -> None:
    async def reading(request: Request) -> PlainTextResponse:
        return PlainTextResponse(await request.body())

    breaker = CircuitBreaker(failures=3)
    app = BreakerMiddleware(Starlette(routes=[Route("/", reading, methods=["POST"])]), breaker)
    for _ in range(TRIES):
        sent = await leaving(app, scope(method="POST"))
        assert sent[0]["status"] == 500, "it ran, and failed"
    assert breaker.state == "closed"

    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await receive()  # as Django does: nothing is answered to nobody

    for _ in range(TRIES):
        assert await leaving(BreakerMiddleware(silent, breaker), scope()) == []
    assert breaker.state == "closed"


async def test_a_breaker_hears_of_failures_while_clients_stay() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise RuntimeError("as asked")

    breaker = CircuitBreaker(failures=3)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            await call(BreakerMiddleware(broken, breaker), body=b"body")
    assert breaker.state == "open"


# A real WSGI server --------------------------------------------------------------------------

WSGI = """
import json
import logging
import os

logging.disable()  # nobody reads what is said of failures: a full pipe would stop the workers

from penstock import SharedMemoryStore

store = SharedMemoryStore("limits", max_keys=1_000)

def unless_failed(response):
    return not response.failed

def ran(name):
    with open(f"runs-{name}", "ab") as runs:
        runs.write(b"x")

def pid(environ, start_response):
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]

OPTIONS = {"store": store, "count_when": unless_failed, "key": lambda request: "everybody"}
"""

APPS = (
    WSGI
    + """
from penstock.integrations.flask import Penstock, limit as flask_limit
from penstock.integrations.wsgi import PenstockWSGI
import flask
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="only for tests", ALLOWED_HOSTS=["*"], ROOT_URLCONF="app", LOGGING_CONFIG=None,
    MIDDLEWARE=[], PENSTOCK={"store": store}, DEBUG=False,
)
django.setup()
from django.core.handlers.wsgi import WSGIHandler
from django.http import JsonResponse
from django.urls import path
from penstock.integrations.django import limit as django_limit

LATE = {**OPTIONS, "key": lambda request: "late"}

def plain(environ, start_response):
    ran("plain")
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 2000))
    start_response("200 OK", [])
    return [json.dumps(json.loads(body)).encode()]

def late(environ, start_response):
    ran("late")
    for line in environ["wsgi.input"]:
        json.loads(line)
    start_response("200 OK", [])
    yield b"late"

shop = flask.Flask("shop")

@shop.post("/flask")
@flask_limit("5/hour", name="flask", **OPTIONS)
def flask_view():
    ran("flask")
    return json.loads(flask.request.environ["wsgi.input"].read(1000))

@shop.post("/flask-data")
@flask_limit("5/hour", name="flask-data", **OPTIONS)
def flask_data():
    ran("flask-data")
    return json.loads(flask.request.get_data())

@django_limit("5/hour", **OPTIONS)
def django_body(request):
    ran("django")
    return JsonResponse(json.loads(request.body))

@django_limit("5/hour", **OPTIONS)
def django_form(request):
    ran("django-form")
    return JsonResponse({"last": request.POST['{"a":1}']})

urlpatterns = [path("django", django_body), path("django-form", django_form)]
site = WSGIHandler()
limited = {
    "/plain": PenstockWSGI(plain, limit="5/hour", name="plain", **OPTIONS),
    "/late": PenstockWSGI(late, limit="5/hour", name="late", **LATE),
    "/flask": shop, "/flask-data": shop, "/django": site, "/django-form": site,
}

def application(environ, start_response):
    return limited.get(environ["PATH_INFO"], pid)(environ, start_response)
"""
)

GOOD_TYPE, GOOD = (("Content-Type", "application/x-www-form-urlencoded"),), b'{"a":1}'
PATHS = ["plain", "late", "flask", "flask-data", "django", "django-form"]
FORM = b"POST /%b HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n" + (
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\nfirst=1&"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    folder = tmp_path_factory.mktemp("gunicorn")
    (folder / "app.py").write_text(APPS)
    with gunicorn(folder) as port:
        yield folder, port


@pytest.mark.parametrize("path", PATHS)
def test_gunicorn_handlers_that_are_left_in_the_body(served: tuple[Path, int], path: str) -> None:
    folder, port = served
    runs = folder / f"runs-{path}"
    messages = [FORM] if path == "django-form" else [HALF, CHUNKED]
    if path == "django":
        messages = [HALF]  # of chunked bodies it knows nothing
    for number in range(TRIES):
        hang_up(port, messages[number % len(messages)] % path.encode(), reset=number % 3 == 0)
    eventually(lambda: ask(port, f"/{path}", "POST", GOOD_TYPE, GOOD).status == 429)
    assert runs.stat().st_size == 5


# WSGI, call by call --------------------------------------------------------------------------


class Input:
    """Half a body, and then the end, or an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self._left = [b"half", b" of it\n"]
        self._error = error

    def read(self, size: int = -1) -> bytes:
        if self._left:
            return self._left.pop(0)
        if self._error is not None:
            raise self._error
        return b""

    readline = read


def environ(stream: Any, length: str = "1000") -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "POST", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7",
        "CONTENT_LENGTH": length, "wsgi.input": stream,
    }  # fmt: skip


READS: dict[str, Callable[[Any], Any]] = {
    "read": lambda stream: [stream.read(), stream.read()],
    "read to the end": lambda stream: [stream.read(4), stream.read(1000), stream.read(1000)],
    "lines": lambda stream: list(stream),
    "readlines": lambda stream: stream.readlines(),
    "readline": lambda stream: [stream.readline() for _ in range(3)],
}


@pytest.mark.parametrize("error", [None, OSError("gone"), TimeoutError(), EOFError()])
@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("breaker", [False, True], ids=["limit", "breaker"])
def test_wsgi_an_application_left_with_half_a_body(
    how: str, error: BaseException | None, breaker: bool
) -> None:
    begun: list[int] = []

    def app(environ: Any, start: Any) -> Any:
        begun.append(1)
        READS[how](environ["wsgi.input"])
        raise RuntimeError("that was not all")

    switch = CircuitBreaker(failures=2)
    limited: Any = (
        BreakerWSGI(app, switch)
        if breaker
        else PenstockWSGI(app, limit=LIMIT, count_when=unless_failed)
    )
    for _ in range(TRIES):
        with contextlib.suppress(Exception):
            limited(environ(Input(error)), lambda *args: print)
    assert len(begun) == (TRIES if breaker else 5)
    assert switch.state == "closed"


@pytest.mark.parametrize("how", READS)
def test_wsgi_an_application_that_read_it_all_has_failed_by_itself(how: str) -> None:
    begun: list[int] = []

    def app(environ: Any, start: Any) -> Any:
        begun.append(1)
        READS[how](environ["wsgi.input"])
        raise RuntimeError("as asked")

    limited = PenstockWSGI(app, limit=LIMIT, count_when=unless_failed)
    for length in ("11", "", "not a number"):
        for _ in range(TRIES):
            with pytest.raises(RuntimeError):
                limited(environ(Input(), length), print)
    assert len(begun) == 3 * TRIES


def test_wsgi_a_body_that_is_closed_before_its_end_was_answered() -> None:
    def later(environ: Any, start: Any) -> Any:
        start("200 OK", [])
        yield b"one"
        yield b"two"

    app: Any = PenstockWSGI(later, limit=LIMIT, count_when=unless_failed)
    statuses: list[str] = []
    for _ in range(TRIES):
        body = app(environ(Input()), lambda status, *rest: statuses.append(status))
        next(iter(body))
        getattr(body, "close", lambda: None)()  # the pipe is broken
    assert statuses == ["200 OK"] * 5 + ["429 Too Many Requests"] * 7
