"""A value in Redis that is not ours, seen from outside: the failure policy answers.

And nobody is told where the store is, or what its keys are called.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("redis")
pytest.importorskip("yaml")

import redis

from penstock import AsyncGate, Gate, Limit
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.wsgi import PenstockWSGI
from penstock.service.service import Service
from penstock.stores.redis import RedisStore
from penstock.stores.redis.counters import RedisCounters
from penstock.wires.http.auth import AuthApi
from penstock.wires.http.check import CheckApi
from penstock.wires.http.messages import HttpRequest, HttpResponse

LIMIT = "3/hour"
RULES = """
domain: api
descriptors:
  - key: remote_address
    limits: 3/hour
  - key: user
    limits: 3/hour
"""
VALUES: list[Any] = [b"hello", ["x"]]


class Planted:
    """A store in which every key that is asked for holds something else, but for ``sound``."""

    def __init__(self, url: str, prefix: str, policy: str) -> None:
        self.store = RedisStore(
            url, prefix=prefix, deadline="60s", connect_timeout="60s", on_failure=policy
        )
        self.client = redis.Redis.from_url(url)
        self.secrets = [prefix, url.rpartition("/")[0].rpartition(":")[2], "WRONGTYPE", "hello"]

    def plant(self, key: str, value: Any) -> None:
        counters = self.store.counters(Limit.parse(LIMIT))
        assert isinstance(counters, RedisCounters)
        if isinstance(value, list):
            self.client.lpush(counters.redis_key(key), *value)
        else:
            self.client.set(counters.redis_key(key), value)

    def tells(self, text: str) -> bool:
        return any(secret in text for secret in self.secrets)


@pytest.fixture(params=["open", "closed"])
async def planted(request: Any, redis_url: str, prefix: str) -> AsyncIterator[Planted]:
    made = Planted(redis_url, prefix, request.param)
    yield made
    await made.store.close_async()
    made.store.close()
    made.client.close()


def gate_key(gate: Gate, descriptor: dict[str, str]) -> str:
    match = gate.matchers["api"].match(tuple(descriptor.items()))
    assert match is not None
    return match.key


def policy(planted: Planted) -> str:
    return planted.store.fallback.policy


async def asgi(app: Any) -> tuple[int, str]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("9.9.9.9", 1)}
    await app(scope, receive, send)
    return sent[0]["status"], repr(sent)


async def answering(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


@pytest.mark.parametrize("value", VALUES, ids=["text", "list"])
async def test_asgi(planted: Planted, value: Any) -> None:
    planted.plant("k", value)
    app = PenstockMiddleware(answering, limit=LIMIT, key=lambda _: "k", store=planted.store)
    for _ in range(6):
        status, told = await asgi(app)
        assert (status == 200) == (policy(planted) == "open")
        assert not planted.tells(told)


@pytest.mark.parametrize("value", VALUES, ids=["text", "list"])
async def test_wsgi(planted: Planted, value: Any) -> None:
    planted.plant("k", value)

    def inner(environ: Any, start: Any) -> Any:
        start("200 OK", [])
        return [b"fine"]

    app = PenstockWSGI(inner, limit=LIMIT, key=lambda _: "k", store=planted.store)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "9.9.9.9"}
    for _ in range(6):
        seen: list[Any] = []
        body = b"".join(app(dict(environ), lambda *told, seen=seen: seen.extend(told)))
        assert seen[0].startswith("200") == (policy(planted) == "open")
        assert not planted.tells(repr(seen) + repr(body))


async def answer_of(api: Any, request: HttpRequest) -> HttpResponse:
    answer = api(request)
    return answer if isinstance(answer, HttpResponse) else await answer


def asked(body: Any) -> HttpRequest:
    made = HttpRequest("9.9.9.9")
    made.body = json.dumps(body).encode()
    return made


@pytest.mark.parametrize("value", VALUES, ids=["text", "list"])
async def test_check_and_its_batches(planted: Planted, value: Any) -> None:
    gate = AsyncGate.from_rules(RULES, planted.store)
    planted.plant(gate_key(gate, {"user": "bad"}), value)
    api, opened = CheckApi(Service(gate)), policy(planted) == "open"
    bad, good = ({"descriptors": [{"user": name}]} for name in ("bad", "good"))
    for _ in range(3):
        answer = await answer_of(api, asked(bad))
        assert answer.status == (200 if opened else 429)
        assert json.loads(answer.body)["statuses"][0]["degraded"] is True
        assert not planted.tells(repr(answer.body) + repr(answer.headers))
    batch = await answer_of(api, asked({"checks": [good, bad, good, bad]}))
    assert batch.status == 200
    results = json.loads(batch.body)["results"]
    assert [one["allowed"] for one in results] == [True, opened, True, opened]
    assert [results[at]["statuses"][0]["remaining"] for at in (0, 2)] == [2, 1]
    assert not planted.tells(batch.body.decode())


async def test_forward_auth(planted: Planted) -> None:
    gate = AsyncGate.from_rules(RULES, planted.store)
    api = AuthApi(Service(gate), gate, Trust(["127.0.0.1"]))
    planted.plant(gate_key(gate, {"remote_address": "9.9.9.9"}), b"hello")
    for _ in range(4):
        request = HttpRequest("127.0.0.1")
        request.headers = [("x-forwarded-for", "9.9.9.9")]
        answer = await answer_of(api, request)
        assert (answer.status == 200) == (policy(planted) == "open")
        assert not planted.tells(repr(answer.body) + repr(answer.headers))


async def test_envoy(planted: Planted) -> None:
    pytest.importorskip("google.protobuf")
    from service import rls_messages

    gate = AsyncGate.from_rules(RULES, planted.store)
    planted.plant(gate_key(gate, {"user": "bad"}), b"hello")
    service = Service(gate)
    entries = [{"entries": [{"key": "user", "value": name}]} for name in ("bad",)]
    message = rls_messages.encode({"domain": "api", "descriptors": entries})
    for _ in range(6):
        found = rls_messages.decode(await service.rate_limit(message))  # type: ignore[misc]
        assert (found["overall_code"] == "OK") == (policy(planted) == "open")
        assert not planted.tells(repr(found))
