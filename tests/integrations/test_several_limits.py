"""A text of several limits is a list of limits to every integration; a limit of 0 refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import AsyncLimiter, Limiter, LimitError, MemoryStore
from penstock.integrations import by_ip
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding.deciders import ByLimits
from penstock.integrations.wsgi import PenstockWSGI
from penstock.testing import FakeClock

TEXT = "2/minute; 3/day"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def ask(app: Any) -> tuple[int, dict[str, str]]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [],
        "client": ("203.0.113.7", 1),
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers


@pytest.mark.parametrize("limit", [TEXT, [TEXT], ["2/minute", "3/day"]])
def test_asgi(limit: Any) -> None:
    clock = FakeClock(1_700_000_000 * 10**9)
    app = PenstockMiddleware(hello, limit=limit, store=MemoryStore(clock=clock))
    status, headers = ask(app)
    assert status == 200
    assert headers["ratelimit-policy"] == '"2/minute";q=2;w=60, "3/day";q=3;w=86400'
    assert [ask(app)[0] for _ in range(2)] == [200, 429]
    clock.advance(60)
    assert [ask(app)[0] for _ in range(2)] == [200, 429]


def test_asgi_closed() -> None:
    status, headers = ask(PenstockMiddleware(hello, limit="0/minute"))
    assert status == 429
    assert headers["ratelimit-policy"] == '"default";q=0;w=60'
    assert "retry-after" not in headers


@pytest.mark.parametrize("policy", [None, "closed"])
def test_a_dict_of_keys(policy: Any) -> None:
    clock = FakeClock(1_700_000_000 * 10**9)
    limit = {by_ip: TEXT, lambda request: "all": ["9/minute, 9/day", "4/hour"]}
    options: Any = {"limit": limit, "on_failure": policy}
    app = PenstockMiddleware(hello, store=MemoryStore(clock=clock), **options)
    status, headers = ask(app)
    assert status == 200
    policies = [each.split(";")[0] for each in headers["ratelimit-policy"].split(", ")]
    assert sorted(policies) == ['"2/minute"', '"3/day"', '"4/hour"', '"9/day"', '"9/minute"']
    assert [ask(app)[0] for _ in range(2)] == [200, 429]
    clock.advance(60)
    assert [ask(app)[0] for _ in range(2)] == [200, 429]
    clock.advance(60)
    assert '"9/day";r=6' in ask(app)[1]["ratelimit"]  # refused requests took nothing


def test_a_dict_of_keys_in_which_a_text_names_a_limit_twice() -> None:
    with pytest.raises(LimitError, match="twice"):
        PenstockMiddleware(hello, limit={by_ip: "2/minute; 2/minute"})


def test_wsgi() -> None:
    answered: list[str] = []

    def app(environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return [b"hello"]

    limited = PenstockWSGI(app, limit=TEXT)
    for _ in range(3):
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7"}
        b"".join(limited(environ, lambda status, headers, *_: answered.append(status)))
    assert [status[:3] for status in answered] == ["200", "200", "429"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_limiter_of_several_is_asked_for_each(asynchronous: bool) -> None:
    """As gRPC's interceptors do, whose limits are those of a limiter."""
    limiter = AsyncLimiter(TEXT)._limiter if asynchronous else Limiter(TEXT)
    decider: ByLimits[Any] = ByLimits(
        limiter, None, lambda request: "k",
        name="default", on_failure=None, asynchronous=asynchronous, settles=True,
    )  # fmt: skip
    assert decider.fixed is not None
    assert [name for name, _ in decider.fixed] == ["2/minute", "3/day"]


def test_fastapi_flask_and_rest_framework_take_it() -> None:
    fastapi = pytest.importorskip("penstock.integrations.fastapi")
    assert fastapi.limit(TEXT) is not None
    with pytest.raises(LimitError, match="twice"):
        fastapi.limit("2/minute; 2/minute")
    flask = pytest.importorskip("flask")
    from penstock.integrations.flask import limit

    app = flask.Flask("test")

    @app.get("/")
    @limit(TEXT)
    def view() -> str:
        return "hello"

    client = app.test_client()
    answers = [client.get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert '"2/minute";q=2;w=60' in answers[0].headers["RateLimit-Policy"]
