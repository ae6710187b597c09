"""Quotas, shadow, closed and denied rules in one request: who passes, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("yaml")

from penstock import Descriptor, Gate, MemoryStore
from penstock.integrations.deciding.outcome import FromGate
from penstock.rules.deciding.store_calls import Taken
from penstock.testing import FakeClock

NEVER = "rate_limit: {unit: hour, requests_per_unit: 0}"
FREE = "rate_limit: {unlimited: true}"


def gate(*steps: str, top: str = "") -> Gate:
    text = f"domain: api\n{top}\ndescriptors:\n" + "\n".join(f"- {{{step}}}" for step in steps)
    clock = FakeClock(1_700_000_000 * 10**9)
    return Gate.from_rules(text, MemoryStore(clock=clock), clock=clock)


def left(door: Gate, key: str, value: str = "1") -> list[int]:
    """What remains of each limit of a rule."""
    match = door.matchers["api"].match([(key, value)])
    assert match is not None
    counted = door.compiled.counted(match, [(key, value)], 0)
    return [one.counters.peek(match.key, 1).remaining for one in counted]


def asked(door: Gate, *keys: str, times: int = 4, **more: Any) -> list[bool]:
    descriptors = [{key: "1"} for key in keys]
    return [bool(door.check(*descriptors, **more)) for _ in range(times)]


QUOTA = "key: spent, quota_mode: true, limits: 1/hour"
PLAIN = "key: p, limits: 2/hour"


@pytest.mark.parametrize(
    "other",
    [
        f"key: q, quota_mode: true, {FREE}",
        "key: q, quota_mode: true, limits: 9/hour",
        "key: q, quota_mode: true, allow: ['1'], limits: 1/hour",
        "key: q, quota_mode: true, shadow_mode: true, limits: 1/hour",
    ],
)
def test_a_plain_limit_is_enforced_beside_quotas(other: str) -> None:
    door = gate(other, QUOTA, PLAIN)
    assert asked(door, "q", "spent", "p") == [True, True, False, False]
    assert (left(door, "spent"), left(door, "p")) == ([0], [0])


@pytest.mark.parametrize("refusing", [NEVER, "deny: ['1'], limits: 9/hour"])
def test_a_quota_that_refuses_everything_leaves_it_to_the_others(refusing: str) -> None:
    door = gate(f"key: shut, quota_mode: true, {refusing}", QUOTA, PLAIN)
    assert asked(door, "shut", "spent", "p") == [True, False, False, False]
    assert (left(door, "spent"), left(door, "p")) == ([0], [1]), "a refusal counts nothing"
    assert asked(door, "shut", times=1) == [False]
    verdict = door.check({"shut": "1"}, {"spent": "2"})
    assert [status.allowed for status in verdict.statuses] == [False, True]


def test_a_quota_with_two_limits_takes_all_or_nothing() -> None:
    door = gate("key: q, quota_mode: true, limits: [9/hour, 1/hour]", "key: p, limits: 9/hour")
    assert asked(door, "q", "p") == [True, False, False, False]
    assert (left(door, "q"), left(door, "p")) == ([8, 0], [8])


def test_a_rule_in_shadow_with_two_limits_takes_all_or_nothing() -> None:
    door = gate("key: s, shadow_mode: true, limits: [9/hour, 1/hour]")
    assert asked(door, "s") == [True] * 4
    assert left(door, "s") == [8, 0]


def test_a_quota_that_is_replaced_is_none() -> None:
    door = gate(
        "key: base, quota_mode: true, rate_limit: {name: base, unit: hour, requests_per_unit: 9}",
        QUOTA,
        "key: vip, rate_limit: {replaces: [{name: base}], unit: hour, requests_per_unit: 5}",
    )
    assert asked(door, "base", "spent", "vip") == [True, False, False, False]
    assert (left(door, "base"), left(door, "vip")) == ([9], [4])


def test_the_answer_tells_what_is_left_after_a_refusal() -> None:
    door = gate(QUOTA, PLAIN)
    asked(door, "spent", times=1)
    refused = door.check({"spent": "1"}, {"p": "1"})
    assert not refused
    assert refused.statuses[1].decision is not None
    assert (refused.statuses[1].allowed, refused.statuses[1].decision.remaining) == (True, 2)


# Closed ------------------------------------------------------------------------------------


def test_a_closed_rule_can_be_replaced_and_lets_its_allow_list_in() -> None:
    banned = "rate_limit: {name: banned, unit: minute, requests_per_unit: 0}"
    door = gate(
        f"key: a, allow: [friend], {banned}",
        "key: vip, rate_limit: {replaces: [{name: banned}], unit: hour, requests_per_unit: 2}",
    )
    assert asked(door, "a", "vip") == [True, True, False, False]
    assert door.check({"a": "1"}, {"vip": "2"}).statuses[0].reason == "replaced"
    assert door.check({"a": "friend"}).statuses[0].reason == "allow list"
    assert asked(door, "a", times=1) == [False]


@pytest.mark.parametrize("refusing", [f"key: shut, {NEVER}", "key: shut, deny: ['1']"])
def test_a_look_at_what_refuses_everything_is_refused(refusing: str) -> None:
    door = gate(refusing)
    assert not door.check(Descriptor.of({"shut": "1"}, hits=0))
    assert door.check({"shut": "1"}, hits=-1), "nothing is asked for"


@pytest.mark.parametrize(
    ("refusing", "top"),
    [
        ("key: other, limits: 1/hour", ""),
        (f"key: other, {NEVER}", ""),
        ("key: other, deny: ['1'], limits: 9/hour", ""),
        ("key: other, limits: 9/hour", "deny: {other: ['1']}"),
    ],
    ids=["a limit", "a closed rule", "a deny list of a step", "a deny list of the domain"],
)
def test_shadow_counts_every_request_whoever_refuses_it(refusing: str, top: str) -> None:
    door = gate("key: s, shadow_mode: true, limits: 9/hour", refusing, PLAIN, top=top)
    door.check({"other": "1"})
    for _ in range(3):
        assert not door.check({"s": "1"}, {"other": "1"}, {"p": "1"})
    assert left(door, "s") == [6]
    assert left(door, "p") == [2]


def test_shadow_counts_nothing_for_clients_on_an_allow_list() -> None:
    door = gate("key: s, shadow_mode: true, limits: 9/hour", top="allow: {s: ['1']}")
    assert door.check({"s": "1"})
    assert left(door, "s") == [9]


def test_a_client_that_an_operator_denies_is_counted_in_shadow() -> None:
    door = gate("key: s, shadow_mode: true, limits: 9/hour")
    door.switches.deny("s", "1")
    verdict = door.check({"s": "1"})
    assert (verdict.allowed, verdict.statuses[0].reason) == (False, "deny list")
    assert left(door, "s") == [8]


# What the answer tells -----------------------------------------------------------------------


def test_quotas_are_back_when_the_first_of_them_is() -> None:
    door = gate(
        "key: slow, quota_mode: true, limits: 1/hour",
        "key: fast, quota_mode: true, limits: 1/minute",
        "key: p, limits: 1/10s",
    )
    asked(door, "slow", "fast", times=1)
    refused = door.check({"slow": "1"}, {"fast": "1"})
    assert refused.retry_after == 60.0
    assert [name for name, _ in refused.named_decisions()] == ["api/fast 1/minute"]
    assert refused.rule is not None
    assert refused.rule.id == "api/fast"
    asked(door, "p", times=1)
    both = door.check({"slow": "1"}, {"fast": "1"}, {"p": "1"})
    assert both.retry_after == 60.0, "the limit of 10 s is free before"


def test_quotas_that_are_over_say_nothing_where_another_passes() -> None:
    door = gate(QUOTA, "key: q, quota_mode: true, limits: 9/hour")
    asked(door, "spent", times=1)
    verdict = door.check({"spent": "1"}, {"q": "1"})
    assert verdict
    assert [name for name, _ in verdict.named_decisions()] == ["api/q 9/hour"]
    assert verdict.decision is not None
    assert verdict.decision.remaining == 8


def test_nothing_is_given_back_for_a_request_that_was_not_counted() -> None:
    door = gate(QUOTA, PLAIN)
    door.switches.mode("shadow")
    asked(door, "spent", "p", times=1)
    descriptors = [Descriptor.of({"spent": "1"}), Descriptor.of({"p": "1"})]
    taken = Taken()
    verdict = door.check_into(taken, descriptors, None, 1)
    uncounted = FromGate(door, descriptors, None, verdict, taken)
    assert uncounted.allowed, "let through because nothing is enforced"
    assert left(door, "p") == [1]
    uncounted.give_back(asynchronous=False)
    assert (left(door, "spent"), left(door, "p")) == ([0], [1])
