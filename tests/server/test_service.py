"""The service without a wire: the short way, observers, reloads, and stores that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import MemoryStore
from penstock.decision import Decision
from penstock.errors import InvalidKey, StoreUnavailable
from penstock.gate import AsyncGate, Gate
from penstock.rules.verdict import Descriptor, Verdict
from penstock.server import rls_general
from penstock.server.grpc_status import (
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    GrpcError,
)
from penstock.server.rls import read_request
from penstock.server.rls_general import Response
from penstock.server.rls_quick import Plan
from penstock.server.rls_words import LONGEST_KEPT, MOST_PLANS
from penstock.server.service import Service
from penstock.testing import FakeClock
from server.rls_case import ask, descriptor
from server.rls_cases import CASES, Case, Message, make_gate
from server.rls_messages import decode, encode

USER = "{domain: api, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 3}}]}"


def gate_of(rules: str, clock: FakeClock | None = None, store: Any = None) -> AsyncGate:
    clock = clock or FakeClock()
    gate = AsyncGate.from_rules(rules, store or MemoryStore(clock=clock), clock=clock)
    assert isinstance(gate, AsyncGate)
    return gate


def at_once(answer: bytes | Awaitable[bytes]) -> bytes:
    assert isinstance(answer, bytes)
    return answer


# Both ways ---------------------------------------------------------------------------------

RULES = [
    """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 4, name: per-user}}
  - {key: ip, limits: [5/minute fixed_window, 3/10s, 7/hour sliding_window]}
  - {key: job, cost: 2, limits: 6/minute burst 3}
  - {key: plan, descriptors: [{key: user, limits: 2/30s}]}
  - {key: path, value: "/a*", rate_limit: {unit: second, requests_per_unit: 2}}
""",
    """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: ip, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: job, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: plan, rate_limit: {unlimited: true}, descriptors: [{key: user, limits: 1/day}]}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 0}}
""",
    """
domain: api
deny: {user: [c]}
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: ip, limits: 9/minute lockout 1m}
  - {key: job, limits: 3/minute soft 2 for 30s}
