"""Counts that are forgotten, as between tests."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import path
from fastapi import FastAPI
from flask import Flask
from starlette.testclient import TestClient
from werkzeug.test import Client

from integrations.django.site import Asker, site
from penstock import AsyncGate, Limiter, MemoryStore
from penstock.errors import StoreError
from penstock.integrations import by_ip, by_user
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.django import limit as django_limit
from penstock.integrations.django import reset
from penstock.integrations.django.counts import CHECKPOINTS
from penstock.integrations.fastapi import limit as fastapi_limit
from penstock.integrations.flask import Penstock
from penstock.integrations.grpc import RateLimitInterceptor
from penstock.integrations.wsgi import PenstockWSGI
from penstock.stores.base import Store


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def hello_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"hello"]


LIMITS = ["1/minute", {by_ip: "1/minute; 50/day", by_user: "9/minute"}]
RULES = {"domain": "web", "descriptors": [{"key": "path", "limits": "1/minute lockout 1h"}]}


@pytest.mark.parametrize(
    "options",
    [
        {"limit": "1/minute"},
        {"limit": ["1/minute", "5/hour sliding_window", "9/day sliding_log"]},
        {"limit": "1/minute lockout 1h"},
        {"limit": {by_ip: "1/minute; 5/hour", by_user: "9/day sliding_log"}},
        {"limit": {by_ip: "1/minute lockout 1h"}, "count_when": lambda response: True},
        {"gate": AsyncGate.from_rules(RULES)},
    ],
)
def test_of_asgi(options: Any) -> None:
    app = PenstockMiddleware(hello, **options)
    for _ in range(2):
        assert [TestClient(app).get("/").status_code for _ in range(2)] == [200, 429]
        app.reset()


def test_of_wsgi() -> None:
    app = PenstockWSGI(hello_wsgi, limit="1/minute")
    for _ in range(2):
        assert [Client(app).get("/").status_code for _ in range(2)] == [200, 429]
        app.reset()


@pytest.mark.parametrize("limit", LIMITS)
def test_of_a_limit_of_fastapi(limit: Any) -> None:
    app, one = FastAPI(), fastapi_limit(limit)
    app.get("/")(one(lambda: "hello"))
    for _ in range(2):
        assert [TestClient(app).get("/").status_code for _ in range(2)] == [200, 429]
        one.reset()


@pytest.mark.parametrize("limit", LIMITS)
def test_of_flask_and_its_views(limit: Any) -> None:
    app = Flask("shop")
    penstock = Penstock(app, "3/minute")
    app.add_url_rule("/", "home", lambda: "hello")
    app.add_url_rule("/one", "one", penstock.limit(limit)(lambda: "one"))
    for _ in range(2):
        statuses = [app.test_client().get(path).status_code for path in ("/one", "/one", "/", "/")]
        assert statuses == [200, 429, 200, 200]
        assert app.test_client().get("/").status_code == 429
        penstock.reset()


@pytest.mark.parametrize("limit", LIMITS)
def test_of_django_its_views_and_throttles(limit: Any) -> None:
    CHECKPOINTS.clear()  # those of other tests
    view = django_limit(limit)(lambda request: HttpResponse("one"))
    urls = [path("one", view), path("", lambda request: HttpResponse("hello"))]
    with site([*urls, path("rest", throttled_view(limit))], {"limit": "5/minute"}):
        asker = Asker(False)
        for _ in range(2):
            assert asker.statuses("/one", "/one", "/rest", "/rest") == [200, 429, 200, 429]
            assert asker.statuses("/", "/", "/", "/") == [200, 200, 200, 429]
            reset()


def throttled_view(one: Any) -> Any:
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from penstock.integrations.django.rest_framework import PenstockThrottle

    class OneThrottle(PenstockThrottle):
        limit = one

    class View(APIView):  # type: ignore[misc]  # REST framework has no types
        throttle_classes = (OneThrottle,)

        def get(self, request: Any) -> Any:
            return Response("hello")

    return View.as_view()


def test_of_an_interceptor() -> None:
    limiter = Limiter("1/minute")
    limiter.hit("all")
    RateLimitInterceptor(limiter).reset()
    assert limiter.hit("all").allowed


def test_a_store_that_cannot_forget_says_so() -> None:
    class Stubborn(Store):
        def make_counters(self, limit: Any) -> Any:
            return MemoryStore().counters(limit)

    with pytest.raises(StoreError, match=r"Stubborn.* cannot forget all its keys"):
        PenstockWSGI(hello_wsgi, limit="1/minute", store=Stubborn()).reset()
