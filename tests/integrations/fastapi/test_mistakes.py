"""What `limit` says about mistakes in FastAPI."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from fastapi.testclient import TestClient
from pydantic import BaseModel

from penstock import MemoryStore
from penstock.integrations import Request as OurRequest
from penstock.integrations import by_ip
from penstock.integrations.fastapi import limit


class Item(BaseModel):
    name: str


def current_user(x_user: str = "nobody") -> str:
    return x_user


User = Annotated[str, Depends(current_user)]


def test_above_the_route() -> None:
    app = FastAPI()
    with pytest.raises(TypeError, match=r"write @limit\(\.\.\.\) below @app\.get"):

        @limit("1/hour")
        @app.get("/")
        async def home() -> str:
            return "ok"

    with pytest.raises(TypeError, match="live has its route already"):

        @limit("1/hour")
        @app.websocket("/ws")
        async def live(websocket: WebSocket) -> None: ...

    router = APIRouter()
    with pytest.raises(TypeError, match="below"):

        @limit("1/hour")
        @router.get("/")
        def sync() -> str:
            return "ok"


def test_functions_that_others_know_can_be_decorated() -> None:
    def plain() -> str:
        return "ok"

    kept = [plain, {"endpoint": plain}, (plain,), lambda: plain]
    assert limit("1/hour")(plain)() == "ok"
    assert len(kept) == 4
    FastAPI().get("/")(_no_arguments)
    assert iscoroutinefunction(limit("1/hour")(_no_arguments))


async def _no_arguments() -> None: ...


async def _one_text(q: str) -> None: ...


async def _one_item(item: Item) -> None: ...


async def _one_user(user: User) -> None: ...


async def _two(a: Any, b: Any) -> None: ...


async def _native(request: Request) -> None: ...


HANDLERS = [_no_arguments, _one_text, _one_item, _one_user, _two, _native]


@pytest.mark.parametrize("handler", HANDLERS)
def test_without_a_limit(handler: Any) -> None:
    with pytest.raises(TypeError, match=r'write @limit\("10/second"\)'):
        limit(handler)


def test_without_a_limit_where_it_could_be_a_function_of_the_request() -> None:
    app = FastAPI()

    @app.get("/{name}")
    @limit
    async def show(name):  # type: ignore[no-untyped-def]
        return name

    with pytest.raises(TypeError, match=r'write @limit\("10/second"\)'):
        TestClient(app).get("/a")


def test_functions_of_the_request_are_limits() -> None:
    def typed(request: OurRequest) -> str:
        return "1/hour"

    class Plans:
        def __call__(self, request: Any) -> str:
            return "1/hour"

        async def of(self, request: object) -> str:
            return "1/hour"

    for function in (typed, lambda request: "1/hour", Plans(), Plans().of):
        app = FastAPI(dependencies=[Depends(limit(function, key=by_ip))])
        app.get("/")(lambda: "ok")
        client = TestClient(app)
        assert [client.get("/").status_code for _ in range(2)] == [200, 429]


def test_depends_without_a_call() -> None:
    with pytest.raises(TypeError, match=r'write Depends\(limit\("10/second"\)\)'):
        FastAPI().get("/", dependencies=[Depends(limit)])(_no_arguments)

    async def with_parameter(_: Annotated[None, Depends(limit)]) -> None: ...

    with pytest.raises(TypeError, match=r'write Depends\(limit\("10/second"\)\)'):
        FastAPI().get("/")(with_parameter)


def test_dependencies_without_depends() -> None:
    wrong: Any = limit("1/hour")
    message = r'write dependencies=\[Depends\(limit\("10/second"\)\)\]'
    with pytest.raises(TypeError, match=message):
        FastAPI().get("/", dependencies=[wrong])(_no_arguments)
    app = FastAPI(dependencies=[wrong])
    with pytest.raises(TypeError, match=message):
        app.get("/")(_no_arguments)


def test_other_mistakes() -> None:
    with pytest.raises(TypeError, match="decorates a handler, not 7"):
        limit("1/hour")(7)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="decorates a handler, not None"):
        limit("1/hour")()
    with pytest.raises(TypeError, match="give either limit"):
        limit()
    with pytest.raises(TypeError, match="did you mean 'override'"):
        limit("1/hour", overide=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="override is True or False"):
        limit("1/hour", override="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a name"):
        limit("1/hour", store=MemoryStore())
