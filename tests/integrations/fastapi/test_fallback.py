"""``fallback`` and ``defer`` in FastAPI, of a decorator and of a dependency."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import Body, Depends, FastAPI, Request, Response, WebSocket
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.fastapi import LimitFields, limit

Add = Callable[..., None]


@pytest.fixture(params=["decorator", "dependency"])
def add(request: pytest.FixtureRequest) -> Add:
    """Add a handler for POST with a limit, in either way."""

    def add_route(app: FastAPI, handler: Any, *args: Any, **options: Any) -> None:
        route_limit = limit(*args, **options)
        if request.param == "decorator":
            app.post("/{number}")(route_limit(handler))
        else:
            app.post("/{number}", dependencies=[Depends(route_limit)])(handler)

    return add_route


async def handler(number: int) -> dict[str, int]:
    return {"number": number}


def test_a_fallback_answers_instead(add: Add) -> None:
    app = FastAPI()
    add(app, handler, "1/hour", fallback=lambda request: {"stale": request.path_params["number"]})
    answers = [TestClient(app).post("/7") for _ in range(2)]
    assert [answer.json() for answer in answers] == [{"number": 7}, {"stale": "7"}]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert "X-RateLimit-Fallback" not in answers[0].headers
    assert answers[1].headers["X-RateLimit-Fallback"] == "true"
    assert answers[1].headers["RateLimit"].startswith('"1/hour";r=0;t=')


class Cache:
    async def of(self, request: Request) -> Response:
        return Response(await request.body(), 203, {"X-Cache": "hit"})

    __call__ = of


@pytest.mark.parametrize("cached", [Cache().of, Cache()])
def test_fallbacks_may_await_and_return_a_response(add: Add, cached: Any) -> None:
    app = FastAPI()
    add(app, handler, "1/hour", fallback=cached)
    answers = [TestClient(app).post("/7", content=b"hello") for _ in range(2)]
    assert (answers[1].status_code, answers[1].content) == (203, b"hello")
    assert answers[1].headers["X-Cache"] == "hit"


def test_a_plain_fallback_runs_in_a_thread(add: Add) -> None:
    app, threads = FastAPI(), []

    async def note(number: int) -> None:
        threads.append(threading.get_ident())

    def fallback(request: Request) -> None:
        threads.append(threading.get_ident())

    add(app, note, "1/hour", fallback=fallback)
    with TestClient(app) as client:
        assert [client.post("/1").status_code for _ in range(2)] == [200, 200]
    assert len(set(threads)) == 2


@pytest.mark.parametrize("outside", [PenstockMiddleware, LimitFields])
def test_a_fallback_within_a_middleware(add: Add, outside: Any) -> None:
    app = FastAPI()
    add(app, handler, "1/hour", fallback=lambda request: "stale")
    app.add_middleware(outside, **({"limit": "9/hour"} if outside is PenstockMiddleware else {}))
    answers = [TestClient(app).post("/7") for _ in range(2)]
    assert answers[1].json() == "stale"
    names = [name.lower() for name, _ in answers[1].headers.multi_items()]
    assert names.count("ratelimit") == 1
    assert '"1/hour";r=0' in answers[1].headers["RateLimit"]


def test_a_request_is_deferred(add: Add) -> None:
    app, queue = FastAPI(), []

    async def put(kept: Any) -> str:
        queue.append(kept)
        return "/jobs/1"

    add(app, handler, "1/hour", defer=put, defer_body=5)
    client = TestClient(app, client=("203.0.113.7", 50000))
    answers = [client.post("/7?a=b", content=b"later", headers={"X-A": "b"}) for _ in range(2)]
    assert (answers[1].status_code, answers[1].headers["Location"]) == (202, "/jobs/1")
    assert answers[1].json()["retry_after"] == 3600
    assert answers[1].headers["RateLimit"].startswith('"1/hour";r=0')
    (kept,) = queue
    assert (kept.method, kept.path, kept.query, kept.body) == ("POST", "/7", "a=b", b"later")
    assert kept.client == "203.0.113.7"
    assert ("x-a", "b") in kept.headers
    assert client.post("/7", content=b"longer").status_code == 429
    assert len(queue) == 1


def test_a_body_that_fastapi_has_read_is_deferred(add: Add) -> None:
    app, queue = FastAPI(), []

    async def of_json(number: int, item: Annotated[dict[str, int], Body()]) -> None: ...

    add(app, of_json, "1/hour", defer=lambda kept: queue.append(kept) or "/jobs/1")
    client = TestClient(app)
    assert [client.post("/7", json={"a": 1}).status_code for _ in range(2)] == [200, 202]
    assert queue[0].body == b'{"a":1}'


def test_a_body_that_nobody_kept_is_refused() -> None:
    app, queue = FastAPI(), []

    async def consume(request: Request) -> None:  # as FastAPI does with forms
        async for _ in request.stream():
            pass

    narrow = limit("1/hour", defer=lambda kept: queue.append(kept) or "/jobs/1")
    app.post("/", dependencies=[Depends(consume), Depends(narrow)])(lambda: "ok")
    client = TestClient(app)
    assert [client.post("/", content=b"a").status_code for _ in range(2)] == [200, 429]
    assert not queue


def test_a_full_queue_refuses(add: Add) -> None:
    app = FastAPI()
    add(app, handler, "1/hour", defer=lambda kept: None)
    assert [TestClient(app).post("/7").status_code for _ in range(2)] == [200, 429]


def test_handlers_for_errors_see_no_fallback(add: Add) -> None:
    app = FastAPI()
    add(app, handler, "1/hour", fallback=lambda request: "stale")

    @app.exception_handler(Exception)
    async def any_error(request: Request, error: Exception) -> Response:
        return Response("error", 500)

    assert [TestClient(app).post("/7").json() for _ in range(2)] == [{"number": 7}, "stale"]


def test_an_outer_limit_that_counts_failures_does_not_count_a_fallback() -> None:
    app = FastAPI()
    outer = limit("1/hour", count_when=lambda response: response.failed, name="failures")
    inner = limit("1/hour", fallback=lambda request: "stale")
    app.get("/", dependencies=[Depends(outer), Depends(inner)])(lambda: "ok")
    answers = [TestClient(app).get("/").json() for _ in range(4)]
    assert answers == ["ok", "stale", "stale", "stale"]


def test_a_websocket_is_refused_all_the_same() -> None:
    app = FastAPI()

    @app.websocket("/")
    @limit("1/hour", fallback=lambda request: "stale")
    async def ws(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    client = TestClient(app)
    with client.websocket_connect("/"):
        pass
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/"):
        pass


def test_wrong_options() -> None:
    wrong: Any = "stale"
    with pytest.raises(TypeError, match="fallback is a function of the request"):
        limit("1/hour", fallback=wrong)
    with pytest.raises(TypeError, match="fallback or defer"):
        limit("1/hour", fallback=print, defer=lambda kept: None)
