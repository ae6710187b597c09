"""POST /v1/release, and leases in the answers of POST /v1/check."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import jsonschema
import pytest

from penstock import AsyncGate, MemoryStore
from penstock.errors import StoreUnavailable
from penstock.integrations.deciding.identity import Trust
from penstock.service.health import Health
from penstock.service.service import Service
from penstock.testing import FakeClock
from penstock.wires.http.api import http_api
from penstock.wires.http.messages import HttpRequest, HttpResponse
from penstock.wires.http.openapi import DOCUMENT

RULES = """
domain: api
descriptors:
  - {key: user, concurrency: 2, limits: 5/hour}
  - {key: plain, limits: 5/hour}
"""
CHECK = {"descriptors": [{"user": "42"}]}


class Later(MemoryStore):
    """Answers later, as Redis does."""

    waits = True


class Site:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.service = Service(AsyncGate.from_rules(RULES, store))
        self.routes = http_api(self.service, Health(), Trust(["127.0.0.0/8"]))

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        request = HttpRequest("127.0.0.1")
        request.path, request.method = path, "POST"
        request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = self.routes(request)
        if not isinstance(response, HttpResponse):
            response = asyncio.run(_awaited(response))
        return response.status, json.loads(response.body)


async def _awaited(response: Awaitable[HttpResponse]) -> HttpResponse:
    return await response


@pytest.fixture(params=[MemoryStore, Later])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.param(clock=FakeClock()))


def schema(name: str) -> dict[str, Any]:
    return {**DOCUMENT["components"]["schemas"][name], "components": DOCUMENT["components"]}


def test_check_and_release(site: Site) -> None:
    answers = [site.post("/v1/check", CHECK) for _ in range(3)]
    assert [status for status, _ in answers] == [200, 200, 429]
    for _, body in answers:
        jsonschema.validate(body, schema("Verdict"))
    assert "lease" not in answers[2][1]
    assert answers[2][1]["statuses"][0]["limit"]["name"] == "api/user concurrency"
    assert answers[2][1]["statuses"][0]["limit"]["text"] == "concurrency 2 slot_lease 30s"
    release = {"lease": answers[0][1]["lease"]}
    jsonschema.validate(release, schema("Release"))
    assert site.post("/v1/release", release) == (200, {"released": True})
    assert site.post("/v1/release", release) == (200, {"released": False})
    jsonschema.validate({"released": False}, schema("Released"))
    assert [site.post("/v1/check", CHECK)[0] for _ in range(2)] == [200, 429]


def test_each_of_many_checks_has_its_lease(site: Site) -> None:
    plain = {"descriptors": [{"plain": "1"}]}
    _, body = site.post("/v1/check", {"checks": [CHECK, plain, CHECK, CHECK]})
    jsonschema.validate(body, schema("Verdicts"))
    leases = [each.get("lease") for each in body["results"]]
    assert [lease is not None for lease in leases] == [True, False, True, False]
    assert leases[0] != leases[2]
    assert all(site.post("/v1/release", {"lease": each})[0] == 200 for each in leases if each)


def test_the_same_question_again_and_again(site: Site) -> None:
    """Questions that come again are decided by a plan, unless they take slots."""
    for _ in range(5):
        status, body = site.post("/v1/check", CHECK)
        assert status == 200
        assert site.post("/v1/release", {"lease": body["lease"]})[1] == {"released": True}
    assert site.post("/v1/check", CHECK)[0] == 429, "by the rate"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "the body is"),
        (b"{", 400, "the body is not JSON"),
        (b"[" * 100_000, 400, "the body is not JSON"),
        ([], 400, '{"lease": "..."}'),
        ({"lease": 5}, 400, '{"lease": "..."}'),
        ({"lease": "x", "more": 1}, 400, '{"lease": "..."}'),
        ({"lease": "x"}, 404, "unknown lease"),
        ({"lease": ""}, 404, "unknown lease"),
        ({"lease": "\ud800"}, 404, "unknown lease"),
        ({"lease": "A" * 100_000}, 404, "unknown lease"),
    ],
)
def test_what_is_no_lease(site: Site, body: Any, status: int, message: str) -> None:
    answer = site.post("/v1/release", body)
    assert answer[0] == status
    assert message in answer[1]["error"]


def test_a_store_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(Later(clock=FakeClock()))
    _, body = site.post("/v1/check", CHECK)

    async def fail(*args: Any) -> Any:
        raise StoreUnavailable("secret detail")

    monkeypatch.setattr("penstock.stores.base._as_awaitable", fail)
    status, answer = site.post("/v1/release", {"lease": body["lease"]})
    assert status == 503
    assert "secret" not in answer["error"]
