"""The same question over every wire: limit, remaining and reset are the same numbers."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import AsyncGate, Limiter, MemoryStore
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.wsgi import PenstockWSGI
from penstock.service.health import Health
from penstock.service.rls_general import Response
from penstock.service.rls_request import read_request
from penstock.service.service import Service
from penstock.testing import FakeClock
from penstock.wires.http.api import http_api
from penstock.wires.http.messages import HttpRequest, HttpResponse
from service.rls_case import ask
from service.rls_messages import decode, decode_json, encode

# Allowed, limit, remaining, reset.
Numbers = tuple[bool, int, int, int]
Asking = Callable[[], Numbers]
ADDRESS = "127.0.0.1"
START = 1_703_635_209

LIMITS = [
    "100/minute burst 200",
    "10/minute",
    "6/minute burst 3",
    "3/minute",
    "5/second burst 2",
    "4/minute leaky_bucket",
    "3/minute fixed_window",
    "3/minute align first_hit",
    "2/day tz Asia/Taipei",
    "5/minute sliding_window",
    "4/minute sliding_log",
    "3/minute lockout 5m",
    "4/minute debt 2",
    "3/minute soft 2 for 30s",
]


def service_of(limit: str, clock: FakeClock, headers: bool = False) -> Service:
    rules = {"domain": "api", "descriptors": [{"key": "remote_address", "limits": limit}]}
    gate = AsyncGate.from_rules(rules, MemoryStore(clock=clock), clock=clock)
    assert isinstance(gate, AsyncGate)
    return Service(gate, clock=clock, headers=headers)


def of_status(answer: dict[str, Any]) -> Numbers:
    (status,) = answer["statuses"]
    reset = status["duration_until_reset"].removesuffix("s")
    return (
        answer["overall_code"] == "OK",
        status["current_limit"]["requests_per_unit"],
        status.get("limit_remaining", 0),
        int(reset),
    )


def of_fields(allowed: bool, headers: dict[str, str], clock: FakeClock) -> Numbers:
    """From both kinds of headers, which have to agree."""
    state = re.fullmatch(r'".*";r=(\d+);t=(\d+)', headers["ratelimit"])
    assert state is not None
    quota = re.fullmatch(r'".*";q=(\d+);w=\d+', headers["ratelimit-policy"])
    assert quota is not None
    numbers = allowed, int(quota[1]), int(state[1]), int(state[2])
    if "x-ratelimit-limit" in headers:
        now = math.ceil(clock.now() / 1e9)
        legacy = [int(headers[f"x-ratelimit-{n}"]) for n in ("limit", "remaining", "reset")]
        assert numbers[1:] == (legacy[0], legacy[1], legacy[2] - now)
    if not allowed:
        assert int(headers["retry-after"]) == max(1, numbers[3])
    else:
        assert "retry-after" not in headers
    return numbers


def lowered(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


# The wires ---------------------------------------------------------------------------------


def rls(limit: str, clock: FakeClock) -> Asking:
    service = service_of(limit, clock)

    def asking() -> Numbers:
        return of_status(decode(service.rate_limit(encode(ask(f"remote_address={ADDRESS}")))))  # type: ignore[arg-type]

    return asking


def rls_the_general_way(limit: str, clock: FakeClock) -> Asking:
    service = service_of(limit, clock, headers=True)

    def asking() -> Numbers:
        response = service.answer(read_request(encode(ask(f"remote_address={ADDRESS}"))))
        assert isinstance(response, Response)
        numbers = of_status(decode(response.wire()))
        assert [int(value) for _, value in response.headers] == list(numbers[1:])
        return numbers

    return asking


def http(limit: str, clock: FakeClock) -> Callable[..., HttpResponse]:
    routes = http_api(service_of(limit, clock), Health(), Trust(["127.0.0.0/8"]))

    def asking(path: str, body: Any = None) -> HttpResponse:
        request = HttpRequest(ADDRESS)
        request.path = path
        if body is not None:
            request.method, request.body = "POST", json.dumps(body).encode()
        answer = routes(request)
        assert isinstance(answer, HttpResponse)
        return answer

    return asking


def json_rls(limit: str, clock: FakeClock) -> Asking:
    site = http(limit, clock)
    return lambda: of_status(decode_json(site("/json", ask(f"remote_address={ADDRESS}")).body))


def check(limit: str, clock: FakeClock) -> Asking:
    site = http(limit, clock)

    def asking() -> Numbers:
        answer = site("/v1/check", {"descriptors": [{"remote_address": ADDRESS}]})
        numbers = of_fields(answer.status == 200, lowered(answer.headers), clock)
        (status,) = json.loads(answer.body)["statuses"]
        assert status["limit"]["burst"] == numbers[1]
        assert (status["remaining"], status["reset"]) == numbers[2:]
        return numbers

    return asking


def auth(limit: str, clock: FakeClock) -> Asking:
    site = http(limit, clock)

    def asking() -> Numbers:
        answer = site("/v1/auth")
        return of_fields(answer.status == 200, lowered(answer.headers), clock)

    return asking


def asgi(limit: str, clock: FakeClock) -> Asking:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    wrapped = PenstockMiddleware(app, limit=limit, store=MemoryStore(clock=clock), clock=clock)

    def asking() -> Numbers:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": "/", "headers": [], "client": (ADDRESS, 1),
            "query_string": b"", "raw_path": b"/",
        }  # fmt: skip
        asyncio.run(wrapped(scope, None, send))  # type: ignore[arg-type]
        headers = {n.decode().lower(): v.decode() for n, v in sent[0]["headers"]}
        return of_fields(sent[0]["status"] == 200, headers, clock)

    return asking


def wsgi(limit: str, clock: FakeClock) -> Asking:
    def app(environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return [b""]

    wrapped = PenstockWSGI(app, limit=limit, store=MemoryStore(clock=clock), clock=clock)

    def asking() -> Numbers:
        started: list[Any] = []
        environ = {"REMOTE_ADDR": ADDRESS, "REQUEST_METHOD": "GET", "PATH_INFO": "/"}
        for _ in wrapped(environ, lambda status, headers, *_: started.append((status, headers))):
            pass
        status, headers = started[0]
        return of_fields(status.startswith("200"), lowered(headers), clock)

    return asking


def grpc(limit: str, clock: FakeClock) -> Asking:
    answers = pytest.importorskip("penstock.integrations.grpc.trailers")
    limiter = Limiter(limit, store=MemoryStore(clock=clock))

    def asking() -> Numbers:
        decision = limiter.hit(ADDRESS)
        decisions = (("default", decision),)
        metadata = answers.fields(decisions) if decision else answers.refusal(decisions).metadata
        return of_fields(decision.allowed, lowered(metadata), clock)

    return asking


WIRES = [rls, rls_the_general_way, json_rls, check, auth, asgi, wsgi, grpc]


@pytest.mark.parametrize("limit", LIMITS)
def test_every_wire_tells_the_same_numbers(limit: str) -> None:
    clock = FakeClock(START * 10**9)
    asking = [wire(limit, clock) for wire in WIRES]
    refused = 0
    for _ in range(210):
        answers = [ask() for ask in asking]
        assert len(set(answers)) == 1, dict(zip([w.__name__ for w in WIRES], answers, strict=True))
        allowed, most, remaining, reset = answers[0]
        assert 0 <= remaining <= most
        refused += not allowed
        if not allowed:
            assert remaining == 0
        if refused == 2:
            break
    assert refused == 2
    # Whoever waits for the reset gets in, and nobody gets in a second before.
    if reset > 1:
        clock.advance(reset - 1)
        assert not any(ask()[0] for ask in asking)
        clock.advance(1)
    else:
        clock.advance(reset)
    assert all(ask()[0] for ask in asking)


def test_the_numbers_of_a_burst() -> None:
    clock = FakeClock(START * 10**9)
    ask = rls("100/minute burst 200", clock)
    assert ask() == (True, 200, 199, 1)
    for _ in range(198):
        ask()
    assert ask() == (True, 200, 0, 1), "one comes back within a second"
    clock.advance(0.3)
    assert ask() == (False, 200, 0, 1)
    tenth = rls("10/minute", clock)
    assert [tenth() for _ in range(11)][-1] == (False, 10, 0, 6)


def test_a_window_in_which_nothing_was_used_resets_when_it_ends() -> None:
    clock = FakeClock(START * 10**9)
    for limit in ("3/minute fixed_window", "3/minute"):
        site = http(limit, clock)
        look = {"descriptors": [{"pairs": {"remote_address": ADDRESS}, "hits": 0}]}
        over_http = lowered(site("/v1/check", look).headers)["ratelimit"]
        message = ask({"entries": [{"key": "remote_address", "value": ADDRESS}], "hits_addend": 0})
        numbers = of_status(decode_json(site("/json", message).body))
        reset = 51 if "fixed" in limit else 0
        assert over_http.endswith(f";r=3;t={reset}")
        assert numbers == (True, 3, 3, reset)
