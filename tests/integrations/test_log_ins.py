"""The log-in recipe under fire: many at once, right and wrong, under real servers.

``"5/minute lockout 15m"`` with ``count_when`` 401. Right log-ins never start a lockout, however
many come at once. Of wrong ones, never more than the limit's are looked at, and the first that
comes after they have counted shuts the view_limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fastapi
import pytest
from django.http import HttpResponse
from django.test import AsyncRequestFactory
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from integrations.asgi.test_limit import call, header, scope
from integrations.django.site import site
from integrations.serving import Raw, ask, uvicorn_server
from integrations.test_gunicorn import gunicorn
from penstock import AsyncLimiter, MemoryStore
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.django import limit as django_limit
from penstock.integrations.fastapi import LimitFields
from penstock.integrations.fastapi import limit as dependency
from penstock.integrations.wsgi import PenstockWSGI

LIMIT = "5/minute lockout 15m"
CLIENTS = 12


def wrong(response: Any) -> bool:
    return bool(response.status == 401)


def log_in(port: int, password: str, path: str = "/") -> Raw:
    return ask(port, path, headers=(("X-Password", password),))


def at_once(count: int, act: Callable[[], Raw]) -> list[Raw]:
    """From so many clients, all at the same moment."""
    together = threading.Barrier(count)

    def one(_: int) -> Raw:
        together.wait(60)
        return act()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def retry_after(answer: Raw) -> int:
    return int(answer.header("Retry-After") or 0)


def right_log_ins_are_never_locked_out(port: int, path: str = "/") -> None:
    answers = at_once(CLIENTS, lambda: log_in(port, "right", path))
    counts = Counter(answer.status for answer in answers)
    assert set(counts) <= {200, 429}
    assert counts[200] >= 5
    for answer in answers:
        assert retry_after(answer) <= 60, "a lockout"
    assert log_in(port, "right", path).status == 200, "nobody is locked out"


def guesses_are_bounded_and_locked_out(port: int, path: str = "/") -> None:
    statuses: Counter[int] = Counter()
    for _ in range(3):
        statuses.update(
            answer.status for answer in at_once(CLIENTS, lambda: log_in(port, "?", path))
        )
    assert statuses[401] == 5, "never more than the limit's are looked at"
    last = log_in(port, "right", path)
    assert (last.status, retry_after(last) > 800) == (429, True), "the view_limit is shut"


# Uvicorn -------------------------------------------------------------------------------------


async def check(request: Request) -> Response:
    await asyncio.sleep(0.3)  # as a good hash takes, so that all are under way at once
    right = request.headers.get("x-password") == "right"
    return PlainTextResponse("", 200 if right else 401)


def by_middleware() -> Any:
    app = Starlette(routes=[Route("/", check)])
    return PenstockMiddleware(app, limit=LIMIT, count_when=wrong)


def by_dependency(fields: bool = True) -> Any:
    app = fastapi.FastAPI()
    view_limit = fastapi.Depends(dependency(LIMIT, count_when=wrong))

    @app.get("/", dependencies=[view_limit], response_model=None)
    async def view(request: fastapi.Request) -> None:
        if (await check(request)).status_code == 401:
            raise fastapi.HTTPException(401)

    if fields:
        app.add_middleware(LimitFields)
    return app


APPS = {
    "middleware": by_middleware,
    "dependency": lambda: by_dependency(fields=False),
    "dependency with fields": by_dependency,
}


@pytest.mark.parametrize("name", APPS)
def test_under_uvicorn(name: str) -> None:
    with uvicorn_server(APPS[name]()) as port:
        right_log_ins_are_never_locked_out(port)
        guesses_are_bounded_and_locked_out(port)


# Gunicorn ------------------------------------------------------------------------------------

APP = """
import os
import time
import flask
from penstock import SharedMemoryStore
from penstock.integrations.flask import limit
from penstock.integrations.wsgi import PenstockWSGI

store = SharedMemoryStore("limits", max_keys=1_000)
OPTIONS = {"store": store, "count_when": lambda response: response.status == 401}

def check(password):
    time.sleep(0.3)
    return password == "right"

