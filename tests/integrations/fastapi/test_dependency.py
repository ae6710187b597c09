"""FastAPI's dependency, under a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Response, WebSocket
from fastapi.responses import JSONResponse, StreamingResponse
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from integrations.serving import ask, uvicorn_server
from penstock import MemoryStore
from penstock.integrations import Request, by_header, by_ip, by_route
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.fastapi import LimitFields, RateLimited, limit

LEFT = "X-RateLimit-Remaining"


def failed(response: Any) -> bool:
    return bool(response.status == 401)


async def by_tenant(request: Request) -> str:
    return request.header("x-tenant") or "nobody"


def application() -> FastAPI:
    app = FastAPI()
    shared = Depends(limit("2/hour"))

    @app.get("/search", dependencies=[Depends(limit("2/hour", key=by_ip))])
    async def search(q: str = "") -> dict[str, str]:
        return {"q": q}

    @app.get("/threads", dependencies=[Depends(limit("2/hour"))])
    def in_a_thread() -> str:
        return "ok"

    @app.get("/a", dependencies=[shared])
    @app.get("/b", dependencies=[shared])
    async def together() -> str:
        return "ok"

    @app.get("/tenant", dependencies=[Depends(limit("1/hour", key=by_tenant))])
    async def tenant() -> str:
        return "ok"

    @app.get("/items/{item}", dependencies=[Depends(limit("2/hour", key=by_route))])
    async def item(item: int) -> int:
        return item

    @app.get("/log-in", dependencies=[Depends(limit("2/hour", count_when=failed))])
    async def log_in(ok: bool, plain: bool = False) -> Any:
        if not ok and plain:
            return JSONResponse({}, 401)
        if not ok:
            raise HTTPException(401)
        return "welcome"

    @app.get("/plain", dependencies=[Depends(limit("5/hour"))])
    async def plain() -> Response:
        return Response("my own")

    @app.get("/stream", dependencies=[Depends(limit("5/hour"))])
    async def stream() -> Response:
        return StreamingResponse(iter([b"a", b"b"]))

    @app.get("/two", dependencies=[Depends(limit("9/hour")), Depends(limit("2/hour", name="two"))])
    async def two() -> str:
        return "ok"

    @app.websocket("/ws", dependencies=[Depends(limit("1/hour"))])
    async def ws(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("in")
        await websocket.close()

    router = APIRouter(prefix="/r", dependencies=[Depends(limit("1/hour", key=by_header("x-t")))])

    @router.get("/x")
    async def x() -> str:
        return "ok"

    app.include_router(router)
    return app


@pytest.fixture
def port() -> Iterator[int]:
    with uvicorn_server(application()) as port:
        yield port


@pytest.fixture
def told() -> Iterator[int]:
    """The same, with `LimitFields`."""
    app = application()
    app.add_middleware(LimitFields)
    with uvicorn_server(app) as port:
        yield port


def test_a_handler_is_asked_for_nothing(port: int) -> None:
    answers = [ask(port, "/search?q=a") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert json.loads(answers[0].body) == {"q": "a"}
    assert [answer.header(LEFT) for answer in answers] == ["1", "0", "0"]
    assert json.loads(answers[2].body) == {"error": "Rate limit exceeded", "retry_after": 1800}
    assert answers[2].header("Retry-After") == "1800"
    assert answers[2].header("Content-Type") == "application/json"
    problem = ask(port, "/search", headers=(("Accept", "application/problem+json"),))
    assert problem.header("Content-Type") == "application/problem+json"
    assert [ask(port, "/threads").status for _ in range(3)] == [200, 200, 429]


def test_one_dependency_is_one_limit(port: int) -> None:
    assert [ask(port, path).status for path in ("/a", "/b", "/a", "/b")] == [200, 200, 429, 429]


def test_keys(port: int) -> None:
    def tenant(name: str) -> int:
        return ask(port, "/tenant", headers=(("X-Tenant", name),)).status

    assert [tenant(name) for name in ("a", "b", "a")] == [200, 200, 429]
    assert [ask(port, f"/items/{n}").status for n in (1, 2, 3)] == [200, 200, 429]
    assert [ask(port, "/r/x").status for _ in range(2)] == [200, 429]


def test_failed_log_ins(port: int) -> None:
    assert [ask(port, "/log-in?ok=1").status for _ in range(5)] == [200] * 5
    assert [ask(port, "/log-in?ok=0").status for _ in range(3)] == [401, 401, 429]


def test_failed_log_ins_that_are_responses(told: int) -> None:
    assert [ask(told, "/log-in?ok=1").status for _ in range(5)] == [200] * 5
    assert [ask(told, "/log-in?ok=0&plain=1").status for _ in range(3)] == [401, 401, 429]


def test_responses_of_their_own_tell_with_the_middleware(told: int) -> None:
    assert ask(told, "/plain").header(LEFT) == "4"
    assert ask(told, "/stream").header(LEFT) == "4"
    assert ask(told, "/search").header(LEFT) == "1"
    refused = [ask(told, "/search") for _ in range(2)][-1]
    assert (refused.status, refused.header("X-RateLimit-Limit")) == (429, "2")


def test_two_limits_are_told_in_one_set_of_fields(told: int) -> None:
    answers = [ask(told, "/two") for _ in range(3)]
    assert answers[0].header("RateLimit") == '"two";r=1;t=1800, "9/hour";r=8;t=400'
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].header("X-RateLimit-Limit") == "2"


def test_with_the_middleware_for_all() -> None:
    app = application()
    app.add_middleware(PenstockMiddleware, limit="7/hour", name="all")
    with uvicorn_server(app) as port:
        answer = ask(port, "/plain")
        assert answer.header("RateLimit-Policy") == '"5/hour";q=5;w=3600, "all";q=7;w=3600'
        assert answer.header(LEFT) == "4"


def test_a_websocket_is_refused(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}/ws") as first:
        assert first.recv() == "in"
    # FastAPI closes before it accepts; HTTP knows that as 403.
    with pytest.raises(InvalidStatus, match="403"), connect(f"ws://127.0.0.1:{port}/ws"):
        pass


def test_a_handler_of_ones_own_answers_first() -> None:
    app = application()

    @app.exception_handler(RateLimited)
    async def tea(request: Any, error: RateLimited) -> Response:
        return Response("tea?", 418, error.headers)

    with uvicorn_server(app) as port:
        answers = [ask(port, "/search") for _ in range(3)]
    assert (answers[2].status, answers[2].body) == (418, b"tea?")
    assert answers[2].header("Retry-After") == "1800"


def test_in_one_store_a_name_tells_limits_apart() -> None:
    app, store = FastAPI(), MemoryStore()

    def hello() -> str:
        return "hello"

    for path, options in (("/a", {"name": "a"}), ("/b", {"name": "b"}), ("/c", {"name": "b"})):
        dependency = Depends(limit("1/hour", store=store, **options))
        app.get(path, dependencies=[dependency])(hello)
    with uvicorn_server(app) as port:
        assert [ask(port, path).status for path in ("/a", "/b", "/c", "/a")] == [200, 200, 429, 429]
    with pytest.raises(TypeError, match="needs a name"):
        limit("1/hour", store=store)
