"""REST framework's views with throttles of ours."""

from __future__ import annotations

import threading
from typing import Any

# Before REST framework, which reads settings when it is imported.
from integrations.django.site import REST, site

# isort: split
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view, throttle_classes
from rest_framework.exceptions import APIException, NotFound
from rest_framework.permissions import BasePermission
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from integrations.broken import Broken
from penstock import Limiter, LimitError, MemoryStore
from penstock.integrations import Request, by_header
from penstock.integrations.django import limit
from penstock.integrations.django.rest_framework import (
    AnonThrottle,
    PenstockThrottle,
    ScopedThrottle,
    UserThrottle,
)
from penstock.testing import FakeClock

NOW = 1_767_225_600


class User:
    is_authenticated = True

    def __init__(self, pk: str) -> None:
        self.pk = pk


class ByHeader(BaseAuthentication):
    """Whoever says so is logged in."""

    def authenticate(self, request: Any) -> Any:
        name = request.headers.get("x-user")
        return (User(name), None) if name else None


def view_with(*throttles: Any, raises: Exception | None = None, **attributes: Any) -> Any:
    class Shop(APIView):
        authentication_classes = (ByHeader,)
        throttle_classes = throttles

        def get(self, request: Any) -> Response:
            if raises is not None:
                raise raises
            return Response({"hello": getattr(request.user, "pk", None)})

    for name, value in attributes.items():
        setattr(Shop, name, value)
    return Shop.as_view()


def ask(*views: Any, user: str | None = None, site_: Any = None, **more: Any) -> list[Any]:
    """One request to each, in one site, as a client gets the answers."""
    headers = {"x-user": user} if user else {}
    with site([path(f"{n}", view) for n, view in enumerate(views)], **(site_ or {})):
        client = Client(raise_request_exception=False, **more)
        return [client.get(f"/{n}", headers=headers) for n in range(len(views))]


def statuses(*views: Any, **more: Any) -> list[int]:
    return [answer.status_code for answer in ask(*views, **more)]


# A limit of a class --------------------------------------------------------------------------


def test_a_class_has_a_limit_and_its_wait_is_exact() -> None:
    clock = FakeClock(start=NOW * 10**9)

    class Burst(PenstockThrottle):
        limit = "2/minute"
        store = MemoryStore(clock=clock)

    Burst.clock = clock
    view = view_with(Burst)
    first, _, refused = ask(view, view, view)
    assert first.status_code == 200
    assert first["RateLimit-Policy"] == '"2/minute";q=2;w=60'
    assert first["RateLimit"] == '"2/minute";r=1;t=30'
    assert first["X-RateLimit-Reset"] == str(NOW + 30)
    assert refused.status_code == 429
    assert refused["Retry-After"] == "30"
    assert refused["X-RateLimit-Remaining"] == "0"
    assert refused.json() == {"detail": "Request was throttled. Expected available in 30 seconds."}
    clock.advance(28.75)
    throttle = Burst()
    request = APIView().initialize_request(RequestFactory().get("/"))
    assert not throttle.allow_request(request, APIView())
    assert throttle.wait() == 1.25
    clock.advance(1.25)
    assert statuses(view) == [200]
    assert statuses(view) == [429]


def test_no_waiting_helps_and_nothing_was_asked() -> None:
    class Heavy(PenstockThrottle):
        limit = "3/minute"
        cost = 4

    throttle = Heavy()
    assert throttle.wait() is None
    request = APIView().initialize_request(RequestFactory().get("/"))
    assert not throttle.allow_request(request, APIView())
    assert throttle.wait() is None
    (answer,) = ask(view_with(Heavy))
    assert answer.status_code == 429
    assert "Retry-After" not in answer


def test_eight_threads_never_exceed_a_limit() -> None:
    class Exact(PenstockThrottle):
        limit = "100/hour"

    view = view_with(Exact)
    requests = RequestFactory()
    seen: list[int] = []

    def work() -> None:
        for _ in range(50):
            seen.append(view(requests.get("/")).status_code)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seen.count(200), seen.count(429)) == (100, 300)


