"""Django: the middleware, in both kinds of server, and its settings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction as marked
from django.core.exceptions import BadRequest, ImproperlyConfigured, PermissionDenied
from django.core.handlers.asgi import ASGIHandler
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import RequestFactory
from django.urls import include, path, re_path

from integrations.broken import Broken, BrokenElsewhere
from integrations.django import site as django_site
from integrations.django.site import (
    LOG_IN,
    Asker,
    hello,
    hello_async,
    site,
    view_of,
)
from integrations.serving import ask, uvicorn_server
from penstock import AsyncGate, Gate, Limiter, MemoryStore
from penstock.integrations import Request, Response, by_ip, by_route, by_user
from penstock.integrations.asgi import PenstockMiddleware as AsgiMiddleware
from penstock.integrations.deciding.refusals import Deferred
from penstock.integrations.django import PenstockMiddleware, limit
from penstock.stores.base import Store
from penstock.testing import FakeClock

NOW = 1_767_225_600
BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@pytest.fixture(autouse=True)
def _no_setting_is_needed() -> Iterator[None]:
    with site([]):
        yield


# The middleware ------------------------------------------------------------------------------


@BOTH
def test_a_site_has_a_limit(asynchronous: bool) -> None:
    clock = FakeClock(start=NOW * 10**9)
    options = {
        "limit": "2/minute", "exempt": ["/health"], "store": MemoryStore(clock=clock),
        "clock": clock,
    }  # fmt: skip
    urls = [path("", view_of(asynchronous)), path("health", hello)]
    with site(urls, options):
        asker = Asker(asynchronous)
        first = asker.ask()
        assert first.status_code == 200
        assert first["RateLimit"] == '"default";r=1;t=30'
        assert first["RateLimit-Policy"] == '"default";q=2;w=60'
        assert first["X-RateLimit-Reset"] == str(NOW + 30)
        asker.ask()
        refused = asker.ask()
        assert refused.status_code == 429
        assert refused["Retry-After"] == "30"
        assert refused["Content-Type"] == "application/json"
        assert refused["RateLimit"] == '"default";r=0;t=30'
        assert refused.json() == {"error": "Rate limit exceeded", "retry_after": 30}
        healthy = asker.ask("/health")
        assert healthy.status_code == 200
        assert "RateLimit" not in healthy
        clock.advance(30)
        assert asker.statuses("/", "/nowhere") == [200, 429]


def test_django_knows_its_kind() -> None:
    with site([path("", hello)], {"limit": "2/minute"}):
        assert not iscoroutinefunction(PenstockMiddleware(hello))
        made = PenstockMiddleware(hello_async)
        assert marked(made)


@BOTH
def test_headers_are_told_whatever_is_answered(asynchronous: bool) -> None:
    def lost(request: HttpRequest) -> HttpResponse:
        raise Http404

    def broken(request: HttpRequest) -> HttpResponse:
        raise RuntimeError("broken")

    urls = [path("lost", lost), path("broken", broken)]
    with site(urls, {"limit": "9/minute"}):
        asker = Asker(asynchronous, raise_request_exception=False)
        answers = [asker.ask(each) for each in ("/lost", "/broken", "/nowhere")]
        assert [answer.status_code for answer in answers] == [404, 500, 404]
        assert [answer["X-RateLimit-Remaining"] for answer in answers] == ["8", "7", "6"]


@BOTH
def test_the_route_is_known_before_there_is_routing(asynchronous: bool) -> None:
    seen: list[Any] = []

    def key(request: Request) -> str:
        seen.append(request.route)
        return by_route(request)

    users = [path("<int:id>/", hello), re_path(r"^name-(?P<name>\w+)$", hello)]
    with site([path("users/", include(users))], {"limit": "2/minute", "key": key}):
        asker = Asker(asynchronous)
        assert asker.statuses("/users/1/", "/users/2/", "/users/3/") == [200, 200, 429]
        assert asker.statuses("/users/name-ada", "/nowhere") == [200, 404]
    assert seen == ["/users/<int:id>/"] * 3 + [r"/users/name-(?P<name>\w+)$", None]


@BOTH
def test_a_user_is_counted_wherever_from(asynchronous: bool, users: Any) -> None:
    ada, bob = users
    with site([path("", hello)], {"limit": "2/minute", "key": by_user}, before=LOG_IN):
        for user in (ada, bob, None):
            asker = Asker(asynchronous)
            if user is not None:
                asker.client.force_login(user)
            assert asker.statuses("/", "/", "/") == [200, 200, 429]


def test_nobody_asks_for_a_user_who_is_not_wanted() -> None:
    class Never:
        def __get__(self, *args: Any) -> Any:
            raise AssertionError("the session was read")

    request = RequestFactory().get("/")
    request.__class__ = type("Request", (type(request),), {"user": Never()})
    with site([], {"limit": "2/minute"}):
        assert PenstockMiddleware(hello)(request).status_code == 200


@BOTH
def test_a_stream_streams(asynchronous: bool) -> None:
    seen: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for piece in (b"first", b"second"):
            seen.append(piece)
            yield piece

    async def pieces_async() -> Any:
        for piece in pieces():
            yield piece

    def stream(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(pieces_async() if asynchronous else pieces())

    with site([path("", stream)], {"limit": "2/minute"}):
        answer = Asker(asynchronous).ask()
        assert answer["X-RateLimit-Remaining"] == "1"
        assert seen == [], "the body was read ahead"
        if not asynchronous:
            assert b"".join(answer.streaming_content) == b"firstsecond"


@BOTH
def test_rules_from_a_file(asynchronous: bool, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("""
domain: web
descriptors:
  - key: route
    value: /search
    descriptors:
      - {key: remote_address, limits: 1/minute}
