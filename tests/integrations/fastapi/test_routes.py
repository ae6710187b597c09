"""The routes of requests, by their templates: also those of included routers."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.testclient import TestClient
from starlette.routing import Mount, Route

from penstock.integrations import Request
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.fastapi import limit


async def show(request: Any = None, id: int = 0) -> Any:
    return id


def application(seen: list[str | None], *, before: bool) -> FastAPI:
    """With a key that notes the route, in a middleware or in dependencies."""

    def key(request: Request) -> str:
        seen.append(request.route)
        return "all"

    inner = APIRouter(prefix="/inner")
    inner.add_api_route("/items/{id}", show)
    outer = APIRouter(prefix="/outer")
    outer.add_api_route("/items/{id}", show)
    outer.include_router(inner, prefix="/again")
    dependencies = [] if before else [Depends(limit("100/hour", key=key))]
    app = FastAPI(dependencies=dependencies)
    app.add_api_route("/items/{id}", show)
    app.include_router(outer)
    app.include_router(inner, prefix="/v2")
    app.mount("/mounted", FastAPI(routes=[Mount("/in", routes=[Route("/{id}", show)])]))
    if before:
        app.add_middleware(PenstockMiddleware, limit="100/hour", key=key)
    return app


PATHS = {
    "/items/1": "/items/{id}",
    "/outer/items/1": "/outer/items/{id}",
    "/outer/again/inner/items/1": "/outer/again/inner/items/{id}",
    "/v2/inner/items/1": "/v2/inner/items/{id}",
}


@pytest.mark.parametrize("before", [True, False], ids=["middleware", "dependency"])
def test_the_template_has_the_prefixes_of_included_routers(before: bool) -> None:
    seen: list[str | None] = []
    client = TestClient(application(seen, before=before))
    assert [client.get(path).status_code for path in PATHS] == [200] * len(PATHS)
    assert seen == list(PATHS.values())


def test_a_path_without_a_route_and_one_with_other_methods() -> None:
    seen: list[str | None] = []
    client = TestClient(application(seen, before=True), raise_server_exceptions=False)
    assert client.get("/nothing").status_code == 404
    assert client.post("/v2/inner/items/1").status_code == 405
    client.get("/mounted/in/1")
    assert seen == [None, "/v2/inner/items/{id}", "/mounted/in/{id}"]