def test_a_key_is_a_function_of_the_request_not_a_method() -> None:
    class Tenant(PenstockThrottle):
        limit = "1/minute"
        key = by_header("x-tenant")

    class Everybody(PenstockThrottle):
        limit = "1/minute"
        key = lambda request: "all"  # noqa: E731 - as people write it in a class

    class Function(PenstockThrottle):
        key = staticmethod(lambda request: "all")

        def limit(request: Request) -> str:
            return "1/minute"

    for throttle in (Tenant, Everybody, Function):
        view = view_with(throttle)
        assert statuses(view, view) == [200, 429]


async def awaited_key(request: Request) -> str:
    return "all"


def test_a_key_may_be_awaited() -> None:
    class Awaited(PenstockThrottle):
        limit = "1/minute"
        key = awaited_key

    assert statuses(*[view_with(Awaited)] * 2) == [200, 429]


def test_classes_are_counted_each_for_itself_even_in_one_store() -> None:
    shared = MemoryStore()

    class One(PenstockThrottle):
        limit = "1/minute"
        store = shared

    class Two(PenstockThrottle):
        limit = "1/minute"
        store = shared

    assert statuses(view_with(One), view_with(One), view_with(Two)) == [200, 429, 200]


def test_a_list_and_a_subclass() -> None:
    class Several(PenstockThrottle):
        limit = ("3/minute", "2/second")
        store = MemoryStore(clock=FakeClock())

    class Narrower(Several):
        limit = "1/minute"

    view = view_with(Several)
    answers = ask(view, view, view)
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0]["RateLimit-Policy"] == '"2/second";q=2;w=1, "3/minute";q=3;w=60'
    assert statuses(*[view_with(Narrower)] * 2) == [200, 429]


# Rates by name -------------------------------------------------------------------------------


def with_rates(rates: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"site_": {"REST_FRAMEWORK": {**REST, "DEFAULT_THROTTLE_RATES": rates, **more}}}


@pytest.mark.parametrize(
    "rate", ["2/s", "2/sec", "2/m", "2/min", "2/minute", "2/h", "2/hour", "2/d", "2/day"]
)
def test_rates_as_rest_framework_writes_them(rate: str) -> None:
    class Named(PenstockThrottle):
        scope = "burst"
        store = MemoryStore(clock=FakeClock())

    view = view_with(Named)
    assert statuses(view, view, view, **with_rates({"burst": rate})) == [200, 200, 429]


def test_users_and_strangers() -> None:
    rates = with_rates({"user": "3/minute", "anon": "1/minute"})
    users, strangers = view_with(UserThrottle), view_with(AnonThrottle)
    both = view_with(UserThrottle, AnonThrottle)
    assert statuses(*[users] * 4, user="ada", **rates) == [200, 200, 200, 429]
    assert statuses(*[users] * 4, user="bob", **rates) == [200, 200, 200, 429]
    assert statuses(*[strangers] * 4, user="ada", **rates) == [200] * 4
    assert statuses(*[strangers] * 2, **rates) == [200, 429]
    assert statuses(*[strangers] * 2, REMOTE_ADDR="203.0.113.8", **rates) == [200, 429]
    (answer,) = ask(both, REMOTE_ADDR="203.0.113.9", **rates)
    assert answer["RateLimit-Policy"] == '"anon";q=1;w=60, "user";q=3;w=60'


def test_the_scope_of_a_view() -> None:
    rates = with_rates({"uploads": "1/minute", "searches": "2/minute", "free": None})
    uploads, again, searches, free, nothing = (
        view_with(ScopedThrottle, throttle_scope=scope)
        for scope in ("uploads", "uploads", "searches", "free", None)
    )
    views = (uploads, again, searches, searches, searches, free, free, nothing, nothing)
    assert statuses(*views, **rates) == [200, 429, 200, 200, 429, 200, 200, 200, 200]


def test_rates_may_change_as_in_tests() -> None:
    class Named(PenstockThrottle):
        scope = "burst"

    view = view_with(Named)
    for amount in (1, 2):
        asked = statuses(*[view] * (amount + 1), **with_rates({"burst": f"{amount}/hour"}))
        assert asked == [200] * amount + [429]


