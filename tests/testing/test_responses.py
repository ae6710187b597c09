"""`assert_limited`, with the responses of every framework, and what it says when it fails."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path
from flask import Flask
from starlette.testclient import TestClient

from integrations.django.site import site
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.flask import Penstock
from penstock.testing import assert_limited


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def starlette_client(limit: str, **options: Any) -> Any:
    return TestClient(PenstockMiddleware(hello, limit=limit, **options))


def flask_client(limit: str, **options: Any) -> Any:
    app = Flask("shop")
    Penstock(app, limit, **options)
    app.add_url_rule("/", "home", lambda: "hello")
    return app.test_client()


def django_client(limit: str, **options: Any) -> Any:
    from django.test import Client

    views = [path("", lambda request: HttpResponse("hello"))]
    with site(views, {"limit": limit, **options}):
        client = Client()
        client.handler.load_middleware()  # with these options, which end with the block

    def get(url: str) -> Any:
        with site(views, {"limit": limit, **options}):
            return client.get(url)

    return SimpleNamespace(get=get)


CLIENTS = [starlette_client, flask_client, django_client]
FIELDS = ["both", "ietf", "legacy", "none"]


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("fields", FIELDS)
def test_a_refusal_passes(make: Callable[..., Any], fields: str) -> None:
    client = make("2/minute", fields=fields)
    response = assert_limited(client.get, "/", after=2)
    assert response.status_code == 429
    assert assert_limited(response) is response
    assert_limited(client.get, "/")
    assert_limited(client.get, "/", after=0)


@pytest.mark.parametrize("make", CLIENTS)
def test_a_response_that_is_none_fails(make: Callable[..., Any]) -> None:
    client = make("9/minute")
    with pytest.raises(AssertionError) as failure:
        assert_limited(client.get("/"))
    lines = str(failure.value).splitlines()
    assert lines[:2] == ["the status is 200, not 429", "status: 200"]
    assert 'RateLimit-Policy: "default";q=9;w=60' in lines
    assert "X-RateLimit-Remaining: 8" in lines
    assert lines[-1] == "body: b'hello'"


@pytest.mark.parametrize("make", CLIENTS)
def test_one_that_comes_too_late_or_too_early_fails(make: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match=r"^request 3: the status is 200, not 429\n"):
        assert_limited(make("5/minute").get, "/", after=2)
    early = r"^request 2 was limited, and not only number 4\nstatus: 429\nRetry-After: 60\n"
    with pytest.raises(AssertionError, match=early):
        assert_limited(make("1/minute").get, "/", after=3)


def test_several_limits_agree() -> None:
    client = starlette_client("2/minute; 5/hour")
    assert_limited(client.get, "/", after=2)


def test_a_limit_that_never_lets_through_names_no_time() -> None:
    with pytest.raises(AssertionError, match=r"^request 1: there is no Retry-After\nstatus: 429"):
        assert_limited(starlette_client("0/day").get, "/")


GOOD = {
    "Retry-After": "20",
    "RateLimit-Policy": '"a, \\"b";q=3;w=60, "day";q=9;w=86400',
    "RateLimit": '"a, \\"b";r=0;t=20, "day";r=6;t=86400',
    "X-RateLimit-Limit": "3",
    "X-RateLimit-Remaining": "0",
    "X-RateLimit-Reset": "1767225635",
}


def test_fields_that_agree_pass() -> None:
    assert_limited(httpx.Response(429, headers=GOOD))
    assert_limited(httpx.Response(429, headers={"retry-after": "1"}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"Retry-After": "soon"}, r"^Retry-After is 'soon', not a whole number of seconds above 0"),
        ({"Retry-After": "0"}, r"^Retry-After is '0', not a whole"),
        ({"Retry-After": "1.5"}, r"^Retry-After is '1.5', not a whole"),
        ({"Retry-After": "21"}, r"^RateLimit has no policy with r=0 and t=21, but Retry-After is"),
        ({"RateLimit": '"day";r=1;t=20'}, r"^RateLimit has no policy with r=0 and t=20"),
        ({"RateLimit": "nonsense"}, r"^RateLimit has no policy with r=0"),
        ({"RateLimit": '"b";r=0;t=20'}, r'^RateLimit names "b", but RateLimit-Policy does not'),
        ({"X-RateLimit-Remaining": "1"}, r"^X-RateLimit-Remaining is '1', but the request was"),
    ],
)
def test_fields_that_contradict_each_other_fail(changed: dict[str, str], message: str) -> None:
    with pytest.raises(AssertionError, match=message) as failure:
        assert_limited(httpx.Response(429, headers=GOOD | changed, content=b"x" * 999))
    for name, value in (GOOD | changed).items():
        assert f"{name}: {value}" in str(failure.value)
    assert str(failure.value).endswith("x" * 199 + "x'")
    assert "x" * 201 not in str(failure.value)


def test_a_stream_is_not_read_to_show_it() -> None:
    streams = [
        httpx.Response(200, content=iter([b"hello"])),
        StreamingHttpResponse([b"hello"]),
    ]
    for stream in streams:
        with pytest.raises(AssertionError, match=r"body: \(\w+\)$"):
            assert_limited(stream)


async def test_what_has_to_be_awaited_is_refused() -> None:
    transport = httpx.ASGITransport(PenstockMiddleware(hello, limit="1/minute"))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        with pytest.raises(TypeError, match=r"assert_limited\(await client.get"):
            assert_limited(client.get, "/", after=1)
        await client.get("/")
        assert_limited(await client.get("/"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: assert_limited("429"), TypeError, r"has status_code and headers; this is str"),
        (lambda: assert_limited(lambda: 429), TypeError, r"this is int: 429"),
        (lambda: assert_limited(httpx.Response(429), after=3), TypeError, r"such as client.get"),
        (lambda: assert_limited(httpx.Response(429), "/"), TypeError, r"such as client.get"),
        (lambda: assert_limited(print, after=-1), ValueError, r"at least 0, not -1"),
        (lambda: assert_limited(print, after=True), ValueError, r"at least 0, not True"),
    ],
)
def test_wrong_arguments_say_what_is_wanted(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