""",
]
PAIRS = st.sampled_from(
    [
        "user=a",
        "user=b",
        "user=c",
        "ip=a",
        "ip=b",
        "job=a",
        "plan=x",
        "path=/a",
        "path=/b",
        "=",
        "z=z",
    ]
)


@st.composite
def descriptors(draw: Any) -> Message:
    more: Message = {}
    if draw(st.integers(0, 7)) == 0:
        more["hits"] = draw(st.integers(0, 4))
    if draw(st.integers(0, 11)) == 0:
        more["negative"] = True
    if draw(st.integers(0, 9)) == 0:
        more["limit"] = (
            draw(st.integers(0, 3)),
            draw(st.sampled_from(["SECOND", "HOUR", "UNKNOWN"])),
        )
    return descriptor(*draw(st.lists(PAIRS, max_size=2)), **more)


REQUESTS = st.builds(
    lambda several, domain, hits: encode(ask(*several, domain=domain, hits=hits)),
    st.lists(descriptors(), max_size=3),
    st.sampled_from(["api"] * 6 + ["", "other"]),
    st.sampled_from([None, None, 0, 1, 2, 3]),
)


@settings(max_examples=settings.default.max_examples * 2)
@given(
    st.sampled_from(RULES),
    st.lists(REQUESTS, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20_000)), max_size=20),
    st.booleans(),
)
def test_both_ways_come_to_the_same_bytes(
    rules: str, messages: list[bytes], turns: list[tuple[int, int]], headers: bool
) -> None:
    clocks = FakeClock(), FakeClock()
    short, long = (Service(gate_of(rules, c), clock=c, headers=headers) for c in clocks)
    for which, milliseconds in turns:
        message = messages[which % len(messages)]
        answers: list[object] = []
        for clock, each in zip(clocks, (short.rate_limit, general(long)), strict=True):
            clock.advance_ns(milliseconds * 1_000_000)
            try:
                answers.append(each(message))
            except GrpcError as error:
                answers.append((error.code, error.message))
        assert answers[0] == answers[1]


def general(service: Service) -> Any:
    def answer(message: bytes) -> bytes:
        response = service.answer(read_request(message))
        assert isinstance(response, Response)
        return response.wire()

    return answer


def test_the_short_way_is_taken() -> None:
    service = Service(gate_of(RULES[0]))
    single = service._planner.plan(encode(ask("user=a")))
    assert isinstance(single, Plan)
    assert single.single
    several = service._planner.plan(encode(ask("user=a", "ip=a", "z=z", hits=2)))
    assert isinstance(several, Plan)
    assert [cost for _, _, cost in several.items] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    "request_",
    [
        ask(descriptor("user=a", hits=1)),
        ask(descriptor("user=a", negative=True)),
        ask(descriptor("user=a", limit=(1, "HOUR"))),
        ask("user=a", "user=a"),
        ask("user=a", domain="other"),
    ],
)
def test_the_short_way_is_not_taken(request_: Message) -> None:
    assert not isinstance(Service(gate_of(USER))._planner.plan(encode(request_)), Plan)


# Plans -------------------------------------------------------------------------------------


def test_a_plan_is_kept_from_the_second_time_on() -> None:
    planner = Service(gate_of(USER))._planner
    message = encode(ask("user=a"))
    first, second = planner.plan(message), planner.plan(message)
    assert first is not second
    assert planner.plan(message) is planner.plan(bytes(bytearray(message))) is second


def test_plans_are_bounded() -> None:
    planner = Service(gate_of(USER))._planner
    long = encode(ask("user=" + "x" * LONGEST_KEPT))
    assert planner.plan(long) is not planner.plan(long) is not planner.plan(long)
    for number in range(MOST_PLANS + 10):
        message = encode(ask(f"user={number}"))
        planner.plan(message)
        planner.plan(message)
        assert len(planner.plans) <= MOST_PLANS
    assert 0 < len(planner.plans) < 20


def test_other_rules_at_once() -> None:
    gate = gate_of(USER)
    service = Service(gate)
    message = encode(ask("user=a"))
    for _ in range(3):
        service.rate_limit(message)
    gate.replace(USER.replace("minute", "hour").replace("3", "9"))
    limit = decode(at_once(service.rate_limit(message)))["statuses"][0]["current_limit"]
    assert limit == {"requests_per_unit": 9, "unit": "HOUR"}


def test_switches_at_once() -> None:
    gate = gate_of(USER)
    service = Service(gate)
    message = encode(ask("user=a", hits=2))
    codes = []
    for mode in ("enforce", "enforce", "enforce", "shadow", "off", "enforce"):
        gate.switches.mode(mode)
        codes.append(decode(at_once(service.rate_limit(message)))["overall_code"])
    assert codes == ["OK", "OVER_LIMIT", "OVER_LIMIT", "OK", "OK", "OVER_LIMIT"]
    gate.switches.override("user", "a", limit="100/minute")
    told = decode(at_once(service.rate_limit(message)))["statuses"][0]
    assert told["current_limit"] == {"requests_per_unit": 100, "unit": "MINUTE"}


def test_a_list_goes_before_a_limit_of_0_in_the_request() -> None:
    gate = gate_of(USER)
    gate.switches.allow("user", "a")
    service = Service(gate)
    message = encode(ask(descriptor("user=a", limit=(0, "HOUR")), "user=b"))
    assert decode(at_once(service.rate_limit(message)))["overall_code"] == "OK"
    gate.switches.clear_list("allow", "user", "a")
    assert decode(at_once(service.rate_limit(message)))["overall_code"] == "OVER_LIMIT"
    gate.switches.mode("shadow")
    told = decode(at_once(service.rate_limit(message)))
    assert (told["overall_code"], told["statuses"][0]["code"]) == ("OK", "OVER_LIMIT")


def test_limits_of_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rls_general, "MOST_OVERRIDES", 2)
    service = Service(gate_of(USER))
    for amount in (1, 2, 1, 2):
        service.rate_limit(encode(ask(descriptor("user=a", limit=(amount, "HOUR")))))
    with pytest.raises(GrpcError, match="2 different limits") as caught:
        service.rate_limit(encode(ask(descriptor("user=a", limit=(3, "HOUR")))))
    assert caught.value.code == RESOURCE_EXHAUSTED
    unknown = ask(descriptor("user=a", limit=(4, "HOUR")), domain="other")
    assert decode(at_once(service.rate_limit(encode(unknown))))["overall_code"] == "OK"


def test_a_gate_is_needed() -> None:
    with pytest.raises(TypeError, match="AsyncGate"):
        Service(Gate.from_rules(USER))  # type: ignore[arg-type]


# Observers ---------------------------------------------------------------------------------


class Watching:
    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, list[str], float]] = []

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        reasons = [status.reason for status in verdict.statuses]
        self.seen.append((domain, verdict.allowed, reasons, seconds))


class Ticking(FakeClock):
    """A quarter of a second passes whenever it is looked at."""

    def now(self) -> int:
        self.advance(0.25)
        return super().now()


def test_an_observer_is_told() -> None:
    watching = Watching()
    service = Service(gate_of(USER), observer=watching, timer=Ticking())
    plain = encode(ask("user=a", "ip=b"))
    for _ in range(4):
        service.rate_limit(plain)
    service.rate_limit(encode(ask(descriptor("user=a", negative=True))))
    service.rate_limit(encode(ask(descriptor("user=b", limit=(0, "DAY")))))
    service.answer(read_request(plain))
    service.check(None, [Descriptor((("user", "x"),))])
    with pytest.raises(GrpcError):
        service.rate_limit(b"\xff")
    assert watching.seen == [
        *[("api", True, ["limit", "unmatched"], 0.25)] * 3,
        ("api", False, ["limit", "unmatched"], 0.25),
        ("api", True, ["given back"], 0.25),
        ("api", False, ["closed"], 0.25),
        ("api", True, ["limit", "unmatched"], 0.25),
        ("api", True, ["limit"], 0.25),
    ]


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_an_observer_changes_no_answer(case: Case) -> None:
    services = []
    for observer in (None, Watching()):
        gate, clock = make_gate(case)
        services.append((Service(gate, clock=clock, observer=observer), clock))
    for step in case.steps:
        answers: list[object] = []
        for service, clock in services:
            clock.advance(step.wait)
            try:
                answers.append(service.rate_limit(encode(step.request)))
            except GrpcError as error:
                answers.append(error.code)
        assert answers[0] == answers[1]


# Other wires -------------------------------------------------------------------------------


def test_check() -> None:
    service = Service(gate_of(USER), clock=FakeClock(1_500_000_000))
    verdict = service.check("api", [Descriptor((("user", "a"),))], 3)
    assert isinstance(verdict, Verdict)
    assert verdict.allowed
    again = service.check(None, [Descriptor((("user", "a"),))])
    assert isinstance(again, Verdict)
    assert not again.allowed
    with pytest.raises(InvalidKey):
        service.check("", [Descriptor((("user", "a"),))])
    assert service.now() == 1.5


# Stores that wait --------------------------------------------------------------------------


class Slow(MemoryStore):
    """Answers in the next turn of the loop, and only to those who await."""

    waits = True
    broken = False

    def make_counters(self, limit: Any) -> Any:
        made = super().make_counters(limit)
        return SlowCounters(self, made)

    async def hit_each_async(self, wanted: Any) -> list[Decision]:  # type: ignore[override]
        await asyncio.sleep(0)
        if self.broken:
            raise StoreUnavailable("no answer")
        return self.hit_each([(each.inner, key, cost) for each, key, cost in wanted])


class SlowCounters:
    def __init__(self, store: Slow, inner: Any) -> None:
        self.store = store
        self.inner = inner
        self.limit = inner.limit

    async def submit(self, verb: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        if self.store.broken:
            raise StoreUnavailable("no answer")
        return getattr(self.inner, verb)(*args)


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
            found = service.rate_limit(encode(step.request))
            answer = decode(found if isinstance(found, bytes) else await found)
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
    with pytest.raises(GrpcError, match="no answer") as caught:
        await Service(gate_of(USER, store=store)).rate_limit(encode(request_))  # type: ignore[misc]
    assert caught.value.code == UNAVAILABLE


async def test_errors_with_a_store_that_waits_come_at_once() -> None:
    service = Service(gate_of(USER, store=Slow()))
    with pytest.raises(GrpcError) as caught:
        service.rate_limit(b"\x0a")
    assert caught.value.code == INVALID_ARGUMENT
