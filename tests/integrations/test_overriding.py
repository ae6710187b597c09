"""``@exempt``, and limits of views in place of those of the site."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

# Before REST framework, which reads settings when it is imported.
from integrations.django.site import REST, Asker, hello, hello_async, site

# isort: split
import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from fastapi.testclient import TestClient
from flask import Blueprint
from flask.views import MethodView
from rest_framework.decorators import api_view
from rest_framework.response import Response as RestResponse
from rest_framework.views import APIView
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from integrations.flask.site import new_app, statuses
from penstock.integrations import django, fastapi, flask
from penstock.integrations.asgi import PenstockMiddleware, exempt

RULES = """
domain: web
descriptors:
  - key: remote_address
    limits: 1/hour
    deny: [203.0.113.66]
"""


def loud(view: Any) -> Any:
    @wraps(view)
    def louder(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return louder


# Flask ---------------------------------------------------------------------------------------


def test_flask() -> None:
    app = new_app()
    flask.Penstock(app, "1/hour")

    @app.get("/health")
    @flask.exempt
    def health() -> str:
        return "ok"

    @flask.exempt
    @app.get("/above")
    def above() -> str:
        return "ok"

    @app.get("/more")
    @loud
    @flask.limit("3/hour", override=True)
    def more() -> str:
        return "ok"

    @app.get("/beside")
    @flask.limit("3/hour")
    def beside() -> str:
        return "ok"

    assert statuses(app, *["/health", "/above"] * 3) == [200] * 6
    assert statuses(app, *["/more"] * 4) == [200, 200, 200, 429]
    assert statuses(app, *["/beside"] * 2) == [200, 429]
    assert statuses(app, "/more", "/health", "/nothing") == [429, 200, 429]
    headers = app.test_client().get("/more").headers
    assert headers["RateLimit-Policy"] == '"3/hour";q=3;w=3600'
    assert "RateLimit" not in app.test_client().get("/health").headers


def test_flask_blueprints_classes_and_async_views() -> None:
    app, blueprint = new_app(), Blueprint("shop", "shop")
    flask.Penstock(app, "1/hour", name="site")
    flask.Penstock(blueprint, "1/hour")

    class Pages(MethodView):
        decorators = (flask.exempt,)

        def get(self) -> str:
            return "ok"

    @flask.exempt
    class Marked(MethodView):
        def get(self) -> str:
            return "ok"

    @blueprint.get("/async")
    @flask.limit("2/hour", override=True)
    async def coroutine() -> str:
        return "ok"

    blueprint.add_url_rule("/pages", view_func=Pages.as_view("pages"))
    blueprint.add_url_rule("/marked", view_func=Marked.as_view("marked"))
    app.register_blueprint(blueprint)
    assert statuses(app, *["/pages", "/marked"] * 2) == [200] * 4
    assert statuses(app, *["/async"] * 3) == [200, 200, 429]


def test_flask_counts_what_it_answers_itself() -> None:
    """No view is called, so no limit of the view replaces that of the site."""
    app = new_app()
    flask.Penstock(app, "1/hour")
    app.get("/")(flask.limit("9/hour", override=True)(lambda: "ok"))
    client = app.test_client()
    assert [client.options("/").status_code for _ in range(2)] == [200, 429]
    assert [client.get("/").status_code for _ in range(2)] == [200, 200]
    assert client.post("/").status_code == 429


# Django --------------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


class Pages(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("ok")


class ExemptPages(Pages):
    @method_decorator(django.exempt)
    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(*args, **kwargs)


def wrapped(view: Any) -> Any:
    """A view of its own, as marks stay."""

    @wraps(view)
    def another(request: HttpRequest) -> Any:
        return view(request)

    @wraps(view)
    async def another_async(request: HttpRequest) -> Any:
        return await view(request)

    return another_async if view is hello_async else another


@BOTH
@pytest.mark.parametrize("view", [hello, hello_async])
def test_django(asynchronous: bool, view: Any) -> None:
    with site([]):
        more = django.limit("3/hour", override=True)(view)
        beside = django.limit("3/hour")(view)
    urls = [
        path("health", django.exempt(wrapped(view))),
        path("deep/", include([path("more", more)])),
        path("beside", beside),
        path("class", ExemptPages.as_view()),
        path("named", method_decorator(django.exempt, name="dispatch")(Pages).as_view()),
    ]
    with site(urls, {"limit": "1/hour"}):
        asker = Asker(asynchronous)
        assert asker.statuses(*["/health", "/class", "/named"] * 2) == [200] * 6
        assert asker.statuses(*["/deep/more"] * 4) == [200, 200, 200, 429]
        assert asker.statuses(*["/beside"] * 2) == [200, 429]
        assert asker.statuses("/nothing", "/health") == [429, 200]


def test_rest_framework() -> None:
    class Free(APIView):
        def get(self, request: Any) -> RestResponse:
            return RestResponse("ok")

    @django.exempt
    class Marked(Free):
        pass

    function = django.exempt(api_view(["GET"])(lambda request: RestResponse("ok")))
    rest = {
        **REST,
        "DEFAULT_THROTTLE_CLASSES": ["penstock.integrations.django.rest_framework.AnonThrottle"],
        "DEFAULT_THROTTLE_RATES": {"anon": "1/hour"},
    }
    from rest_framework.settings import api_settings

    urls = [path("free", Free.as_view()), path("marked", Marked.as_view()), path("f", function)]
    with site(urls, {"limit": "2/hour"}, REST_FRAMEWORK=rest):
        api_settings.reload()
        for view in (Free, Marked):
            view.throttle_classes = api_settings.DEFAULT_THROTTLE_CLASSES
        client = Client()
        assert [client.get("/marked").status_code for _ in range(3)] == [200] * 3
        assert [client.get("/f").status_code for _ in range(3)] == [200] * 3
        assert [client.get("/free").status_code for _ in range(2)] == [200, 429]
    api_settings.reload()


# ASGI and FastAPI ----------------------------------------------------------------------------


def asked(app: Any, *paths: str) -> list[int]:
    client = TestClient(app)
    return [client.get(path).status_code for path in paths]


def test_starlette() -> None:
    async def page(request: Any) -> Any:
        return PlainTextResponse("ok")

    @exempt
    async def health(request: Any) -> Any:
        return PlainTextResponse("ok")

    @exempt
    class Free(HTTPEndpoint):
        async def get(self, request: Any) -> Any:
            return await page(request)

    inner = Starlette(routes=[Route("/health", health), Route("/page", page)])
    routes = [Route("/health", health), Route("/free", Free), Mount("/in", inner)]
    app = Starlette(routes=routes)
    app.add_middleware(PenstockMiddleware, limit="1/hour")
    assert asked(app, *["/health", "/free", "/in/health"] * 2) == [200] * 6
    assert asked(app, "/in/page", "/in/page", "/nothing", "/health") == [200, 429, 429, 200]


Outside = Callable[[], FastAPI]


def with_middleware() -> FastAPI:
    app = FastAPI()
    app.add_middleware(PenstockMiddleware, limit="1/hour")
    return app


def with_dependency() -> FastAPI:
    return FastAPI(dependencies=[Depends(fastapi.limit("1/hour"))])


def with_both() -> FastAPI:
    app = with_dependency()
    app.add_middleware(PenstockMiddleware, limit="1/hour")
    return app


@pytest.mark.parametrize("outside", [with_middleware, with_dependency, with_both])
def test_fastapi(outside: Outside) -> None:
    app = outside()

    @app.get("/health")
    @fastapi.exempt
    async def health() -> str:
        return "ok"

    @fastapi.exempt
    @app.get("/above")
    async def above() -> str:
        return "ok"

    @app.get("/more")
    @loud
    @fastapi.limit("3/hour", override=True)
    async def more() -> str:
        return "ok"

    more_too = fastapi.limit("3/hour", override=True)
    router = APIRouter(prefix="/r", dependencies=[Depends(fastapi.limit("2/hour"))])

    @router.get("/depends", dependencies=[Depends(more_too)])
    async def depends() -> str:
        return "ok"

    @router.get("/parameter")
    async def parameter(_: Annotated[None, Depends(fastapi.limit("3/hour", override=True))]) -> str:
        return "ok"

    @router.get("/exempt")
    @fastapi.exempt
    async def in_router() -> str:
        return "ok"

    @app.get("/beside")
    @fastapi.limit("3/hour")
    async def beside() -> str:
        return "ok"

    app.include_router(router, prefix="/v1")
    assert asked(app, *["/health", "/above", "/v1/r/exempt"] * 3) == [200] * 9
    for path_ in ("/more", "/v1/r/depends", "/v1/r/parameter"):
        assert asked(app, *[path_] * 4) == [200, 200, 200, 429]
    assert asked(app, *["/beside"] * 2) == [200, 429]
    assert TestClient(app).get("/more").headers["RateLimit-Policy"] == '"3/hour";q=3;w=3600'


def test_fastapi_overrides_what_is_further_out_and_nothing_else() -> None:
    def policies(*limits: Any, decorators: Any = (), outer: Any = ()) -> str:
        app = FastAPI(dependencies=[Depends(each) for each in outer])

        async def home() -> str:
            return "ok"

        handler: Any = home
        for each in reversed(decorators):
            handler = each(handler)
        app.get("/", dependencies=[Depends(each) for each in limits])(handler)
        policy: str = TestClient(app).get("/").headers["RateLimit-Policy"]
        return " ".join(sorted(each.split('"')[1] for each in policy.split(", ")))

    def named(name: str, override: bool = False) -> Any:
        return fastapi.limit("9/hour", name=name, override=override)

    assert policies(named("b"), decorators=[named("c")], outer=[named("a")]) == "a b c"
    assert policies(named("b", True), decorators=[named("c")], outer=[named("a")]) == "b c"
    assert policies(named("b"), decorators=[named("c", True)], outer=[named("a")]) == "c"
    assert policies(named("b", True), decorators=[named("c", True)]) == "c"
    assert policies(decorators=[named("b"), named("c", True), named("d")]) == "c d"
    assert policies(decorators=[named("b")], outer=[named("a", True)]) == "a b"


def test_fastapi_counts_what_no_handler_answers() -> None:
    app = with_middleware()
    app.get("/")(fastapi.limit("9/hour", override=True)(lambda: "ok"))
    client = TestClient(app)
    assert [client.post("/").status_code for _ in range(2)] == [405, 429]
    assert [client.get("/").status_code for _ in range(2)] == [200, 200]


def test_fastapi_websockets() -> None:
    app = with_middleware()

    @app.websocket("/ws")
    @fastapi.exempt
    async def ws(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    for _ in range(2):
        with TestClient(app).websocket_connect("/ws"):
            pass


# Everywhere ----------------------------------------------------------------------------------


def test_deny_lists_still_apply(tmp_path: Any) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    app = FastAPI()
    app.add_middleware(PenstockMiddleware, gate=str(tmp_path / "rules.yaml"))
    app.get("/")(exempt(lambda: "ok"))
    site_ = new_app()
    flask.Penstock(site_, gate=str(tmp_path / "rules.yaml"))
    site_.get("/")(exempt(lambda: "ok"))
    for address, status in (("203.0.113.7", 200), ("203.0.113.66", 403)):
        client = TestClient(app, client=(address, 50000))
        assert [client.get("/").status_code for _ in range(2)] == [status] * 2
        environ = {"REMOTE_ADDR": address}
        assert statuses(site_, "/", "/", environ_base=environ) == [status] * 2


def test_mistakes() -> None:
    class Slots:
        __slots__ = ()

        def __call__(self) -> None: ...

    with pytest.raises(TypeError, match="exempt decorates a view"):
        exempt(7)
    with pytest.raises(TypeError, match="exempt is for functions and classes"):
        exempt(Slots())
    for limit in (flask.limit, fastapi.limit):
        with pytest.raises(TypeError, match="override is True or False"):
            limit("1/hour", override=1)  # type: ignore[operator]
    with pytest.raises(TypeError, match="no option 'override'"):
        flask.Penstock(new_app(), "1/hour", override=True)  # type: ignore[call-arg]
    assert asyncio.iscoroutinefunction(exempt(wrapped(hello_async)))