def plain(environ, start_response):
    right = check(environ.get("HTTP_X_PASSWORD"))
    start_response("200 OK" if right else "401 Unauthorized", [])
    return [b""]

shop = flask.Flask("shop")

@shop.get("/flask")
@limit("5/minute lockout 15m", **OPTIONS)
def log_in():
    return ("", 200 if check(flask.request.headers.get("X-Password")) else 401)

@shop.get("/pid")
def pid():
    return str(os.getpid())

view_limit = PenstockWSGI(plain, limit="5/minute lockout 15m", **OPTIONS)

def application(environ, start_response):
    chosen = view_limit if environ["PATH_INFO"] == "/wsgi" else shop
    return chosen(environ, start_response)
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("log-ins")
    (folder / "app.py").write_text(APP)
    with gunicorn(folder, "--threads", "4") as port:
        yield port


@pytest.mark.parametrize("path", ["/wsgi", "/flask"])
def test_under_gunicorn_with_four_workers(workers: int, path: str) -> None:
    right_log_ins_are_never_locked_out(workers, path)
    guesses_are_bounded_and_locked_out(workers, path)


# Guesses whose sender hangs up ---------------------------------------------------------------


async def test_guesses_whose_sender_hangs_up_count_and_lock_out() -> None:
    """They are cancelled in the middle of the check: nobody knows, so they count."""
    looked_at: list[int] = []

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        looked_at.append(1)
        await asyncio.sleep(60)

    app = PenstockMiddleware(slow, limit=LIMIT, count_when=wrong)
    for _ in range(4):
        tasks = [asyncio.ensure_future(call(app)) for _ in range(5)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(looked_at) == 5
    assert int(header(await call(app), "retry-after") or 0) > 800


async def test_django_views_that_are_cancelled_count_and_lock_out() -> None:
    looked_at: list[int] = []

    @django_limit(LIMIT, count_when=wrong)
    async def slow(request: Any) -> HttpResponse:
        looked_at.append(1)
        await asyncio.sleep(60)
        return HttpResponse(status=401)

    with site([]):
        for _ in range(3):
            tasks = [asyncio.ensure_future(slow(AsyncRequestFactory().get("/"))) for _ in range(4)]
            await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        answer = await slow(AsyncRequestFactory().get("/"))
    assert len(looked_at) == 5
    assert int(answer["Retry-After"]) > 800


def test_an_application_that_is_never_read_counts() -> None:
    def later(environ: Any, start: Any) -> Any:
        start("401 Unauthorized", [])
        yield b""

    app: Any = PenstockWSGI(later, limit="1/minute lockout 15m", count_when=wrong)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7"}
    app(dict(environ), print).close()  # the client has left before it began
    told: list[Any] = []
    app(dict(environ), lambda status, headers: told.append((status, dict(headers))))
    ((status, headers),) = told
    assert (status[:3], headers["Retry-After"]) == ("429", "900")


# Several limits ------------------------------------------------------------------------------


async def test_one_of_several_limits_has_a_lockout() -> None:
    async def view(scope: Any, receive: Any, send: Any) -> None:
        right = dict(scope["headers"]).get(b"x-password") == b"right"
        await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200 if right else 401, "headers": []})
        await send({"type": "http.response.body"})

    store = MemoryStore()
    app = PenstockMiddleware(
        view, limit=["3/minute lockout 15m", "100/hour"], store=store, count_when=wrong
    )

    async def statuses(count: int, password: bytes) -> list[int]:
        asked = scope(headers=[(b"x-password", password)])
        sent = await asyncio.gather(*[call(app, dict(asked)) for _ in range(count)])
        return sorted(each[0]["status"] for each in sent)

    assert await statuses(5, b"right") == [200] * 3 + [429] * 2
    limiter = AsyncLimiter(store=store)
    key = "ip:203.0.113.7/32"
    assert (await limiter.peek(key, "100/hour")).remaining == 100
    assert await statuses(5, b"wrong") == [401] * 3 + [429] * 2
    assert await statuses(1, b"right") == [429]
    assert ((await limiter.peek(key, "3/minute lockout 15m")).retry_after or 0) > 800
    assert (await limiter.peek(key, "100/hour")).remaining == 97
