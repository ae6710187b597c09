"""Headers and statuses, checked against the bytes that a real server sent.

Time stands still at `NOW`, so every number is exact. The RateLimit fields are read by a
parser of RFC 9651 that is not ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import http_sfv
import pytest

from integrations.serving import Raw, ask, uvicorn_server
from penstock import AsyncGate, MemoryStore
from penstock.integrations import by_api_key, by_header
from penstock.integrations.asgi import PenstockMiddleware
from penstock.testing import FakeClock

NOW = 1_767_225_600  # seconds
X = "X-RateLimit-"
FORBIDDING = """
domain: web
deny: {remote_address: [127.0.0.0/8]}
descriptors: [{key: path, limits: 10/minute}]
"""
TWO = """
domain: web
descriptors:
  - {key: remote_address, limits: [{limit: 10/minute, name: per address}]}
  - {key: path, limits: [{limit: 3/hour, name: per path}]}
"""


@dataclass
class Case:
    """What a middleware was told, what it is asked, and what comes back."""

    name: str
    options: dict[str, Any]
    status: int = 200
    headers: dict[str, str | None] = field(default_factory=dict)
    body: Any = None
    before: int = 0  # requests that came before
    method: str = "GET"
    sent: tuple[tuple[str, str], ...] = ()
    app: str = "plain"
    rules: str = ""


def limited(limit: str, **options: Any) -> dict[str, Any]:
    return {"limit": limit, **options}


ERROR = {"error": "Rate limit exceeded"}
CASES = [
    Case(
        "first of a hundred",
        limited("100/minute"),
        headers={
            X + "Limit": "100", X + "Remaining": "99", X + "Reset": str(NOW + 1),
            "RateLimit-Policy": '"default";q=100;w=60', "RateLimit": '"default";r=99;t=1',
            "Retry-After": None,
        },
    ),
    Case("half used", limited("10/minute"), before=4,
         headers={X + "Remaining": "5", X + "Reset": str(NOW + 30),
                  "RateLimit": '"default";r=5;t=30'}),
    Case("the last: one more in six seconds", limited("10/minute"), before=9,
         headers={X + "Remaining": "0", X + "Reset": str(NOW + 6),
                  "RateLimit": '"default";r=0;t=6', "Retry-After": None}),
    Case("refused", limited("10/minute"), 429, before=10,
         headers={"Retry-After": "6", X + "Limit": "10", X + "Remaining": "0",
                  X + "Reset": str(NOW + 6), "RateLimit": '"default";r=0;t=6',
                  "RateLimit-Policy": '"default";q=10;w=60', "Content-Type": "application/json",
                  "Cache-Control": "no-store"},
         body={**ERROR, "retry_after": 6}),
    Case("refused for a minute", limited("1/minute"), 429, before=1,
         headers={"Retry-After": "60"}, body={**ERROR, "retry_after": 60}),
    Case("a wait of a tenth of a second is a whole one", limited("10/second"), 429, before=10,
         headers={"Retry-After": "1", "RateLimit-Policy": '"default";q=10;w=1'}),
    Case("a wait of a bit more than a second is two", limited("7/10s"), 429, before=7,
         headers={"Retry-After": "2", "RateLimit": '"default";r=0;t=2'}),
    Case("a burst above the rate", limited("10/second burst 30"),
         headers={X + "Limit": "30", X + "Remaining": "29",
                  "RateLimit-Policy": '"default";q=30;w=3'}),
    Case("a burst below the rate", limited("1000/hour burst 10"),
         headers={X + "Limit": "10", "RateLimit-Policy": '"default";q=10;w=36'}),
    Case("a period below a second", limited("5/100ms"),
         headers={"RateLimit-Policy": '"default";q=5;w=1'}),
    Case("three a second, which is no whole number of nanoseconds", limited("3/second"),
         headers={"RateLimit-Policy": '"default";q=3;w=1'}),
    Case("a fixed window", limited("5/minute fixed_window"), before=1,
         headers={X + "Limit": "5", X + "Remaining": "3", X + "Reset": str(NOW + 60),
                  "RateLimit-Policy": '"default";q=5;w=60', "RateLimit": '"default";r=3;t=60'}),
    Case("a full fixed window", limited("5/minute fixed_window"), 429, before=5,
         headers={"Retry-After": "60", X + "Reset": str(NOW + 60)}),
    Case("a sliding window", limited("4/hour sliding_window"), before=3,
         headers={X + "Limit": "4", X + "Remaining": "0",
                  "RateLimit-Policy": '"default";q=4;w=3600'}),
    Case("a log", limited("2/minute sliding_log"), 429, before=2,
         headers={"Retry-After": "60", X + "Remaining": "0"}),
    Case("a lockout", limited("1/minute lockout 15m"), 429, before=2,
         headers={"Retry-After": "900"}, body={**ERROR, "retry_after": 900}),
    Case("a cost", limited("10/minute", cost=4), before=1,
         headers={X + "Remaining": "2"}),
    Case("a cost that never fits", limited("3/minute", cost=4), 429,
         headers={"Retry-After": None, X + "Remaining": "0"},
         body={**ERROR, "retry_after": None}),
    Case("IETF fields alone", limited("10/minute", fields="ietf"),
         headers={"RateLimit": '"default";r=9;t=6', X + "Limit": None, X + "Reset": None}),
    Case("legacy fields alone", limited("10/minute", fields="legacy"),
         headers={"RateLimit": None, "RateLimit-Policy": None, X + "Limit": "10"}),
    Case("no fields", limited("10/minute", fields="none"),
         headers={"RateLimit": None, X + "Limit": None}),
    Case("no fields and refused", limited("1/minute", fields="none"), 429, before=1,
         headers={"RateLimit": None, X + "Limit": None, "Retry-After": "60"}),
    Case("a name of its own", limited("10/minute", name="search"),
         headers={"RateLimit-Policy": '"search";q=10;w=60'}),
    Case("a name that must be escaped", limited("10/minute", name='a "b" \\ é'),
         headers={"RateLimit-Policy": '"a \\"b\\" \\\\ %C3%A9";q=10;w=60'}),
    Case("two limits, the strictest first", limited(["100/hour", "2/second"]), before=1,
         headers={X + "Limit": "2", X + "Remaining": "0",
                  "RateLimit-Policy": '"2/second";q=2;w=1, "100/hour";q=100;w=3600',
                  "RateLimit": '"2/second";r=0;t=1, "100/hour";r=98;t=72'}),
    Case("two limits, refused by one", limited(["100/hour", "2/second"]), 429, before=2,
         headers={"Retry-After": "1",
                  "RateLimit": '"2/second";r=0;t=1, "100/hour";r=98;t=72'}),
    Case("problem details", limited("1/minute"), 429, before=1,
         sent=(("Accept", "application/problem+json"),),
         headers={"Content-Type": "application/problem+json", "Retry-After": "60"},
         body={"type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
               "title": "Rate limit exceeded", "status": 429,
               "violated-policies": ["default"], "retry_after": 60}),
    Case("anything accepted is plain JSON", limited("1/minute"), 429, before=1,
         sent=(("Accept", "*/*"),), headers={"Content-Type": "application/json"}),
    Case("JSON preferred to problem details", limited("1/minute"), 429, before=1,
         sent=(("Accept", "application/problem+json;q=0.5, application/json"),),
         headers={"Content-Type": "application/json"}),
    Case("a broken Accept", limited("1/minute"), 429, before=1,
         sent=(("Accept", ";;q=,application/problem+json;q=oops"),),
         headers={"Content-Type": "application/json"}),
    Case("HEAD, refused, without a body", limited("1/minute"), 429, before=1, method="HEAD",
         headers={"Retry-After": "60", "Content-Length": "51"}, body=b""),
    Case("HEAD is counted", limited("10/minute"), method="HEAD", headers={X + "Remaining": "9"}),
    Case("a preflight is not counted", limited("1/minute"), before=1, method="OPTIONS",
         sent=(("Origin", "https://a.example"), ("Access-Control-Request-Method", "PUT")),
         headers={X + "Limit": None}),
    Case("a preflight that is", limited("1/minute", count_preflight=True), 429, before=1,
         method="OPTIONS",
         sent=(("Origin", "https://a.example"), ("Access-Control-Request-Method", "PUT"))),
    Case("OPTIONS that is no preflight", limited("1/minute"), 429, before=1, method="OPTIONS"),
    Case("exempt", limited("1/minute", exempt=["/exempt"]), before=3,
         headers={X + "Limit": None, "RateLimit": None}),
    Case("exempt with all below", limited("1/minute", exempt=["/exempt*"]), before=3,
         headers={X + "Limit": None}),
    Case("shadow", limited("1/minute", shadow=True), before=3,
         headers={X + "Remaining": "0", "Retry-After": None}),
    Case("streamed", limited("10/minute"), app="stream", headers={X + "Remaining": "9"},
         body=b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"),
    Case("a handler that fails", limited("10/minute"), 500, app="fail"),
    Case("a handler that answers 404", limited("10/minute"), 404, app="missing",
         headers={X + "Remaining": "9"}),
    Case("a key of its own is not shared", limited("1/minute", key=by_header("x-tenant")),
         before=1, sent=(("X-Tenant", "other"),), headers={X + "Remaining": "0"}),
    Case("without its header the address counts", limited("1/minute", key=by_api_key()), 429,
         before=1),
    Case("rules: the strictest speaks", {}, rules=TWO,
         headers={X + "Limit": "3", X + "Remaining": "2",
                  "RateLimit": '"per path";r=2;t=1200, "per address";r=9;t=6'}),
    Case("rules: refused", {}, 429, rules=TWO, before=3,
         headers={"Retry-After": "1200", X + "Limit": "3"},
         body={**ERROR, "retry_after": 1200}),
    Case("rules: denied", {}, 403, rules=FORBIDDING,
         headers={"Retry-After": None, X + "Limit": None}, body={"error": "Forbidden"}),
]  # fmt: skip


async def application(scope: Any, receive: Any, send: Any) -> None:
    status, kind = 200, scope["case"].app
    if kind == "fail":
        raise RuntimeError("as asked")
    if kind == "missing":
        status = 404
    await send({"type": "http.response.start", "status": status, "headers": []})
    pieces = [b"one ", b"two ", b"three"] if kind == "stream" else [b"hello"]
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def made(case: Case) -> PenstockMiddleware:
    clock = FakeClock(NOW * 10**9)
    options = {**case.options, "clock": clock}
    store = MemoryStore(clock=clock)
    if case.rules:
        options["gate"] = AsyncGate.from_rules(case.rules, store=store, clock=clock)
    else:
        options["store"] = store
    return PenstockMiddleware(application, **options)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    apps = {str(number): made(case) for number, case in enumerate(CASES)}

    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        number, _, rest = scope["path"][1:].partition("/")
        scope.update(path="/" + rest, case=CASES[int(number)])
        await apps[number](scope, receive, send)

    with uvicorn_server(dispatch, log_level="critical") as port:
        yield port


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_the_bytes_on_the_wire(port: int, number: int) -> None:
    case = CASES[number]
    path = f"/{number}/exempt"
    for _ in range(case.before):
        ask(port, path)
    answer = ask(port, path, case.method, case.sent)
    assert answer.status == case.status
    assert {name: answer.header(name) for name in case.headers} == case.headers
    if isinstance(case.body, bytes):
        assert case.body in answer.body
        assert case.body or not answer.body
    elif case.body is not None:
        assert json.loads(answer.body) == case.body
    read_by_another(answer)


def read_by_another(answer: Raw) -> None:
    """Both fields are lists of strings, with whole numbers where the draft wants them."""
    policies = answer.header("RateLimit-Policy")
    standings = answer.header("RateLimit")
    assert (policies is None) == (standings is None)
    if policies is None or standings is None:
        return
    policy, standing = http_sfv.List(), http_sfv.List()
    policy.parse(policies.encode())
    standing.parse(standings.encode())
    assert [item.value for item in policy] == [item.value for item in standing]
    for item in policy:
        assert type(item.value) is str
        assert set(item.params) == {"q", "w"}
        assert all(type(value) is int and value > 0 for value in item.params.values())
    for item in standing:
        assert set(item.params) == {"r", "t"}
        assert all(type(value) is int and value >= 0 for value in item.params.values())
    if answer.status == 429 and (after := answer.header("Retry-After")) is not None:
        assert int(after) >= standing[0].params["t"]