def test_throttles_by_default() -> None:
    more = with_rates(
        {"user": "1/minute"},
        DEFAULT_THROTTLE_CLASSES=["penstock.integrations.django.rest_framework.UserThrottle"],
    )

    class Shop(APIView):
        authentication_classes = (ByHeader,)

        def get(self, request: Any) -> Response:
            return Response({})

    with site([], **more["site_"]):
        Shop.throttle_classes = APIView.settings.DEFAULT_THROTTLE_CLASSES
    view = Shop.as_view()
    assert statuses(view, view, user="carol", **more) == [200, 429]


# All or nothing ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1])
def test_who_is_refused_by_one_takes_nothing_of_the_others(order: int) -> None:
    clock = FakeClock()

    class Burst(PenstockThrottle):
        limit = "1/minute"
        store = MemoryStore(clock=clock)
        key = lambda request: "k"  # noqa: E731

    class Day(PenstockThrottle):
        limit = "3/day"
        store = MemoryStore(clock=clock)
        key = lambda request: "k"  # noqa: E731

    class Month(Day):
        limit = "9/month"

    view = view_with(*[Burst, Day, Month][::order])
    assert statuses(*[view] * 5) == [200, 429, 429, 429, 429]
    for minute in (1, 1):
        clock.advance(60 * minute)
        assert statuses(view) == [200]
    clock.advance(60)
    assert statuses(view) == [429], "three a day"


def test_a_throttle_of_rest_framework_may_stand_beside() -> None:
    class Closed(BaseThrottle):
        def allow_request(self, request: Any, view: Any) -> bool:
            return False

    class Ours(PenstockThrottle):
        limit = "9/minute"

    (answer,) = ask(view_with(Ours, Closed))
    assert answer.status_code == 429
    assert answer["X-RateLimit-Remaining"] == "8"


# What is told --------------------------------------------------------------------------------


class Nine(PenstockThrottle):
    limit = "9/minute"
    key = lambda request: request.header("x-case") or "-"  # noqa: E731


@pytest.mark.parametrize(("error", "status"), [(NotFound(), 404), (APIException(), 500)])
def test_headers_are_told_on_errors_too(error: Exception, status: int) -> None:
    (answer,) = ask(view_with(Nine, raises=error))
    assert answer.status_code == status
    assert answer["RateLimit-Policy"] == '"9/minute";q=9;w=60'


def test_function_views_and_the_decorator() -> None:
    class Page(PenstockThrottle):
        limit = "5/minute"

    @api_view(["GET"])
    @throttle_classes([Page])
    @limit("1/minute", name="inner")
    def view(request: Any) -> Response:
        return Response({"left": request.penstock.named_decisions[0][1].remaining})

    with site([path("", view)], {"fields": "both"}):  # the middleware tells of both
        first, second = [Client().get("/") for _ in range(2)]
    assert (first.status_code, first.json()) == (200, {"left": 0})
    assert second.status_code == 429
    for answer in (first, second):
        assert answer["RateLimit-Policy"] == '"inner";q=1;w=60, "5/minute";q=5;w=60'


