"""Django: the decorator, on all kinds of views."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from integrations.django.site import (
    LOG_IN,
    Asker,
    hello,
    hello_async,
    site,
    view_of,
)
from penstock import LimitError, MemoryStore
from penstock.integrations import Request, by_header, by_ip, by_user
from penstock.integrations.django import limit
from penstock.integrations.wsgi import PenstockWSGI

NOW = 1_767_225_600
BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@pytest.fixture(autouse=True)
def _no_setting_is_needed() -> Iterator[None]:
    with site([]):
        yield


# The decorator -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("view", [hello, hello_async])
def test_a_view_has_a_limit(asynchronous: bool, view: Any) -> None:
    limited = limit("2/minute")(view)
    assert iscoroutinefunction(limited) == iscoroutinefunction(view)
    assert limited.__name__ == view.__name__
    with site([path("search/<word>", limited), path("", hello)]):
        asker = Asker(asynchronous)
        answers = [asker.ask(f"/search/{word}") for word in "abc"]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert [answer["X-RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]
        assert answers[0]["RateLimit-Policy"] == '"2/minute";q=2;w=60'
        assert answers[2]["Retry-After"] == "30"
        assert "RateLimit" not in asker.ask("/")


def test_an_argument_of_a_view_may_have_any_name() -> None:
    def view(http: HttpRequest, /, **names: str) -> HttpResponse:
        return HttpResponse("".join(names.values()))

    names = "<call>/<view_limit>/<asynchronous>/<native>/<applied>/<request>"
    with site([path(names, limit("1/minute")(view))]):
        assert Client().get("/a/b/c/d/e/f").content == b"abcdef"


@BOTH
def test_keys_may_be_awaited(asynchronous: bool) -> None:
    async def key(request: Request) -> str:
        await asyncio.sleep(0)
        return by_ip(request)

    limited = limit("1/minute", key=key)(view_of(asynchronous))
    with site([path("", limited)]):
        assert Asker(asynchronous).statuses("/", "/") == [200, 429]
    with site([path("", hello)], {"limit": "1/minute", "key": key}):
        assert Asker(asynchronous).statuses("/", "/") == [200, 429]


def test_an_async_view_finds_its_user(users: Any) -> None:
    limited = limit("1/minute", key=by_user)(hello_async)
    native = limit("1/minute", key=lambda request: f"user:{request.native.user.pk}")(hello_async)
    with site([path("", limited), path("native", native)], before=LOG_IN):
        for user in users:
            asker = Asker(True)
            asker.client.force_login(user)
            assert asker.statuses("/", "/", "/native", "/native") == [200, 429, 200, 429]


def test_views_are_counted_each_for_itself_even_in_one_store() -> None:
    store = MemoryStore()
    once = limit("1/minute", store=store)
    again = limit("1/minute", store=store)

    def other(request: HttpRequest) -> HttpResponse:
        return HttpResponse("other")

    with site([path("a", once(hello)), path("b", once(other)), path("c", again(hello_async))]):
        assert Asker(False).statuses("/a", "/a", "/b", "/b", "/c", "/c") == [200, 429] * 3


@pytest.mark.parametrize("store", [MemoryStore(), None], ids=["one store", "no store"])
def test_views_of_both_kinds_share_a_limit_that_has_a_name(store: Any) -> None:
    searches = limit("2/minute", name="searches", store=store)
    with site([path("a", searches(hello)), path("b", searches(hello_async))]):
        assert Asker(False).statuses("/a", "/b", "/a", "/b") == [200, 200, 429, 429]


class Both(View):
    @method_decorator(limit("1/minute"))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("got")

    @method_decorator(limit("1/minute"))
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("posted")


# One limit in one store for all of them; each class counts for itself.
of_a_class = limit("1/minute", store=MemoryStore(), key=by_header("x-kind"))


@method_decorator(of_a_class, name="dispatch")
class One(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("one")


@method_decorator(of_a_class, name="dispatch")
class Two(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("two")


class Three(View):
    @method_decorator(of_a_class)
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("three")


class Four(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("four")


class Five(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("five")


@BOTH
def test_classes(asynchronous: bool) -> None:
    around = [of_a_class(view.as_view()) for view in (Four, Five)]
    classes = [view.as_view() for view in (One, Two, Three)] + around
    urls = [path(f"{number}", view) for number, view in enumerate(classes)]
    with site(urls):
        asker = Asker(asynchronous)
        for number in range(len(classes)):
            asked = asker.statuses(
                f"/{number}", f"/{number}", headers={"x-kind": repr(asynchronous)}
            )
            assert asked == [200, 429], classes[number]


def test_methods_of_a_class() -> None:
    with site([path("", Both.as_view())]):
        asker = Asker(False)
        assert asker.statuses("/", "/") == [200, 429]
        assert [asker.ask("/", "post").status_code for _ in range(2)] == [200, 429]


@BOTH
def test_all_tell_in_one_set_of_fields(asynchronous: bool) -> None:
    limited = limit("5/minute", name="page")(limit("1/minute", name="slow")(view_of(asynchronous)))
    with site([path("", limited)]):
        asker = Asker(asynchronous)
        for status in (200, 429):
            answer = asker.ask()
            assert answer.status_code == status
            assert answer["RateLimit-Policy"] == '"slow";q=1;w=60, "page";q=5;w=60'
    limited = limit("1/minute", name="page")(view_of(asynchronous))
    with site([path("", limited)], {"limit": "9/minute", "name": "all"}):
        asker = Asker(asynchronous)
        for status in (200, 429):
            answer = asker.ask()
            assert answer.status_code == status
            assert answer["RateLimit-Policy"] == '"page";q=1;w=60, "all";q=9;w=60'
            assert answer["X-RateLimit-Limit"] == "1"


def test_the_outermost_says_which_fields_are_told() -> None:
    with site([path("", limit("1/minute")(hello))], {"limit": "9/minute", "fields": "ietf"}):
        for status in (200, 429):
            answer = Client().get("/")
            assert answer.status_code == status
            assert "RateLimit" in answer
            assert "X-RateLimit-Limit" not in answer


def test_one_outside_of_django_tells_for_all() -> None:
    limited = limit("1/minute", name="page")(hello)
    with site([path("", limited)]):
        app = PenstockWSGI(WSGIHandler(), limit="9/minute", name="all")
        told: dict[str, str] = {}

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> None:
            assert len(dict(headers)) == len(headers), "a header came twice"
            told.update(headers, status=status[:3])

        for expected in ("200", "429"):
            app(RequestFactory().get("/").environ, start).close()
            assert told.pop("status") == expected
            assert told.pop("RateLimit-Policy") == '"page";q=1;w=60, "all";q=9;w=60'


def test_a_decorated_view_may_be_called_again_with_the_same_request() -> None:
    limited = limit("5/minute")(hello)
    request = RequestFactory().get("/")
    assert [limited(request)["X-RateLimit-Remaining"] for _ in range(2)] == ["4", "3"]


def test_a_sync_view_called_where_a_loop_runs_stays_one() -> None:
    limited = limit("5/minute")(hello)

    async def main() -> int:
        status: int = limited(AsyncRequestFactory().get("/")).status_code
        return status

    assert asyncio.run(main()) == 200


def test_the_setting_is_taken_over_by_the_decorator() -> None:
    store = MemoryStore()
    options = {"store": store, "trusted": ["127.0.0.0/8"], "fields": "legacy"}
    with site([], options):
        limited = limit("1/minute")(hello)
        open_ = limit("1/minute", fields="ietf", hops=1)(hello)
    with site([path("", limited), path("open", open_)]):
        asker = Asker(False)
        for address in ("203.0.113.7", "203.0.113.8"):
            answers = [asker.ask(headers={"x-forwarded-for": address}) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 429]
            assert "RateLimit" not in answers[0]
            assert "X-RateLimit-Limit" in answers[0]
        assert "X-RateLimit-Limit" not in asker.ask("/open")


def test_eight_threads_never_exceed_a_limit() -> None:
    limited = limit("100/hour", key=lambda request: "k")(hello)
    requests = RequestFactory()
    admitted: list[int] = []

    def work() -> None:
        for _ in range(50):
            admitted.append(limited(requests.get("/")).status_code)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted.count(200) == 100
    assert admitted.count(429) == 300


# What is wrong is said at once ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: limit("often"), LimitError, "often"),
        (lambda: limit(), TypeError, "give either limit="),
        (lambda: limit("1/minute", key="ip"), TypeError, "key is a function"),
        (lambda: limit("1/minute")("home"), TypeError, "limit decorates a view function"),
        (lambda: limit("1/minute")(View), TypeError, r"write @method_decorator\(limit"),
        (lambda: limit(lambda: None), TypeError, r'@limit has no limit: write @limit\("10/second'),
        (lambda: limit("1/minute", defer=print, fallback=hello), TypeError, "fallback or defer"),
    ],
)  # fmt: skip
def test_mistakes_of_a_decorator(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_a_decorator_without_a_limit_is_no_view() -> None:
    @limit
    def home(request):  # type: ignore[no-untyped-def]
        return HttpResponse("ok")

    with pytest.raises(TypeError, match="@limit has no limit"):
        home(RequestFactory().get("/"))


def test_a_method_needs_the_decorator_of_methods() -> None:
    class Home(View):
        @limit("1/minute")
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("ok")

    with pytest.raises(TypeError, match=r"on a method, write @method_decorator\(limit"):
        Home.as_view()(RequestFactory().get("/"))
