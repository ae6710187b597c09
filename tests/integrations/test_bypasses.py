"""What clients try in order to get round a limit, or to have more than one of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flask
import pytest
from django.test import RequestFactory
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from integrations.asgi.test_limit import hello, scope, statuses
from integrations.django import site as _site  # noqa: F401 - Django wants settings before all else
from integrations.serving import ask, uvicorn_server
from penstock import AsyncGate, CircuitBreaker, Gate
from penstock.integrations import Request, by_api_key, by_cookie, by_header, by_ip, by_route
from penstock.integrations.asgi import BreakerMiddleware, ConcurrencyMiddleware, PenstockMiddleware
from penstock.integrations.asgi.request import AsgiRequest
from penstock.integrations.deciding.dimensions import family
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.deciding.keys import trusted_header
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.flask import Penstock
from penstock.integrations.wsgi import BreakerWSGI, PenstockWSGI
from penstock.integrations.wsgi.request import WsgiRequest
from penstock.rules.lists import _as_address


def asked(*headers: tuple[bytes, bytes], path: str = "/", method: str = "GET") -> dict[str, Any]:
    return scope(path, method, list(headers))


def environ(method: str = "GET", **headers: str) -> dict[str, Any]:
    found = {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    return {
        "REQUEST_METHOD": method, "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7", **found,
    }  # fmt: skip


# Methods -------------------------------------------------------------------------------------


async def test_a_route_has_no_more_limits_for_methods_that_clients_make_up() -> None:
    app = PenstockMiddleware(hello, limit="1/hour", key=by_route)
    made_up = [asked(method=name) for name in ("BREW", "WHEN", "PROPFIND", "BREWA", "BREWB")]
    assert await statuses(app, *made_up) == [200, 429, 429, 429, 429]
    assert await statuses(app, asked(method="POST"), asked(method="POST")) == [200, 429]


async def test_head_is_get_without_a_body() -> None:
    app = PenstockMiddleware(hello, limit="2/hour", key=by_route)
    pairs = [asked(method=name) for name in ("GET", "HEAD", "GET", "HEAD")]
    assert await statuses(app, *pairs) == [200, 200, 429, 429]


def test_a_method_is_what_the_framework_takes_it_for() -> None:
    app = flask.Flask("site")
    Penstock(app, "1/hour", exempt=lambda request: request.method != "POST")

    @app.post("/log-in")
    def log_in() -> str:
        return "welcome"

    client = app.test_client()
    names = ("POST", "post", "Post", "pOST")
    found = [client.open("/log-in", environ_overrides={"REQUEST_METHOD": n}) for n in names]
    assert [answer.status_code for answer in found] == [200, 429, 429, 429]
    assert AsgiRequest(asked(method="post")).method == "POST"


# Headers and cookies that come twice ---------------------------------------------------------


@pytest.mark.parametrize("key", [by_api_key(), by_header("X-API-Key"), by_api_key(otherwise=None)])
def test_a_second_key_behind_the_first_is_no_new_client(key: Any) -> None:
    async def secret(request: Any) -> PlainTextResponse:
        known = request.headers.get("x-api-key") == "right"
        return PlainTextResponse("in", 200 if known else 401)

    app = Starlette(routes=[Route("/", secret)])
    app.add_middleware(PenstockMiddleware, limit="2/hour", key=key)
    with uvicorn_server(app) as port:
        found = [
            ask(port, headers=(("X-API-Key", "right"), ("X-API-Key", f"junk {n}"))).status
            for n in range(4)
        ]
    assert found == [200, 200, 429, 429]


@pytest.mark.parametrize("name", ["api_key", "header:X-API-Key"])
async def test_nor_is_it_for_rules(name: str) -> None:
    rules = {"domain": "d", "descriptors": [{"key": name, "limits": "1/hour"}]}
    app = PenstockMiddleware(hello, gate=AsyncGate.from_rules(rules))
    both = [asked((b"x-api-key", b"right"), (b"x-api-key", b"%d" % n)) for n in range(3)]
    assert await statuses(app, *both) == [200, 429, 429]


COOKIES = ["s=right; s={}", "s={}; s=right", "s={}; s\xa0=right", 's={}; s="right"']


@pytest.mark.parametrize("otherwise", [by_ip, None])
@pytest.mark.parametrize("cookies", COOKIES)
async def test_a_second_cookie_of_a_name_is_no_new_client(cookies: str, otherwise: Any) -> None:
    key = by_cookie("s", otherwise=otherwise)
    app = PenstockMiddleware(hello, limit="1/hour", key=key)
    many = [asked((b"cookie", cookies.format(n).encode("latin-1"))) for n in range(4)]
    assert await statuses(app, *many) == [200, 429, 429, 429]

    keys = {key(WsgiRequest(environ(cookie=cookies.format(n)))) for n in range(4)}
    assert keys == {"ip:203.0.113.7/32"}


async def test_rules_by_cookie_count_those_with_two_together() -> None:
    rules = {"domain": "d", "descriptors": [{"key": "cookie:s", "limits": "1/hour"}]}
    app = PenstockMiddleware(hello, gate=AsyncGate.from_rules(rules))
    many = [asked((b"cookie", b"s=right; s=%d" % n)) for n in range(3)]
    assert await statuses(app, *many) == [200, 429, 429]


def test_cookies_are_those_that_the_view_sees() -> None:
    seen: list[Any] = []
    app = flask.Flask("site")
    Penstock(app, "9/hour", key=lambda request: seen.append(request.cookies.get("s")) or "k")

    @app.get("/")
    def home() -> str:
        seen.append(flask.request.cookies.get("s"))
        return ""

    app.test_client(use_cookies=False).get("/", headers={"Cookie": "s=one; s=two"})
    assert seen == ["one", "one"]
    native = RequestFactory().get("/", HTTP_COOKIE="s=one; s=two")
    assert DjangoRequest(native).cookies.get("s") == native.COOKIES["s"] == "two"


def test_cookies_of_any_spelling() -> None:
    text = 'a=1;b = "two words" ; path=x; bad; c="\\"q\\""; =empty; d='
    found = dict(WsgiRequest(environ(cookie=text)).cookies)
    assert found == {"a": "1", "b": "two words", "path": "x", "c": '"q"', "": "empty", "d": ""}


def test_a_header_is_found_by_its_name_in_any_case() -> None:
    request = AsgiRequest(asked((b"x-plan", b"gold"), (b"x-plan", b"iron")))
    assert request.header("X-Plan") == "gold, iron"
    assert request.first("X-Plan") == "gold"
    assert request.first("X-Other") is None
    assert WsgiRequest(environ(x_plan="gold")).first("X-Plan") == "gold"


def test_a_request_of_another_kind_is_asked_in_lower_case() -> None:
    class Other(Request):
        def header(self, name: str) -> str | None:
            return {"x-plan": "gold"}.get(name)

    assert Other().first("X-Plan") == "gold"
    dimension = family("header:X-Plan")
    assert dimension is not None
    assert dimension(Other()) == "gold"


def test_a_region_is_what_the_proxy_added_not_what_was_there() -> None:
    request = AsgiRequest(asked((b"x-region", b"moon"), (b"x-region", b"eu")))
    request.trust = Trust(hops=1)
    assert trusted_header(request, "x-region") == "eu"


def test_rubbish_in_a_header_is_not_kept() -> None:
    trust = Trust(trusted=["10.0.0.0/8"])
    before = _as_address.cache_info().misses
    for number in range(3):
        text = f"{number}{'x' * 10_000}"
        assert trust.client("10.0.0.1", {"x-forwarded-for": text}.get) == "10.0.0.1"
    assert _as_address.cache_info().misses <= before + 1  # the proxy's own


# Paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "exempt"),
    [
        ("/static/a.css", True),
        ("/static/a..b/.c", True),
        ("/static/.well-known", True),
        ("/static/../admin", False),
        ("/static/./../admin", False),
        ("/static/..", False),
        ("/static/..\\admin", False),
        ("/static", False),
        ("//static/a", False),
        ("/health", True),
        ("/health/", False),
        ("//health", False),
        ("/Health", False),
        ("/health/../admin", False),
    ],
)
async def test_exempt_paths(path: str, exempt: bool) -> None:
    app = PenstockMiddleware(hello, limit="1/hour", exempt=["/static/*", "/health"])
    last = 200 if exempt else 429
    assert await statuses(app, asked(path=path), asked(path=path)) == [200, last]


def test_encoded_dots_on_a_real_server() -> None:
    app = PenstockMiddleware(hello, limit="1/hour", exempt=["/static/*"])
    with uvicorn_server(app) as port:
        assert [ask(port, "/static/%2e%2E/admin").status for _ in range(2)] == [200, 429]


# A coroutine is true, whatever it says -------------------------------------------------------


async def nobody(request: Request) -> bool:
    return False


async def everybody(request: Request) -> bool:
    return True


async def test_exempt_may_be_a_coroutine_function() -> None:
    limited = PenstockMiddleware(hello, limit="1/hour", exempt=nobody)
    assert await statuses(limited, asked(), asked()) == [200, 429]
    free = PenstockMiddleware(hello, limit="1/hour", exempt=everybody)
    assert await statuses(free, asked(), asked()) == [200, 200]


@pytest.mark.parametrize(("exempt", "status"), [(nobody, 503), (everybody, 200)])
async def test_so_it_may_before_a_breaker(exempt: Any, status: int) -> None:
    breaker = CircuitBreaker(failures=1)
    permit = breaker.allows()
    assert permit is not None
    breaker.failed(permit, "as asked")
    assert await statuses(BreakerMiddleware(hello, breaker, exempt=exempt), asked()) == [status]
    with pytest.raises(TypeError, match="coroutine function"):
        BreakerWSGI(lambda environ, start: [], breaker, exempt=exempt)(environ(), print)


async def test_and_before_slots() -> None:
    inside: list[int] = []
    app: Any = None

    async def nested(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/outer":
            inside.extend(await statuses(app, asked()))
        await hello(scope, receive, send)

    app = ConcurrencyMiddleware(nested, 1, exempt=nobody)
    assert await statuses(app, asked(path="/outer")) == [200]
    assert inside == [429]


def test_where_nobody_can_await_it_is_an_error() -> None:
    app = PenstockWSGI(lambda environ, start: [], limit="1/hour", exempt=nobody)
    with pytest.raises(TypeError, match="coroutine function"):
        app(environ(), print)


# Deny lists ----------------------------------------------------------------------------------


@pytest.mark.parametrize("instead", ["fallback", "defer"])
async def test_who_is_denied_gets_nothing_better(instead: str) -> None:
    rules = {
        "domain": "d",
        "deny": {"remote_address": ["203.0.113.7"]},
        "descriptors": [{"key": "remote_address", "limits": "1/hour"}],
    }
    queue: list[Any] = []

    def put(kept: Any) -> str:
        queue.append(kept)
        return "/jobs/1"

    options: dict[str, Any] = {instead: hello if instead == "fallback" else put}
    app = PenstockMiddleware(hello, gate=AsyncGate.from_rules(rules), **options)
    assert await statuses(app, asked()) == [403]

    started: list[str] = []

    def start(status: str, headers: Any) -> Callable[[bytes], object]:
        started.append(status)
        return print

    def cached(environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return []

    options = {instead: cached if instead == "fallback" else put}
    PenstockWSGI(cached, gate=Gate.from_rules(rules), **options)(environ(), start)

    site = flask.Flask("site")
    options = {instead: (lambda: "cached") if instead == "fallback" else put}
    Penstock(site, gate=Gate.from_rules(rules), **options)
    site.get("/")(lambda: "home")
    answer = site.test_client().get("/", environ_overrides={"REMOTE_ADDR": "203.0.113.7"})
    assert (started, answer.status_code, queue) == (["403 Forbidden"], 403, [])