def test_the_middleware_tells_of_throttles_too() -> None:
    class Page(PenstockThrottle):
        limit = "2/minute"

    view = view_with(Page)
    with site([path("", view)], {"limit": "9/minute", "name": "all"}):
        answers = [Client().get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    for answer in answers:
        assert answer["RateLimit-Policy"] == '"2/minute";q=2;w=60, "all";q=9;w=60'


def test_a_view_that_permits_nobody_counts_nothing() -> None:
    class Nobody(BasePermission):
        def has_permission(self, request: Any, view: Any) -> bool:
            return False

    shared = MemoryStore()

    class Page(PenstockThrottle):
        limit = "1/minute"
        key = lambda request: "k"  # noqa: E731
        store = shared

    closed = view_with(Page, permission_classes=(Nobody,))
    assert statuses(closed, closed) == [403, 403]
    assert statuses(view_with(Page)) == [200]


def test_shadow_and_hook() -> None:
    seen: list[Any] = []

    class Trial(PenstockThrottle):
        limit = "1/minute"
        shadow = True
        hook = seen.append

    assert statuses(*[view_with(Trial)] * 3) == [200] * 3
    assert len(seen) == 2


def test_a_store_that_fails() -> None:
    class Open(PenstockThrottle):
        limit = "1/minute"
        store = Broken()

    class Closed(Open):
        on_failure = "closed"

    opened, closed = ask(view_with(Open), view_with(Closed))
    assert opened.status_code == 200
    assert (closed.status_code, closed["Retry-After"]) == (503, "1")
    assert closed.json() == {"detail": "Rate limits cannot be checked."}


# Who is asking -------------------------------------------------------------------------------


def forwarded(*views: Any, address: str, **more: Any) -> list[int]:
    return statuses(*views, HTTP_X_FORWARDED_FOR=address, **more)


def test_nobody_is_believed_unless_named() -> None:
    class Plain(PenstockThrottle):
        limit = "1/minute"

    view = view_with(Plain)
    assert forwarded(view, address="203.0.113.1") == [200]
    assert forwarded(view, address="203.0.113.2") == [429]


def test_num_proxies_is_kept_to() -> None:
    class Counted(PenstockThrottle):
        limit = "1/minute"

    view, more = view_with(Counted), with_rates({}, NUM_PROXIES=1)
    assert forwarded(view, view, address="6.6.6.6, 203.0.113.1", **more) == [200, 429]
    assert forwarded(view, view, address="6.6.6.6, 203.0.113.2", **more) == [200, 429]
    assert forwarded(view, address="7.7.7.7, 203.0.113.1", **more) == [429]


def test_the_setting_is_taken_over() -> None:
    class Sited(PenstockThrottle):
        limit = "1/minute"
        key = lambda request: request.client  # noqa: E731

    view, store = view_with(Sited), MemoryStore()
    options = {"trusted": ["127.0.0.0/8"], "store": store}
    with site([path("", view)]), override_settings(PENSTOCK=options):
        client = Client()
        for address in ("203.0.113.1", "203.0.113.2"):
            asked = [client.get("/", headers={"x-forwarded-for": address}) for _ in range(2)]
            assert [answer.status_code for answer in asked] == [200, 429]
    scope = f"{Sited.__module__}.{Sited.__qualname__}"
    assert not Limiter("1/minute", store=store).peek(f"{scope}:203.0.113.1")


# What is wrong is said -----------------------------------------------------------------------


def test_mistakes_are_found_where_they_are_made() -> None:
    with pytest.raises(LimitError, match="often"):
        type("Bad", (PenstockThrottle,), {"limit": "often"})
    with pytest.raises(LimitError, match="often"):
        type("Bad", (PenstockThrottle,), {"limit": ["1/minute", "often"]})
    with pytest.raises(TypeError, match="a throttle does not see the response"):
        type("Bad", (PenstockThrottle,), {"limit": "1/minute", "count_when": print})


@pytest.mark.parametrize(
    ("attributes", "rates", "words"),
    [
        ({}, {}, "Bad needs a limit, or a scope"),
        ({"rate": "1/minute"}, {}, "or a scope: write limit in place of rate"),
        ({"scope": "burst"}, {"user": "1/s"}, "DEFAULT_THROTTLE_RATES has no 'burst'; it has user"),
        ({"scope": "burst"}, {"burst": "often"}, "Bad: .*often"),
        ({"limit": "1/minute", "key": "ip"}, {}, "Bad: key is a function"),
        ({"limit": "1/minute", "fields": "all"}, {}, "Bad: fields is one of"),
    ],
)
def test_what_is_improperly_configured(
    attributes: dict[str, Any], rates: dict[str, Any], words: str
) -> None:
    throttle = type("Bad", (PenstockThrottle,), attributes)
    request = APIView().initialize_request(RequestFactory().get("/"))
    with (
        site([], **with_rates(rates)["site_"]),
        pytest.raises(ImproperlyConfigured, match=words),
    ):
        throttle().allow_request(request, APIView())
