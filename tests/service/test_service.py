"""The service without a wire: plans, observers, reloads and switches."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidKey
from penstock.gate import Gate
from penstock.rules.deciding import pool
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.service.envoy_constants import LONGEST_KEPT, MOST_PLANS
from penstock.service.grpc_status import (
    RESOURCE_EXHAUSTED,
    GrpcError,
)
from penstock.service.rls_request import read_request
from penstock.service.service import Service
from penstock.testing import FakeClock
from service.rls_case import ask, descriptor
from service.rls_cases import CASES, Case, make_gate
from service.rls_messages import decode, encode
from service.service_kit import USER, Watching, at_once, gate_of

# Plans -------------------------------------------------------------------------------------


def test_a_plan_is_kept_from_the_second_time_on() -> None:
    plans = Service(gate_of(USER))._plans
    message = encode(ask("user=a"))
    first, second = plans.plan(message), plans.plan(message)
    assert first is not second
    assert plans.plan(message) is plans.plan(bytes(bytearray(message))) is second


def test_plans_are_bounded() -> None:
    plans = Service(gate_of(USER))._plans
    long = encode(ask("user=" + "x" * LONGEST_KEPT))
    assert plans.plan(long) is not plans.plan(long) is not plans.plan(long)
    for number in range(MOST_PLANS + 10):
        message = encode(ask(f"user={number}"))
        plans.plan(message)
        plans.plan(message)
        assert len(plans.cache) <= MOST_PLANS
    assert 0 < len(plans.cache) < 20


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
    status = decode(at_once(service.rate_limit(message)))["statuses"][0]
    assert status["current_limit"] == {"requests_per_unit": 100, "unit": "MINUTE"}


def test_a_switch_of_one_rule_at_once() -> None:
    gate = gate_of(USER)
    service = Service(gate)
    message = encode(ask("user=a"))
    codes = []
    for mode in (*["enforce"] * 4, "shadow", "off", "enforce"):
        gate.switches.mode(mode, "api/user")
        codes.append(decode(at_once(service.rate_limit(message)))["overall_code"])
    assert codes == ["OK", "OK", "OK", "OVER_LIMIT", "OK", "OK", "OVER_LIMIT"]
    gate.switches.clear_mode("api/user")
    assert isinstance(service._plans.plan(message), Plan)


def test_a_limit_of_0_in_the_request_refuses_also_one_hit() -> None:
    service = Service(gate_of(USER))
    message = encode(ask(descriptor("user=a", limit=(0, "HOUR")), hits=1))
    assert decode(at_once(service.rate_limit(message)))["overall_code"] == "OVER_LIMIT"


def test_a_list_goes_before_a_limit_of_0_in_the_request() -> None:
    gate = gate_of(USER)
    gate.switches.allow("user", "a")
    service = Service(gate)
    message = encode(ask(descriptor("user=a", limit=(0, "HOUR")), "user=b"))
    assert decode(at_once(service.rate_limit(message)))["overall_code"] == "OK"
    gate.switches.clear_list("allow", "user", "a")
    assert decode(at_once(service.rate_limit(message)))["overall_code"] == "OVER_LIMIT"
    gate.switches.mode("shadow")
    response = decode(at_once(service.rate_limit(message)))
    assert (response["overall_code"], response["statuses"][0]["code"]) == ("OK", "OVER_LIMIT")


def test_limits_of_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST_BROUGHT", 2)
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
