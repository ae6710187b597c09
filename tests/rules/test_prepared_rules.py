"""Rules in two steps: prepared while the old ones decide, then put in force or dropped."""

from __future__ import annotations

from penstock.events import Event, RulesLoaded, RulesRejected
from penstock.gate import Gate
from penstock.rules.reading.loading import read_rules


def rules(limit: str) -> str:
    return f"domain: api\ndescriptors:\n  - {{key: user, limits: {limit}}}\n"


def amount(gate: Gate) -> int:
    decision = gate.check({"user": "1"}).decision
    assert decision is not None
    return decision.limit.amount


def test_prepared_rules_decide_only_after_the_swap() -> None:
    gate = Gate.from_rules(rules("5/hour"))
    events: list[Event] = []
    gate.subscribe(events.append)
    prepared = gate.prepare(read_rules(rules("6/hour")))
    assert (amount(gate), events) == (5, [])
    gate.swap(prepared)
    assert (amount(gate), events) == (6, [RulesLoaded("rules", 1)])


def test_usage_follows_from_whatever_was_in_force_before_the_swap() -> None:
    gate = Gate.from_rules(rules("5/hour"))
    prepared = gate.prepare(read_rules(rules("6/hour")))
    gate.replace(rules("2/hour"))
    assert [gate.check({"user": "1"}).allowed for _ in range(3)] == [True, True, False]
    gate.swap(prepared)
    assert not gate.check({"user": "1"}).allowed


def test_rejected_rules_leave_the_old_ones_and_no_counters() -> None:
    gate = Gate.from_rules(rules("5/hour"))
    events: list[Event] = []
    gate.subscribe(events.append)
    prepared = gate.prepare(read_rules(rules("6/hour")))
    gate.reject("another worker cannot use them", prepared)
    assert amount(gate) == 5
    assert events == [RulesRejected("rules", "another worker cannot use them")]
    assert len(gate.pool) == 1  # lets go of the limit when it is idle
