"""The responses of limits in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel

from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.fastapi import document_limits, exempt, limit


class Busy(BaseModel):
    message: str


def application(**options: Any) -> FastAPI:
    app = FastAPI(**options)
    document_limits(app)  # before the routes: it makes no difference

    @app.get("/decorated")
    @limit("1/hour")
    async def decorated() -> str:
        return "ok"

    @app.post("/depends", dependencies=[Depends(limit("1/hour"))])
    async def depends() -> str:
        return "ok"

    @app.get("/parameter")
    async def parameter(_: Annotated[None, Depends(limit("1/hour"))]) -> str:
        return "ok"

    async def common(_: Annotated[None, Depends(limit("1/hour"))]) -> None: ...

    @app.get("/nested", dependencies=[Depends(common)])
    async def nested() -> str:
        return "ok"

    @app.get("/own", responses={429: {"model": Busy, "description": "Busy"}})
    @limit("1/hour")
    async def own() -> str:
        return "ok"

    @app.get("/free")
    async def free() -> str:
        return "ok"

    @app.get("/health")
    @exempt
    async def health() -> str:
        return "ok"

    @app.get("/static/{name}")
    async def static(name: str) -> str:
        return name

    router = APIRouter(prefix="/r", dependencies=[Depends(limit("1/hour"))])

    @router.get("/x")
    async def x() -> str:
        return "ok"

    app.include_router(router, prefix="/v1")
    return app


def documented(app: FastAPI) -> dict[str, Any]:
    """The 429 of each path that has one."""
    paths = TestClient(app).get("/openapi.json").json()["paths"]
    return {
        path: operation["responses"]["429"]
        for path, operations in paths.items()
        for operation in operations.values()
        if "429" in operation["responses"]
    }


LIMITED = {"/decorated", "/depends", "/parameter", "/nested", "/own", "/v1/r/x"}


def test_routes_with_limits_show_their_429() -> None:
    assert documented(application()).keys() == LIMITED


def test_what_it_shows_is_what_is_sent() -> None:
    app = application()
    client = TestClient(app)
    document = client.get("/openapi.json").json()
    shown = document["paths"]["/decorated"]["get"]["responses"]["429"]
    for accept, kind in (("*/*", "application/json"), ("application/problem+json",) * 2):
        for _ in range(2):
            answer = client.get("/decorated", headers={"Accept": accept})
        assert answer.status_code == 429
        assert set(shown["headers"]) == {
            "Retry-After", "RateLimit", "RateLimit-Policy",
            "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
        }  # fmt: skip
        assert {name.lower() for name in shown["headers"]} <= set(answer.headers)
        reference = shown["content"][kind]["schema"]["$ref"]
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
        assert set(schema["properties"]) == set(schema["required"]) == set(answer.json())
        assert answer.headers["Content-Type"] == kind


def test_a_429_of_the_route_stays() -> None:
    own = documented(application())["/own"]
    assert own["description"] == "Busy"
    assert "headers" not in own


def test_with_a_middleware_all_routes_but_exempt_ones() -> None:
    app = application()
    app.add_middleware(PenstockMiddleware, limit="100/hour", exempt=["/static/*"])
    assert documented(app).keys() == LIMITED | {"/free"}


def test_with_a_middleware_whose_options_are_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_EXEMPT", "/static/*")
    app = application()
    app.add_middleware(PenstockMiddleware, limit="100/hour", from_env=True)
    assert documented(app).keys() == LIMITED | {"/free"}


def test_limits_that_are_off_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = documented(application())
    monkeypatch.setenv("PENSTOCK_ENABLED", "0")
    assert documented(application()) == shown


def test_with_a_limit_for_the_application() -> None:
    app = application(dependencies=[Depends(limit("100/hour"))])
    assert documented(app).keys() == LIMITED | {"/free", "/static/{name}"}


def test_routes_that_are_added_later_and_documents_that_are_asked_for_twice() -> None:
    app = application()
    first = documented(app)
    app.get("/late", dependencies=[Depends(limit("1/hour"))])(lambda: "ok")
    assert documented(app).keys() == first.keys() | {"/late"}
    assert documented(app) == documented(app)


def test_a_document_without_limits_is_as_it_was() -> None:
    app = FastAPI()
    app.get("/")(lambda: "ok")
    before = FastAPI.openapi(app)
    assert before == app.openapi()
    document_limits(app)
    assert app.openapi() == before
    assert "RateLimitExceeded" not in str(before)


def test_only_for_fastapi() -> None:
    with pytest.raises(TypeError, match="for a FastAPI application"):
        document_limits(APIRouter())  # type: ignore[arg-type]
