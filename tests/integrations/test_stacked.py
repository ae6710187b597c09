"""Limits of one request in several places: all let it pass, or nothing is taken.

Everywhere the outer limit is one for all, 20/hour, and the inner one 2/hour for each caller. A
caller who is refused by the inner one must not empty the outer one for all others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import fastapi
import flask
import pytest
from django.core.handlers.asgi import ASGIHandler
from django.test import AsyncClient, Client
from django.urls import path
from fastapi.testclient import TestClient
from werkzeug.test import Client as WsgiClient

from integrations.asgi.test_limit import hello as asgi_hello
from integrations.django.site import hello, hello_async, site  # settings come first
from integrations.flask.site import new_app
from penstock import AsyncGate, Gate, Limiter, MemoryStore
from penstock.integrations import Request
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.django import limit as django_limit
from penstock.integrations.fastapi import LimitFields
from penstock.integrations.fastapi import limit as dependency
from penstock.integrations.flask import Penstock
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.wsgi import PenstockWSGI
from penstock.testing import FakeClock

OUTER, INNER = "20/hour", "2/hour"
# Of the outer limit: of a middleware, of a view's limit, which is named before it, and of rules.
KEYS = ("all", "outer:all", "d|who=all")
RULES: dict[str, Any] = {
    "domain": "d",
    "descriptors": [{"key": "who", "value": "all", "limits": [{"limit": OUTER, "name": "outer"}]}],
}


def all_of_them(request: Request) -> str:
    return "all"


def by_who(request: Request) -> str:
    return request.header("x-who") or "nobody"


class Place:
    """Stores and options for an outer and an inner limit; and what is left of the outer one."""

    def __init__(self, count_when: Any = None) -> None:
        self.clock = FakeClock(1_767_225_600 * 10**9)
        self.store = MemoryStore(clock=self.clock)
        more = {} if count_when is None else {"count_when": count_when}
        own: dict[str, Any] = {"store": self.store, "clock": self.clock}
        self.outer = {"limit": OUTER, "key": all_of_them, "name": "outer", **own, **more}
        self.inner = {"limit": INNER, "key": by_who, "name": "inner", **own}

    def left(self) -> int:
        limiter = Limiter(OUTER, self.store)
        return min(limiter.peek(key).remaining for key in KEYS)


Ask = Callable[[str], tuple[int, Any]]
Build = Callable[[Place, ExitStack], Ask]


def by_asgi(app: Any) -> Ask:
    client = TestClient(app, raise_server_exceptions=False)

    def ask(who: str) -> tuple[int, Any]:
        answer = client.get("/", headers={"x-who": who})
        return answer.status_code, answer.headers

    return ask


def by_wsgi(app: Any) -> Ask:
    def ask(who: str) -> tuple[int, Any]:
        answer = WsgiClient(app).get("/", headers={"x-who": who})
        return answer.status_code, answer.headers

    return ask


# ASGI ----------------------------------------------------------------------------------------


def asgi_nested(place: Place, stack: ExitStack) -> Ask:
    return by_asgi(PenstockMiddleware(PenstockMiddleware(asgi_hello, **place.inner), **place.outer))


def asgi_gate(place: Place, stack: ExitStack) -> Ask:
    gate = AsyncGate.from_rules(RULES, place.store, clock=place.clock)
    inner = PenstockMiddleware(asgi_hello, **place.inner)
    outer = {"gate": gate, "dimensions": {"who": "all"}, "clock": place.clock}
    if "count_when" in place.outer:
        outer["count_when"] = place.outer["count_when"]
    return by_asgi(PenstockMiddleware(inner, **outer))


def fast(place: Place, *routers: bool, fields: bool = False) -> Any:
    """Dependencies: the inner one of the route, the outer one of a router, or of the app."""
    outer, inner = (fastapi.Depends(dependency(**o)) for o in (place.outer, place.inner))
    app = fastapi.FastAPI(dependencies=[] if routers else [outer])
    router: Any = fastapi.APIRouter(dependencies=[outer] if routers else [])

    @router.get("/", dependencies=[inner])
    async def home() -> str:
        return "home"

    app.include_router(router)
    if fields:
        app.add_middleware(LimitFields)
    return app


def fastapi_app_and_route(place: Place, stack: ExitStack) -> Ask:
    return by_asgi(fast(place))


def fastapi_router_and_route(place: Place, stack: ExitStack) -> Ask:
    return by_asgi(fast(place, True))


def fastapi_with_fields(place: Place, stack: ExitStack) -> Ask:
    return by_asgi(fast(place, True, fields=True))


def fastapi_middleware_and_route(place: Place, stack: ExitStack) -> Ask:
    app = fastapi.FastAPI()

    @app.get("/", dependencies=[fastapi.Depends(dependency(**place.inner))])
    async def home() -> str:
        return "home"

    app.add_middleware(PenstockMiddleware, **place.outer)
    return by_asgi(app)


# WSGI ----------------------------------------------------------------------------------------


def wsgi_home(environ: Any, start: Any) -> list[bytes]:
    start("200 OK", [])
    return [b"home"]


def wsgi_nested(place: Place, stack: ExitStack) -> Ask:
    return by_wsgi(PenstockWSGI(PenstockWSGI(wsgi_home, **place.inner), **place.outer))


def wsgi_gate(place: Place, stack: ExitStack) -> Ask:
    gate = Gate.from_rules(RULES, place.store, clock=place.clock)
    outer = {"gate": gate, "dimensions": {"who": "all"}, "clock": place.clock}
    if "count_when" in place.outer:
        outer["count_when"] = place.outer["count_when"]
    return by_wsgi(PenstockWSGI(PenstockWSGI(wsgi_home, **place.inner), **outer))


def flask_wsgi_and_view(place: Place, stack: ExitStack) -> Ask:
    app = new_app()
    app.add_url_rule("/", view_func=flask_limit(**place.inner)(lambda: "home"))
    return by_wsgi(PenstockWSGI(app, **place.outer))


def flask_extension_and_view(place: Place, stack: ExitStack) -> Ask:
    app = new_app()
    Penstock(app, **place.outer)
    app.add_url_rule("/", view_func=flask_limit(**place.inner)(lambda: "home"))
    return by_wsgi(app)


def flask_nested_blueprints(place: Place, stack: ExitStack) -> Ask:
    app = new_app()
    parent, child = flask.Blueprint("parent", "shop"), flask.Blueprint("child", "shop")
    Penstock(parent, **place.outer)
    Penstock(child, **place.inner)
    child.add_url_rule("/", view_func=lambda: "home", endpoint="home")
    parent.register_blueprint(child)
    app.register_blueprint(parent)
    return by_wsgi(app)


def flask_stacked(place: Place, stack: ExitStack) -> Ask:
    app = new_app()
    view = flask_limit(**place.outer)(flask_limit(**place.inner)(lambda: "home"))
    app.add_url_rule("/", view_func=view)
    return by_wsgi(app)


def flask_stacked_async(place: Place, stack: ExitStack) -> Ask:
    app = new_app()

    async def home() -> str:
        return "home"

    view = flask_limit(**place.outer)(flask_limit(**place.inner)(home))
    app.add_url_rule("/", view_func=view)
    return by_wsgi(app)


# Django --------------------------------------------------------------------------------------


def by_django(place: Place, stack: ExitStack, view: Any, options: Any = None) -> Ask:
    stack.enter_context(site([path("", view)], options))
    client = Client()

    def ask(who: str) -> tuple[int, Any]:
        answer = client.get("/", headers={"x-who": who})
        return answer.status_code, answer.headers

    return ask


def by_async_django(place: Place, stack: ExitStack, view: Any, options: Any = None) -> Ask:
    stack.enter_context(site([path("", view)], options))

    def ask(who: str) -> tuple[int, Any]:
        answer = asyncio.run(AsyncClient().get("/", headers={"x-who": who}))
        return answer.status_code, answer.headers

    return ask


def django_middleware_and_view(place: Place, stack: ExitStack) -> Ask:
    return by_django(place, stack, django_limit(**place.inner)(hello), place.outer)


def django_stacked(place: Place, stack: ExitStack) -> Ask:
    view = django_limit(**place.outer)(django_limit(**place.inner)(hello))
    return by_django(place, stack, view)


def django_async_middleware_and_view(place: Place, stack: ExitStack) -> Ask:
    return by_async_django(place, stack, django_limit(**place.inner)(hello_async), place.outer)


def django_async_middleware_and_plain_view(place: Place, stack: ExitStack) -> Ask:
    return by_async_django(place, stack, django_limit(**place.inner)(hello), place.outer)


def django_async_stacked(place: Place, stack: ExitStack) -> Ask:
    view = django_limit(**place.outer)(django_limit(**place.inner)(hello_async))
    return by_async_django(place, stack, view)


def django_behind_asgi(place: Place, stack: ExitStack) -> Ask:
    stack.enter_context(site([path("", django_limit(**place.inner)(hello))]))
    return by_asgi(PenstockMiddleware(ASGIHandler(), **place.outer))


def by_rest(place: Place, stack: ExitStack, *limits: Any, options: Any = None) -> Ask:
    """A view with a throttle for each of the limits."""
    from rest_framework.decorators import api_view, throttle_classes
    from rest_framework.response import Response

    from penstock.integrations.django.rest_framework import PenstockThrottle

    throttles = []
    for each in limits:
        said = {**each, "scope": each["name"], "key": staticmethod(each["key"])}
        said.pop("count_when", None)
        throttles.append(type("Throttle", (PenstockThrottle,), said))

    @api_view(["GET"])
    @throttle_classes(throttles)
    def view(request: Any) -> Response:
        return Response("hello")

    return by_django(place, stack, view, options)


def rest_throttles(place: Place, stack: ExitStack) -> Ask:
    return by_rest(place, stack, place.outer, place.inner)


def rest_throttles_the_other_way_round(place: Place, stack: ExitStack) -> Ask:
    return by_rest(place, stack, place.inner, place.outer)


def rest_middleware_and_throttle(place: Place, stack: ExitStack) -> Ask:
    return by_rest(place, stack, place.inner, options=place.outer)


PLACES: list[Build] = [
    asgi_nested, asgi_gate, fastapi_app_and_route, fastapi_router_and_route, fastapi_with_fields,
    fastapi_middleware_and_route, wsgi_nested, wsgi_gate, flask_wsgi_and_view,
    flask_extension_and_view, flask_nested_blueprints, flask_stacked, flask_stacked_async,
    django_middleware_and_view, django_stacked, django_async_middleware_and_view,
    django_async_middleware_and_plain_view, django_async_stacked, django_behind_asgi,
    rest_throttles, rest_throttles_the_other_way_round, rest_middleware_and_throttle,
]  # fmt: skip
# Dependencies alone tell of the limit that refused; somebody further out tells of all.
TELL_OF_ONE = (fastapi_app_and_route, fastapi_router_and_route)
WITHOUT_COUNT_WHEN = (rest_throttles, rest_throttles_the_other_way_round)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("build", PLACES, ids=lambda build: build.__name__)
def test_one_who_is_refused_does_not_empty_what_all_share(build: Build, stack: ExitStack) -> None:
    place = Place()
    ask = build(place, stack)
    answers = [ask("greedy") for _ in range(50)]
    assert [status for status, _ in answers] == [200] * 2 + [429] * 48
    assert place.left() == 18
    told = answers[-1][1]["RateLimit"]
    assert '"inner";r=0;t=1800' in told
    if build not in TELL_OF_ONE:
        # Refunds are exact: what is told is what a request that comes now would find.
        assert '"outer";r=18;t=360' in told
    assert ask("other")[0] == 200
    assert place.left() == 17


@pytest.mark.parametrize("counts", [True, False], ids=["counted", "not counted"])
@pytest.mark.parametrize("build", PLACES, ids=lambda build: build.__name__)
def test_what_was_given_back_is_not_settled_again(
    build: Build, counts: bool, stack: ExitStack
) -> None:
    if build in WITHOUT_COUNT_WHEN:
        pytest.skip("a throttle has no count_when")
    place = Place(count_when=lambda response: counts)
    ask = build(place, stack)
    assert [ask("greedy")[0] for _ in range(10)] == [200] * 2 + [429] * 8
    for key in KEYS:
        Limiter(OUTER, place.store).hit(key, cost=3)
    before = place.left()
    assert ask("greedy")[0] == 429
    assert place.left() == before == (15 if counts else 17)


@pytest.mark.parametrize(
    "build",
    [asgi_nested, fastapi_app_and_route, wsgi_nested, flask_stacked, django_stacked],
    ids=lambda build: build.__name__,
)
def test_many_at_once_take_exactly_what_was_let_in(build: Build, stack: ExitStack) -> None:
    place = Place()
    ask = build(place, stack)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda at: ask(f"user {at % 3}")[0], range(120)))
    passed = answers.count(200)
    assert passed <= 6, "never above the limit"
    assert place.left() == 20 - passed


def test_a_lockout_of_the_outer_limit_is_not_undone() -> None:
    store = MemoryStore(clock=FakeClock())
    outer = {"limit": "3/hour lockout 1d", "key": all_of_them, "store": store}
    inner = {"limit": INNER, "key": by_who, "store": store, "name": "inner"}
    ask = by_wsgi(PenstockWSGI(PenstockWSGI(wsgi_home, **inner), **outer))
    Limiter("3/hour lockout 1d", store).hit("all", cost=3)
    assert ask("greedy")[0] == 429  # the outer one refuses, and the view_limit is shut
    assert [ask("greedy")[0] for _ in range(3)] == [429] * 3
    assert Limiter("3/hour lockout 1d", store).peek("all").retry_after == 86_400.0


def test_an_inner_limit_in_shadow_takes_nothing_back() -> None:
    place = Place()
    inner = {**place.inner, "shadow": True}
    ask = by_wsgi(PenstockWSGI(PenstockWSGI(wsgi_home, **inner), **place.outer))
    assert [ask("greedy")[0] for _ in range(5)] == [200] * 5
    assert place.left() == 15


def test_a_limit_of_the_same_threads_that_refuses_first_leaves_the_inner_untouched() -> None:
    place = Place()
    ask = by_wsgi(PenstockWSGI(PenstockWSGI(wsgi_home, **place.inner), **place.outer))
    Limiter(OUTER, place.store).hit("all", cost=20)
    assert ask("anybody")[0] == 429
    assert Limiter(INNER, place.store).peek("anybody").remaining == 2


def test_waiting_requests_that_will_be_refused_hold_a_unit_until_then() -> None:
    """The outer limit is asked first: until the inner one has refused, its unit is taken."""
    place = Place()
    entered, go_on = threading.Event(), threading.Event()
    inner = PenstockWSGI(wsgi_home, **place.inner)

    def slow(environ: Any, start: Any) -> Any:
        entered.set()
        assert go_on.wait(60)
        return inner(environ, start)

    ask = by_wsgi(PenstockWSGI(slow, **place.outer))
    Limiter(INNER, place.store).hit("greedy", cost=2)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, "greedy")
        assert entered.wait(60)
        assert place.left() == 19
        go_on.set()
        assert answer.result()[0] == 429
    assert place.left() == 20
