"""Rules with ``concurrency`` in middleware: a request holds its slot until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import flask
import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from integrations.asgi.test_limit import call, hello, scope, statuses
from integrations.django.site import site
from integrations.flask.site import new_app
from integrations.flask.site import statuses as flask_statuses
from integrations.grpc.kit import AIO, SYNC, Bench
from integrations.grpc.kit import Loop as GrpcLoop
from penstock import AsyncGate, Gate, MemoryStore
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding.request import Response
from penstock.integrations.fastapi import limit
from penstock.integrations.flask import Penstock
from penstock.integrations.wsgi import PenstockWSGI

RULES = {"domain": "d", "descriptors": [{"key": "remote_address", "concurrency": 1}]}
ENVIRON = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7"}


def never(response: Response) -> bool:
    return False


# ASGI -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count_when", [None, never])
async def test_asgi_holds_the_slot_until_the_application_has_ended(count_when: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def streaming(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"done"})

    gate = AsyncGate.from_rules(RULES)
    app = PenstockMiddleware(streaming, gate=gate, count_when=count_when)
    first = asyncio.ensure_future(call(app))
    await begun.wait()
    assert await statuses(app, scope()) == [429]
    go_on.set()
    await first
    assert await statuses(app, scope(), scope()) == [200, 200]


async def test_asgi_frees_the_slot_of_a_request_that_fails_or_is_cancelled() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    async def hangs(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    gate = AsyncGate.from_rules(RULES)
    with pytest.raises(ZeroDivisionError):
        await call(PenstockMiddleware(fails, gate=gate))
    hanging = asyncio.ensure_future(call(PenstockMiddleware(hangs, gate=gate)))
    await asyncio.sleep(0)
    app = PenstockMiddleware(hello, gate=gate)
    assert await statuses(app, scope()) == [429]
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert await statuses(app, scope()) == [200]


async def test_a_limit_further_in_that_refuses_gives_the_slot_back() -> None:
    store = MemoryStore()
    inner = PenstockMiddleware(hello, limit="1/hour", store=store)
    app = PenstockMiddleware(inner, gate=AsyncGate.from_rules(RULES, store))
    assert await statuses(app, scope(), scope(), scope()) == [200, 429, 429]
    outer = PenstockMiddleware(hello, gate=AsyncGate.from_rules(RULES, store))
    assert await statuses(outer, scope()) == [200]


# WSGI -----------------------------------------------------------------------------------------


def wsgi_call(app: Any) -> tuple[str, Any]:
    said: list[str] = []
    body = app(dict(ENVIRON), lambda status, headers, *error: said.append(status))
    return said[0] if said else "", body


def test_wsgi_holds_the_slot_until_the_body_is_closed() -> None:
    def plain(environ: Any, start: Any) -> Any:
        start("200 OK", [])
        return [b"one", b"two"]

    app = PenstockWSGI(plain, gate=Gate.from_rules(RULES))
    status, body = wsgi_call(app)
    assert status == "200 OK"
    assert b"".join(body) == b"onetwo"
    assert wsgi_call(app)[0].startswith("429")
    body.close()
    body.close()
    status, body = wsgi_call(app)
    assert status == "200 OK"
    body.close()


def test_wsgi_frees_the_slot_of_a_request_that_fails() -> None:
    def fails(environ: Any, start: Any) -> Any:
        raise ZeroDivisionError

    def fails_later(environ: Any, start: Any) -> Iterator[bytes]:
        yield b""
        raise ZeroDivisionError

    gate = Gate.from_rules(RULES)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            wsgi_call(PenstockWSGI(fails, gate=gate))
    for _ in range(2):
        _, body = wsgi_call(PenstockWSGI(fails_later, gate=gate))
        with pytest.raises(ZeroDivisionError):
            b"".join(body)
        body.close()


# Frameworks -----------------------------------------------------------------------------------


def test_flask() -> None:
    app = new_app()
    Penstock(app, gate=Gate.from_rules(RULES))

    @app.get("/")
    def inside() -> str:
        return str(flask_statuses(app, "/inner"))

    @app.get("/inner")
    def inner() -> str:
        return "ok"

    @app.get("/fails")
    def fails() -> str:
        raise ZeroDivisionError

    client = app.test_client()
    assert client.get("/").text == "[429]"
    assert flask_statuses(app, "/fails", "/inner", "/fails", "/inner") == [500, 200, 500, 200]
    assert isinstance(app, flask.Flask)


def test_django() -> None:
    def inside(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(Client().get("/inner").status_code))

    def fails(request: HttpRequest) -> HttpResponse:
        raise ZeroDivisionError

    urls = [path("", inside), path("inner", lambda r: HttpResponse("ok")), path("fails", fails)]
    with site(urls, {"gate": Gate.from_rules(RULES)}):
        client = Client(raise_request_exception=False)
        assert client.get("/").content == b"429"
        answers = [client.get(f"/{where}").status_code for where in ("fails", "inner", "inner")]
        assert answers == [500, 200, 200]


def test_fastapi() -> None:
    app = FastAPI()
    gate = AsyncGate.from_rules(RULES)

    @app.get("/", dependencies=[Depends(limit(gate=gate))])
    async def root(fail: bool = False) -> str:
        if fail:
            raise ZeroDivisionError
        return "ok"

    with TestClient(app, raise_server_exceptions=False, client=("203.0.113.7", 1)) as client:
        answers = [client.get("/", params={"fail": fail}).status_code for fail in (0, 1, 0, 0)]
    assert answers == [200, 500, 200, 200]


@pytest.fixture(scope="module")
def loop() -> Iterator[GrpcLoop]:
    loop = GrpcLoop()
    yield loop
    loop.close()


@pytest.mark.parametrize("stack", [SYNC, AIO])
def test_grpc(stack: str, loop: GrpcLoop) -> None:
    bench = Bench(stack, loop)
    try:
        kind = AsyncGate if bench.asynchronous else Gate
        client = bench.limited(gate=kind.from_rules(RULES, store=bench.store))
        for kind_of_call in ("unary_unary", "unary_stream"):
            assert [client.call(kind_of_call).passed for _ in range(3)] == [True] * 3
    finally:
        bench.close()