""")
    urls = [path("search", hello), path("", hello)]
    with site(urls, {"gate": tmp_path / "rules.yaml"}):
        assert Asker(asynchronous).statuses("/search", "/search", "/", "/") == [200, 429, 200, 200]


@BOTH
def test_a_gate_and_a_deny_list(asynchronous: bool) -> None:
    rules = {
        "domain": "web",
        "deny": {"remote_address": ["127.0.0.1"]},
        "descriptors": [{"key": "path", "limits": "9/minute"}],
    }
    made = AsyncGate if asynchronous else Gate
    with site([path("", hello)], {"gate": made.from_rules(rules)}):
        assert Asker(asynchronous).statuses("/") == [403]


@BOTH
def test_preflights_shadow_and_hook(asynchronous: bool) -> None:
    seen: list[Any] = []

    def view(request: Any) -> HttpResponse:
        return HttpResponse(str(request.penstock.shadow))

    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
    with site([path("", hello), path("shadow", view)], {"limit": "1/minute"}):
        asker = Asker(asynchronous)
        asked = [asker.ask("/", "options", headers=preflight).status_code for _ in range(3)]
        assert asked == [200] * 3
    with site([path("", view)], {"limit": "1/minute", "shadow": True, "hook": seen.append}):
        asker = Asker(asynchronous)
        assert [asker.ask().content for _ in range(2)] == [b"False", b"True"]
    assert len(seen) == 1


@BOTH
@pytest.mark.parametrize("fallback_asynchronous", [False, True])
def test_a_fallback_answers_instead(asynchronous: bool, fallback_asynchronous: bool) -> None:
    def cached(request: HttpRequest) -> HttpResponse:
        return HttpResponse("from a cache", status=203)

    async def cached_async(request: HttpRequest) -> HttpResponse:
        return cached(request)

    fallback = cached_async if fallback_asynchronous else cached
    with site([path("", hello)], {"limit": "1/minute", "fallback": fallback}):
        asker = Asker(asynchronous)
        asker.ask()
        answer = asker.ask()
        assert (answer.status_code, answer.content) == (203, b"from a cache")
        assert answer["X-RateLimit-Fallback"] == "true"
        assert answer["X-RateLimit-Remaining"] == "0"
        assert "Retry-After" not in answer


@BOTH
def test_a_fallback_that_blocks_is_not_run_on_the_event_loop(asynchronous: bool) -> None:
    def cached(request: HttpRequest) -> HttpResponse:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return HttpResponse("from a cache")

    with site([path("", hello)], {"limit": "1/minute", "fallback": cached}):
        assert Asker(asynchronous).statuses("/", "/") == [200, 200]


@BOTH
def test_a_refused_request_is_deferred(asynchronous: bool) -> None:
    kept: list[Deferred] = []

    def put(deferred: Deferred) -> str:
        kept.append(deferred)
        return f"/jobs/{len(kept)}"

    with site([path("work", hello)], {"limit": "1/minute", "defer": put, "defer_body": 10}):
        asker = Asker(asynchronous)
        asker.ask("/work", "post")

        def post(body: bytes) -> Any:
            return asker.ask(
                "/work?a=1", "post", data=body, content_type="text/plain", headers={"x-mark": "7"}
            )

        answer = post(b"later")
        assert (answer.status_code, answer["Location"]) == (202, "/jobs/1")
        assert post(b"x" * 11).status_code == 429
    (deferred,) = kept
    assert (deferred.method, deferred.path, deferred.query) == ("POST", "/work", "a=1")
    assert (deferred.body, deferred.client) == (b"later", "127.0.0.1")
    assert ("x-mark", "7") in deferred.headers


@BOTH
@pytest.mark.parametrize("store", [Broken(), BrokenElsewhere()], ids=["here", "elsewhere"])
def test_a_store_that_fails(asynchronous: bool, store: Store) -> None:
    with site([path("", hello)], {"limit": "1/minute", "store": store}):
        assert Asker(asynchronous).statuses("/", "/") == [200, 200]
    options = {"limit": "1/minute", "store": store, "on_failure": "closed"}
    with site([path("", hello)], options):
        answer = Asker(asynchronous).ask()
        assert (answer.status_code, answer["Retry-After"]) == (503, "1")


# By the response -----------------------------------------------------------------------------


def not_failed(response: Response) -> bool:
    return not response.failed


@BOTH
def test_what_the_server_spoiled_is_given_back(asynchronous: bool) -> None:
    seen: list[Any] = []

    def count_when(response: Response) -> bool:
        seen.append(response.error)
        return not_failed(response)

    def view(request: HttpRequest) -> HttpResponse:
        if "fail" in request.GET:
            raise RuntimeError("broken")
        return HttpResponse("hello")

    with site([path("", view)], {"limit": "2/minute", "count_when": count_when}):
        asker = Asker(asynchronous, raise_request_exception=False)
        assert asker.statuses(*["/?fail"] * 4) == [500] * 4
        assert asker.statuses("/", "/", "/") == [200, 200, 429]
    assert all(isinstance(error, RuntimeError) for error in seen[:4])
    assert seen[4:] == [None, None]


FAILURES: list[tuple[Any, int]] = [
    (Http404(), 404), (PermissionDenied(), 403), (BadRequest(), 400), (RuntimeError(), 500),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(("error", "status"), FAILURES)
@pytest.mark.parametrize("middleware", [False, True])
def test_a_view_is_settled_by_what_django_answers(
    asynchronous: bool, error: Exception, status: int, middleware: bool
) -> None:
    seen: list[int] = []

    def count_when(response: Response) -> bool:
        seen.append(response.status)
        return False

    @limit("1/minute", count_when=count_when)
    def view(request: HttpRequest) -> HttpResponse:
        raise error

    @limit("1/minute", count_when=count_when)
    async def view_async(request: HttpRequest) -> HttpResponse:
        raise error

    chosen = view_async if asynchronous else view
    with site([path("", chosen)], {"fields": "ietf"} if middleware else None):
        asker = Asker(asynchronous, raise_request_exception=False)
        answers = [asker.ask() for _ in range(3)]
        assert [answer.status_code for answer in answers] == [status] * 3
        assert all(("RateLimit" in answer) == middleware for answer in answers)
    assert seen == [status] * 3


@BOTH
def test_only_failed_log_ins_count(asynchronous: bool) -> None:
    @limit("2/minute", count_when=lambda response: response.status == 401)
    def log_in(request: HttpRequest) -> HttpResponse:
        right = request.POST["password"] == "right"
        return HttpResponse("welcome" if right else "no", status=200 if right else 401)

    with site([path("", log_in)]):
        asker = Asker(asynchronous)

        def try_(password: str) -> int:
            status: int = asker.ask("/", "post", data={"password": password}).status_code
            return status

        assert [try_("right") for _ in range(5)] == [200] * 5
        assert [try_("wrong") for _ in range(3)] == [401, 401, 429]


# Settings ------------------------------------------------------------------------------------


def test_values_may_be_names() -> None:
    here = "integrations.django.site"
    options = {
        "limit": f"{here}.limit_by_name", "key": f"{here}.key_by_name",
        "store": f"{here}.make_store", "fallback": f"{here}.cached",
    }  # fmt: skip
    with site([path("", lambda request: JsonResponse({}))], options):
        asker = Asker(False)
        assert asker.statuses("/", "/") == [200, 200]
        assert asker.ask("/").content == b"from a cache"
    with site([path("", hello)], options):  # the store that was made is kept
        assert Asker(False).ask("/")["X-RateLimit-Fallback"] == "true"
    with site([path("", hello)], {"limit": "1/minute", "store": f"{here}.THE_STORE"}):
        assert Asker(False).statuses("/") == [200]
    limiter = Limiter("1/minute", store=django_site.THE_STORE)
    assert not limiter.peek("ip:127.0.0.1/32")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("100/minute", "PENSTOCK is a dict"),
        ({"limits": "100/minute"}, r"PENSTOCK has no option 'limits': did you mean 'limit'\?"),
        ({"asynchronous": True}, "has no option 'asynchronous'"),
        ({"limit": "often"}, "PENSTOCK: .*often"),
        ({"key": by_ip}, "PENSTOCK: give either limit="),
        ({"limit": "1/minute", "key": "shop.nothing"}, r"PENSTOCK\['key'\]: No module"),
        ({"limit": "1/minute", "key": "ip"}, "PENSTOCK: key is a function"),
        ({"gate": "nowhere.yaml"}, "PENSTOCK: .*nowhere.yaml"),
        ({"limit": "1/minute", "exempt": "/health"}, "PENSTOCK: exempt is a list of paths"),
        ({"limit": "1/minute", "fallback": 1}, "PENSTOCK: fallback is a view function"),
        ({"limit": "1/minute", "trusted": ["proxy"]}, "PENSTOCK: trusted names networks"),
    ],
)  # fmt: skip
def test_what_is_improperly_configured(options: Any, words: str) -> None:
    with site([], options), pytest.raises(ImproperlyConfigured, match=words):
        PenstockMiddleware(hello)


def test_without_a_setting_there_is_a_hint() -> None:
    with site([]), pytest.raises(ImproperlyConfigured, match="'limit': '100/minute'"):
        PenstockMiddleware(hello)


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("django", "django", "Django is not installed: pip install 'penstock[django]'"),
        (
            "django.rest_framework",
            "rest_framework",
            "pip install 'penstock[django]' djangorestframework",
        ),
    ],
)
def test_without_the_framework_there_is_a_hint(module: str, name: str, hint: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; import penstock.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "ModuleNotFoundError: " in done.stderr
    assert hint in done.stderr


# A real server -------------------------------------------------------------------------------


def test_under_uvicorn() -> None:
    limited = limit("2/minute", name="page")(hello_async)
    with site([path("", limited), path("sync", hello)], {"limit": "3/minute", "name": "all"}):
        with uvicorn_server(ASGIHandler()) as port:
            answers = [ask(port) for _ in range(3)]
            assert [answer.status for answer in answers] == [200, 200, 429]
            assert answers[0].header("RateLimit-Policy") == '"page";q=2;w=60, "all";q=3;w=60'
            assert answers[2].header("Retry-After") == "30"
            assert ask(port, "/sync").status == 200
            refused = ask(port, "/sync", "HEAD")
            assert (refused.status, refused.body) == (429, b"")
        outside = AsgiMiddleware(ASGIHandler(), limit="9/minute", name="outside")
        with uvicorn_server(outside) as port:
            answer = ask(port)
            assert answer.header("RateLimit-Policy") is not None
            for name in ("outside", "all", "page"):
                assert f'"{name}"' in str(answer.header("RateLimit-Policy"))
