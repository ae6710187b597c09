"""The service over a store that waits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import StoreUnavailable
from penstock.integrations.deciding.identity import Trust
from penstock.rules.deciding.verdict import Descriptor
from penstock.service.grpc_status import (
    INVALID_ARGUMENT,
    UNAVAILABLE,
    GrpcError,
)
from penstock.service.service import Service
from penstock.wires.http.auth import AuthApi
from penstock.wires.http.check import CheckApi
from penstock.wires.http.messages import HttpRequest, HttpResponse
from service.rls_case import ask, descriptor
from service.rls_cases import CASES, Case, Message, make_gate
from service.rls_messages import decode, encode
from service.service_kit import USER, Slow, Watching, gate_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_store_that_waits_answers_alike(case: Case) -> None:
    _, clock = make_gate(case)
    gate = gate_of(case.rules, clock, Slow(clock=clock))
    gate.switches.mode(case.mode)
    watching = Watching()
    service = Service(gate, clock=clock, headers=case.headers, observer=watching)
    for number, step in enumerate(case.steps):
        clock.advance(step.wait)
        answer: object
        try:
            reply = service.rate_limit(encode(step.request))
            answer = decode(reply if isinstance(reply, bytes) else await reply)
        except GrpcError as error:
            answer = error.code
        assert answer == step.expected, number
    answers = [step for step in case.steps if not isinstance(step.expected, int)]
    assert len(watching.seen) == len(answers)


async def test_check_with_a_store_that_waits() -> None:
    watching = Watching()
    service = Service(gate_of(USER, store=Slow()), observer=watching)
    verdict = await service.check("api", [Descriptor((("user", "a"),))])  # type: ignore[misc]
    assert verdict.allowed
    assert watching.seen[0][:3] == ("api", True, ["limit"])


@pytest.mark.parametrize(
    "request_", [ask("user=a"), ask("user=a", "user=b"), ask(descriptor("user=a", hits=2))]
)
async def test_a_store_that_fails(request_: Message) -> None:
    store = Slow()
    store.broken = True
    with pytest.raises(GrpcError, match="the store failed") as caught:
        await Service(gate_of(USER, store=store)).rate_limit(encode(request_))  # type: ignore[misc]
    assert caught.value.code == UNAVAILABLE


async def test_errors_with_a_store_that_waits_come_at_once() -> None:
    service = Service(gate_of(USER, store=Slow()))
    with pytest.raises(GrpcError) as caught:
        service.rate_limit(b"\x0a")
    assert caught.value.code == INVALID_ARGUMENT


@pytest.mark.parametrize("waits", [False, True])
async def test_nobody_is_told_where_a_store_is_that_fails(waits: bool) -> None:
    store = Slow() if waits else Failing()
    store.broken = True
    gate = gate_of(USER, store=store)
    check = CheckApi(Service(gate))
    trusted = Trust(["127.0.0.1"])
    auth = AuthApi(Service(gate), gate, trusted)
    one = {"descriptors": [{"user": "42"}]}
    for api, body, status in (
        (check, one, 503),
        (check, {"checks": [one, {"domain": "x", "descriptors": [{"user": "1"}]}, one]}, 200),
        (auth, None, 200),  # this rule does not know what a proxy tells
    ):
        for _ in range(3):  # the third time, the question is known by its bytes
            request = HttpRequest("127.0.0.1")
            request.body = json.dumps(body).encode()
            answer: Any = api(request)
            answer = answer if isinstance(answer, HttpResponse) else await answer
            assert answer.status == status
            assert b"no answer" not in answer.body
    batch = await _answered(check, {"checks": [one, {"descriptors": [{"other": "1"}]}]})
    first, second = json.loads(batch.body)["results"]
    assert first["allowed"] is False
    assert first["error"] == "the limits cannot be checked now: the store failed"
    assert second["allowed"] is True


class Failing(Slow):
    """The same at once."""

    waits = False

    def make_counters(self, limit: Any) -> Any:
        counters = super().make_counters(limit)
        counters.hit = self._fail
        return counters

    def _fail(self, key: str, cost: int) -> Any:
        raise StoreUnavailable("no answer")


async def _answered(api: Any, body: Any) -> HttpResponse:
    request = HttpRequest("127.0.0.1")
    request.body = json.dumps(body).encode()
    answer = api(request)
    return answer if isinstance(answer, HttpResponse) else await answer
