"""One limit object with several keys, in every framework: all pass, or none takes anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

# Before REST framework, which reads settings when it is imported.
from integrations.django.site import hello, hello_async, site

# isort: split
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import AsyncClient, Client
from django.urls import path
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from rest_framework.response import Response as RestResponse
from rest_framework.views import APIView

from integrations.broken import Broken
from integrations.flask.site import new_app
from penstock import MemoryStore, StoreError
from penstock.integrations import Request, by_header, by_ip, by_user
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.django import limit as django_limit
from penstock.integrations.django.rest_framework import PenstockThrottle
from penstock.integrations.fastapi import limit as fastapi_limit
from penstock.integrations.flask import Penstock
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.wsgi import PenstockWSGI
from penstock.integrations.wsgi.request import WsgiRequest
from penstock.stores.redis import RedisStore
from stores.redis_server import NO_SERVER, running_server

by_tenant = by_header("x-tenant", None)
by_name = by_header("x-name", None)
LIMITS: Any = {by_tenant: "3/hour", by_name: ["2/hour", "100/day"]}

# Asks with these headers; returns the status and the headers.
Ask = Callable[..., tuple[int, Any]]


def asgi_client(app: Any) -> Ask:
    def ask(**headers: str) -> tuple[int, Any]:
        answer = TestClient(app).get("/", headers={f"x-{n}": v for n, v in headers.items()})
        return answer.status_code, answer.headers

    return ask


def flask_client(app: Any) -> Ask:
    def ask(**headers: str) -> tuple[int, Any]:
        answer = app.test_client().get("/", headers={f"x-{n}": v for n, v in headers.items()})
        return answer.status_code, answer.headers

    return ask


def django_client(stack: ExitStack, view: Any, options: Any = None) -> Ask:
    stack.enter_context(site([path("", view)], options))
    client = Client()

    def ask(**headers: str) -> tuple[int, Any]:
        answer = client.get("/", headers={f"x-{n}": v for n, v in headers.items()})
        return answer.status_code, answer.headers

    return ask


def fastapi_app(*, decorated: bool) -> FastAPI:
    app, route_limit = FastAPI(), fastapi_limit(LIMITS)

    async def home() -> str:
        return "ok"

    if decorated:
        app.get("/")(route_limit(home))
    else:
        app.get("/", dependencies=[Depends(route_limit)])(home)
    return app


def in_middleware(stack: ExitStack) -> Ask:
    app = FastAPI()
    app.get("/")(lambda: "ok")
    app.add_middleware(PenstockMiddleware, limit=LIMITS)
    return asgi_client(app)


def in_flask(stack: ExitStack) -> Ask:
    app = new_app()
    app.get("/")(flask_limit(LIMITS)(lambda: "ok"))
    return flask_client(app)


def in_extension(stack: ExitStack) -> Ask:
    app = new_app()
    Penstock(app, LIMITS)
    app.get("/")(lambda: "ok")
    return flask_client(app)


def in_wsgi(stack: ExitStack) -> Ask:
    app = new_app()
    app.get("/")(lambda: "ok")
    wsgi: Any = PenstockWSGI(app.wsgi_app, limit=LIMITS)
    app.wsgi_app = wsgi  # type: ignore[method-assign]
    return flask_client(app)


def in_rest_framework(stack: ExitStack) -> Ask:
    class Throttle(PenstockThrottle):
        limit = LIMITS

    class Shop(APIView):
        throttle_classes = (Throttle,)

        def get(self, request: Any) -> RestResponse:
            return RestResponse("ok")

    return django_client(stack, Shop.as_view())


FRAMEWORKS: dict[str, Callable[[ExitStack], Ask]] = {
    "asgi": in_middleware,
    "fastapi decorator": lambda stack: asgi_client(fastapi_app(decorated=True)),
    "fastapi dependency": lambda stack: asgi_client(fastapi_app(decorated=False)),
    "wsgi": in_wsgi,
    "flask view": in_flask,
    "flask extension": in_extension,
    "django view": lambda stack: django_client(stack, django_limit(LIMITS)(hello)),
    "django async": lambda stack: django_client(stack, django_limit(LIMITS)(hello_async)),
    "django site": lambda stack: django_client(stack, hello, {"limit": LIMITS}),
    "rest framework": in_rest_framework,
}


@pytest.fixture(params=FRAMEWORKS)
def ask(request: pytest.FixtureRequest) -> Iterator[Ask]:
    with ExitStack() as stack, site([]):
        yield FRAMEWORKS[request.param](stack)


def left(headers: Any) -> dict[str, int]:
    """What the header says is left of each limit."""
    members = [member.split(";") for member in headers["RateLimit"].split(", ")]
    return {name.strip('"'): int(rest[0].removeprefix("r=")) for name, *rest in members}


def test_all_pass_or_none_is_taken(ask: Ask) -> None:
    status, headers = ask(tenant="shop", name="ann")
    assert status == 200
    assert left(headers) == {"3/hour": 2, "2/hour": 1, "100/day": 99}
    assert headers["X-RateLimit-Limit"] == "2"
    assert ask(tenant="shop", name="ann")[0] == 200
    status, headers = ask(tenant="shop", name="ann")  # refused by name
    assert status == 429
    assert left(headers) == {"2/hour": 0, "3/hour": 1, "100/day": 98}
    assert headers["Retry-After"] == "1800"
    assert ask(tenant="shop", name="bob")[0] == 200
    status, headers = ask(tenant="shop", name="bob")  # refused by tenant
    assert (status, headers["X-RateLimit-Limit"]) == (429, "3")
    assert left(headers) == {"3/hour": 0, "2/hour": 1, "100/day": 99}
    assert ask(tenant="other", name="bob")[0] == 200


def test_a_key_that_is_none_is_counted_by_address(ask: Ask) -> None:
    assert left(ask(name="ann")[1]) == {"3/hour": 2, "2/hour": 1, "100/day": 99}
    assert left(ask(name="bob")[1]) == {"3/hour": 1, "2/hour": 1, "100/day": 99}
    assert left(ask(tenant="shop")[1]) == {"3/hour": 2, "2/hour": 1, "100/day": 99}
    assert ask()[0] == 200
    assert ask()[0] == 429


# What is the same everywhere -----------------------------------------------------------------


def checkpoint(**options: Any) -> HttpCheckpoint:
    return HttpCheckpoint(asynchronous=False, **options)


def request(**headers: str) -> WsgiRequest:
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7"}
    return WsgiRequest({**environ, **{f"HTTP_X_{n.upper()}": v for n, v in headers.items()}})


def told(outcome: Any) -> dict[str, int]:
    return {name: decision.remaining for name, decision in outcome.named_decisions}


def test_equal_limits_of_different_keys_have_different_names() -> None:
    checks = checkpoint(limit={by_tenant: "3/hour", by_name: "3/hour"})
    outcome = checks.check(request(tenant="a", name="a"))
    assert told(outcome) == {"3/hour": 2, "3/hour (2)": 2}


def test_equal_limits_with_the_same_key_count_once() -> None:
    # Nobody is logged in: the user is the address.
    checks = checkpoint(limit={by_ip: "3/hour", by_user: "3/hour"})
    assert told(checks.check(request())) == {"3/hour": 2}


def test_keys_and_limits_may_be_functions() -> None:
    def plan(request: Request) -> str | None:
        return None if request.header("x-tenant") == "free" else "2/hour"

    checks = checkpoint(limit={by_tenant: plan, by_ip: "9/hour"})
    assert told(checks.check(request(tenant="free"))) == {"9/hour": 8}
    assert told(checks.check(request(tenant="shop"))) == {"2/hour": 1, "9/hour": 7}


def test_the_outcome_has_the_key_that_was_refused() -> None:
    checks = checkpoint(limit=LIMITS)
    outcomes = [checks.check(request(tenant="shop", name="ann")) for _ in range(3)]
    keys = [outcome.key for outcome in outcomes if outcome is not None]
    assert keys == ["header:x-tenant:shop", "header:x-tenant:shop", "header:x-name:ann"]


def test_only_failures_and_lockouts() -> None:
    text = "1/minute lockout 15m"
    checks = checkpoint(
        limit={by_ip: "9/hour", by_name: text}, count_when=lambda response: response.failed
    )

    def ask() -> Any:
        return checks.check(request(name="ann"))

    def wait(outcome: Any) -> float:
        return float(dict(outcome.named_decisions)[text].retry_after)

    first = ask()
    assert wait(ask()) <= 60  # while the first may be given back, there is no lockout
    first.give_back(asynchronous=False)
    second = ask()
    assert told(second) == {"9/hour": 8, text: 0}
    second.confirm(asynchronous=False)
    assert wait(ask()) > 890


class Gone(Broken):
    def hit_each(self, wanted: Any, attempt: bool = False) -> Any:
        raise StoreError("gone")


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_a_store_that_fails(policy: str) -> None:
    outcome = checkpoint(limit=LIMITS, store=Gone(), on_failure=policy).check(request(name="ann"))
    assert outcome is not None
    assert outcome.allowed is (policy == "open")


def test_a_limit_with_a_policy_of_its_own() -> None:
    limits = {by_ip: "1/hour on_failure closed", by_name: "1/hour"}
    outcome = checkpoint(limit=limits, store=Gone(), on_failure="open").check(request())
    assert outcome is not None
    assert not outcome.allowed


def test_async_views_and_the_name_in_a_store() -> None:
    store = MemoryStore()
    app = FastAPI()
    for name in ("a", "b"):
        route_limit = fastapi_limit({by_ip: "1/hour"}, store=store, name=name)
        app.get(f"/{name}", dependencies=[Depends(route_limit)])(lambda: "ok")
    client = TestClient(app)
    assert [client.get(path).status_code for path in ("/a", "/b", "/a")] == [200, 200, 429]
    with site([path("", django_limit({by_ip: "1/hour"})(hello_async))]):
        answers = [asyncio.run(AsyncClient().get("/")).status_code for _ in range(2)]
    assert answers == [200, 429]


def test_through_redis() -> None:
    visits = [request(tenant="shop", name=name) for name in ("ann", "ann", "ann", "bob", "bob")]
    expected = [
        {"3/hour": 2, "2/hour": 1, "100/day": 99},
        {"3/hour": 1, "2/hour": 0, "100/day": 98},
        {"3/hour": 1, "2/hour": 0, "100/day": 98},
        {"3/hour": 0, "2/hour": 1, "100/day": 99},
        {"3/hour": 0, "2/hour": 1, "100/day": 99},
    ]

    async def in_tasks(url: str) -> list[Any]:
        store = RedisStore(url, prefix="tasks", deadline="60s", connect_timeout="60s")
        checks = HttpCheckpoint(asynchronous=True, limit=LIMITS, store=store)
        outcomes = [await checks.check_async(visit) for visit in visits]
        await store.close_async()
        return outcomes

    with running_server() as url:
        if url is None:
            pytest.skip(NO_SERVER)
        with RedisStore(url, prefix="threads", deadline="60s", connect_timeout="60s") as store:
            checks = checkpoint(limit=LIMITS, store=store)
            outcomes: list[Any] = [checks.check(visit) for visit in visits]
        for each in (outcomes, asyncio.run(in_tasks(url))):
            assert [told(outcome) for outcome in each] == expected
            assert [bool(outcome) for outcome in each] == [True, True, False, True, False]


def test_names_in_django_settings() -> None:
    options = {"limit": {"penstock.integrations.by_ip": "1/hour"}}
    with ExitStack() as stack:
        ask = django_client(stack, hello, options)
        assert [ask()[0] for _ in range(2)] == [200, 429]
    with (
        pytest.raises(ImproperlyConfigured, match="no_such"),
        site([path("", hello)], {"limit": {"penstock.integrations.no_such": "1/hour"}}),
    ):
        Client().get("/")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": {}}, "empty dict"),
        ({"limit": {by_ip: None}}, "leave it out"),
        ({"limit": {by_ip: []}}, "leave it out"),
        ({"limit": {"ip": "1/hour"}}, "a key in limit is a function: write by_ip, not 'ip'"),
        ({"limit": {by_ip: "often"}}, "often"),
        ({"limit": {by_ip: "1/hour"}, "key": by_user}, "no other key"),
    ],
)
def test_mistakes(options: Any, message: str) -> None:
    for make in (checkpoint, flask_limit, fastapi_limit):
        with pytest.raises((TypeError, ValueError), match=message):
            make(**options)
