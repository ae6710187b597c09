"""Several limits in one text, and limits of 0, in rules and in what requests bring."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml")

from penstock import Descriptor, Gate, LimitError, MemoryStore, RulesError
from penstock.rules.deciding.verdict import LIMIT
from penstock.testing import FakeClock

RULES = """
domain: api
descriptors:
  - {key: user, limits: "2/minute; 3/day"}
  - {key: shut, limits: 0/minute}
  - {key: half_shut, limits: [5/minute, 0/day]}
"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_700_000_000 * 10**9)


@pytest.fixture
def gate(clock: FakeClock) -> Gate:
    return Gate.from_rules(RULES, MemoryStore(clock=clock), clock=clock)


def test_a_text_in_the_rules_is_as_a_list(gate: Gate, clock: FakeClock) -> None:
    assert [gate.check({"user": "1"}).allowed for _ in range(3)] == [True, True, False]
    clock.advance(60)
    assert [gate.check({"user": "1"}).allowed for _ in range(2)] == [True, False]
    refused = gate.check({"user": "1"})
    assert refused.decision is not None
    assert str(refused.decision.limit) == "3/day"
    assert refused.statuses[0].limit_name == "api/user 3/day"


def test_twice_the_same_limit_is_an_error() -> None:
    with pytest.raises(RulesError, match="the limit 'api/user 5/minute' a second time"):
        Gate.from_rules("domain: api\ndescriptors: [{key: user, limits: '5/minute; 5/minute'}]")


def test_a_part_that_is_wrong_is_told() -> None:
    with pytest.raises(RulesError, match=r"'9/hor' has an unknown unit 'hor' \(did you mean"):
        Gate.from_rules("domain: api\ndescriptors: [{key: user, limits: 5/minute; 9/hor}]")
    with pytest.raises(RulesError, match="has a separator without a limit beside it"):
        Gate.from_rules("domain: api\ndescriptors: [{key: user, limits: 5/minute;}]")
    with pytest.raises(RulesError, match="names several limits, and this is a place for one"):
        Gate.from_rules(
            "domain: api\ndescriptors: [{key: user, limits: [{limit: 5/minute; 9/hour, name: a}]}]"
        )


def test_a_limit_of_0_refuses(gate: Gate) -> None:
    refused = gate.check({"shut": "1"})
    assert (refused.allowed, refused.retry_after) == (False, None)
    assert refused.statuses[0].reason == LIMIT
    assert not gate.check({"half_shut": "1"})
    looked = gate.check(Descriptor.of({"shut": "1"}, hits=0)).decision  # says what a hit would
    assert looked is not None
    assert (looked.allowed, looked.remaining) == (False, 0)


def test_an_override_may_close_and_does_not_open(gate: Gate) -> None:
    gate.switches.override("user", "1", limit="0/minute")
    assert not gate.check({"user": "1"})
    assert gate.check({"user": "2"})
    gate.switches.override("shut", "1", factor=100)
    assert not gate.check({"shut": "1"})
    with pytest.raises(LimitError, match="names several limits, and this is a place for one"):
        gate.switches.override("user", "1", limit="5/minute; 9/hour")


def test_a_reload_from_and_to_a_limit_of_0(gate: Gate, clock: FakeClock) -> None:
    for text, allowed in (("0/minute", False), ("4/minute", True), ("0/minute", False)):
        gate.replace(f"domain: api\ndescriptors: [{{key: user, limits: {text}}}]")
        assert gate.check({"user": "1"}).allowed is allowed
        assert gate.check(Descriptor.of({"user": "1"}, hits=-1))


def test_a_request_may_bring_several(gate: Gate, clock: FakeClock) -> None:
    own = Descriptor.of({"user": "7"}, "1/second; 2/day")
    assert [gate.check(own).allowed for _ in range(2)] == [True, False]
    clock.advance(1)
    assert gate.check(own)
    clock.advance(1)
    refused = gate.check(own)
    assert refused.decision is not None
    assert str(refused.decision.limit) == "2/day"
    assert not gate.check(Descriptor.of({"user": "8"}, "0/day"))
