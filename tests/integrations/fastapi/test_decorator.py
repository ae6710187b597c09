"""``@limit`` over FastAPI's handlers."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from functools import wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.testclient import TestClient
from pydantic import BaseModel
from starlette.websockets import WebSocketDisconnect

from penstock.integrations import by_header
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.fastapi import limit

LEFT = "X-RateLimit-Remaining"


class Item(BaseModel):
    name: str
    price: float = 0


def current_user(x_user: str = "nobody") -> str:
    return x_user


User = Annotated[str, Depends(current_user)]


def failed(response: Any) -> bool:
    return bool(response.status == 401)


def application() -> FastAPI:
    app = FastAPI()
    shared = limit("2/hour")

    @app.get("/search")
    @limit("2/hour")
    async def search(q: str = "") -> dict[str, str]:
        return {"q": q}

    @app.get("/thread")
    @limit("2/hour")
    def in_a_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    @app.put("/items/{number}")
    @limit("2/hour")
    async def put(number: int, item: Item, user: User, *, tag: list[str] = Query([])) -> Any:  # noqa: B008 - as users write
        return {"number": number, "name": item.name, "user": user, "tag": tag}

    @app.get("/shared")
    @shared
    async def decorated() -> str:
        return "decorated"

    @app.get("/shared-too", dependencies=[Depends(shared)])
    async def depends() -> str:
        return "depends"

    @app.get("/two")
    @limit("9/hour")
    @limit("2/hour", name="two")
    async def two(request: Request, response: Response) -> str:
        return request.url.path

    @app.get("/plain")
    @limit("5/hour")
    async def plain() -> Response:
        return PlainTextResponse("my own", headers={"X-Mine": "yes"})

    @app.get("/log-in")
    @limit("2/hour", count_when=failed)
    def log_in(ok: bool, raises: bool = False) -> Any:
        if raises and not ok:
            raise HTTPException(401)
        return JSONResponse("welcome" if ok else "no", 200 if ok else 401)

    @app.websocket("/ws")
    @limit("1/hour")
    async def ws(websocket: WebSocket, name: str = "you") -> None:
        await websocket.accept()
        await websocket.send_text(name)
        await websocket.close()

    router = APIRouter(prefix="/r")

    @router.get("/x/{number}")
    @limit("1/hour", key=by_header("x-tenant"))
    async def x(number: int) -> int:
        return number

    app.include_router(router, prefix="/v1")
    return app


@pytest.fixture
def client() -> TestClient:
    return TestClient(application())


def test_a_handler_needs_no_request_argument(client: TestClient) -> None:
    answers = [client.get("/search?q=a") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].json() == {"q": "a"}
    assert [answer.headers[LEFT] for answer in answers] == ["1", "0", "0"]
    assert answers[2].json() == {"error": "Rate limit exceeded", "retry_after": 1800}
    assert answers[2].headers["Retry-After"] == "1800"


def test_a_sync_handler_runs_in_a_thread(client: TestClient) -> None:
    answers = [client.get("/thread") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].json() is False


def test_path_query_body_and_annotated_dependencies(client: TestClient) -> None:
    path = "/items/7?x_user=ann&tag=a&tag=b"
    answers = [client.put(path, json={"name": "tea"}) for _ in range(3)]
    assert answers[0].json() == {"number": 7, "name": "tea", "user": "ann", "tag": ["a", "b"]}
    assert [answer.status_code for answer in answers] == [200, 200, 429]


def test_requests_that_are_invalid_count_too(client: TestClient) -> None:
    answers = [client.put("/items/seven", json={}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [422, 422, 429]


def test_the_document_does_not_show_the_dependency(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    put = document["paths"]["/items/{number}"]["put"]
    assert {each["name"] for each in put["parameters"]} == {"number", "x_user", "tag"}
    assert "parameters" not in document["paths"]["/two"]["get"]
    assert document["paths"]["/search"]["get"]["operationId"] == "search_search_get"
    assert "penstock" not in str(document)


def test_the_same_object_as_decorator_and_as_dependency_is_one_limit(client: TestClient) -> None:
    paths = ["/shared", "/shared-too", "/shared", "/shared-too"]
    assert [client.get(path).status_code for path in paths] == [200, 200, 429, 429]


def test_two_decorators(client: TestClient) -> None:
    answers = [client.get("/two") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].json() == "/two"
    assert answers[0].headers["RateLimit"] == '"two";r=1;t=1800, "9/hour";r=8;t=400'
    assert answers[2].headers["RateLimit-Policy"] == '"two";q=2;w=3600, "9/hour";q=9;w=3600'
    assert '"9/hour";r=7' in answers[2].headers["RateLimit"]  # the refused one took nothing


def test_a_response_of_the_handler_gets_the_headers(client: TestClient) -> None:
    answer = client.get("/plain")
    assert (answer.text, answer.headers["X-Mine"], answer.headers[LEFT]) == ("my own", "yes", "4")


@pytest.mark.parametrize("raises", [False, True])
def test_count_when_sees_the_status(client: TestClient, raises: bool) -> None:
    path = f"/log-in?raises={raises}&ok="
    assert [client.get(path + "1").status_code for _ in range(5)] == [200] * 5
    assert [client.get(path + "0").status_code for _ in range(3)] == [401, 401, 429]


def test_generators_stream() -> None:
    app = FastAPI()

    @app.get("/lines")
    @limit("2/hour")
    async def lines() -> AsyncIterator[Item]:
        yield Item(name="a")
        yield Item(name="b")

    @app.get("/chunks", response_class=StreamingResponse)
    @limit("2/hour")
    def chunks() -> Iterator[bytes]:
        yield b"a"
        yield b"b"

    client = TestClient(app)
    assert [client.get("/lines").status_code for _ in range(3)] == [200, 200, 429]
    answers = [client.get("/chunks") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].content == b"ab"


def test_a_websocket_is_refused(client: TestClient) -> None:
    with client.websocket_connect("/ws?name=ann") as websocket:
        assert websocket.receive_text() == "ann"
    with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect("/ws"):
        pass
    assert refused.value.code == 1008


def test_routers(client: TestClient) -> None:
    def ask(tenant: str) -> int:
        return client.get("/v1/r/x/1", headers={"X-Tenant": tenant}).status_code

    assert [ask(name) for name in ("a", "b", "a")] == [200, 200, 429]


def test_with_a_middleware() -> None:
    app = application()
    app.add_middleware(PenstockMiddleware, limit="7/hour", name="all")
    answer = TestClient(app).get("/plain")
    assert answer.headers["RateLimit-Policy"] == '"5/hour";q=5;w=3600, "all";q=7;w=3600'


def test_a_decorated_handler_can_be_called() -> None:
    @limit("1/hour")
    def double(number: int) -> int:
        return 2 * number

    @limit("1/hour")
    async def hello() -> str:
        return "hello"

    assert [double(2), double(number=3)] == [4, 6]
    assert iscoroutinefunction(hello)


def test_other_decorators_above_and_below() -> None:
    def loud(handler: Any) -> Any:
        @wraps(handler)
        async def louder(*args: Any, **kwargs: Any) -> str:
            return str(await handler(*args, **kwargs)).upper()

        return louder

    app = FastAPI()

    @app.get("/above")
    @loud
    @limit("1/hour")
    async def above(word: str) -> str:
        return word

    @app.get("/below")
    @limit("1/hour")
    @loud
    async def below(word: str) -> str:
        return word

    client = TestClient(app)
    for path in ("/above?word=a", "/below?word=a"):
        answers = [client.get(path) for _ in range(2)]
        assert (answers[0].json(), answers[1].status_code) == ("A", 429)


def test_a_dependency_can_be_overridden() -> None:
    app, narrow = FastAPI(), limit("1/hour")

    @app.get("/")
    @narrow
    async def home() -> str:
        return "ok"

    app.dependency_overrides[narrow] = lambda: None
    assert [TestClient(app).get("/").status_code for _ in range(2)] == [200, 200]
