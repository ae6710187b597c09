"""Plans: which requests take the short way, and that it comes to the same as the general one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("yaml")

from penstock import Gate, MemoryStore
from penstock.rules.deciding.plan import PlanCache
from penstock.rules.deciding.store_calls import Taken
from penstock.rules.deciding.switches import Switches
from penstock.testing import FakeClock

RULES = """
domain: api
deny: {country: [nowhere]}
descriptors:
  - {key: user, limits: [{limit: 3/minute, name: per-user}]}
  - {key: path, limits: 2/minute}
  - {key: tenant, limits: [{limit: 2/minute, name: small}, {limit: 3/hour, name: large}]}
  - {key: quiet, shadow_mode: true, limits: 1/minute}
"""
Switch = Callable[[Switches], None]
SWITCHES: dict[str, Switch] = {
    "a rule in shadow": lambda s: s.mode("shadow", "api/user"),
    "a rule off": lambda s: s.mode("off", "api/user"),
    "a limit in shadow": lambda s: s.mode("shadow", "per-user"),
    "an override": lambda s: s.override("user", "1", factor=2),
    "an allowed key": lambda s: s.allow("user", "1"),
    "a denied key": lambda s: s.deny("user", "1"),
}


def gate_of(clock: FakeClock | None = None) -> Gate:
    clock = clock or FakeClock(1_700_000_000 * 10**9)
    return Gate.from_rules(RULES, MemoryStore(clock=clock), clock=clock)


def is_planned(gate: Gate, *descriptors: dict[str, str]) -> bool:
    return gate.planner.plan(None, descriptors) is not None


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_a_switch_keeps_only_what_it_touches_off_the_short_way(switch: Switch) -> None:
    gate = gate_of()
    assert is_planned(gate, {"user": "1"})
    switch(gate.switches)
    assert not is_planned(gate, {"user": "1"})
    assert not is_planned(gate, {"path": "/"}, {"user": "1"})
    assert is_planned(gate, {"path": "/"})
    assert is_planned(gate, {"path": "/"}, {"tenant": "1"}, {"unknown": "1"})


def test_an_override_touches_its_pair_only() -> None:
    gate = gate_of()
    gate.switches.override("user", "1", factor=2)
    assert is_planned(gate, {"user": "2"})


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_a_switch_for_all_rules_touches_all(mode: str) -> None:
    gate = gate_of()
    gate.switches.mode(mode)
    assert not is_planned(gate, {"path": "/"})
    gate.switches.mode("enforce")
    assert is_planned(gate, {"path": "/"})


def test_a_list_of_the_rules_touches_requests_with_its_key() -> None:
    gate = gate_of()
    assert not is_planned(gate, {"country": "nowhere"})
    assert not is_planned(gate, {"user": "1"}, {"country": "here"})
    assert is_planned(gate, {"user": "1"})


def test_what_runs_out_lets_go_at_the_next_request() -> None:
    clock = FakeClock(1_700_000_000 * 10**9)
    gate = gate_of(clock)
    gate.switches.override("user", "1", factor=2, lasts="1m")
    gate.switches.deny("tenant", "1", lasts="2m")
    clock.advance(60)
    assert gate.check({"user": "1"}).plan is None
    assert gate.check({"user": "1"}).plan is not None
    assert not gate.check({"tenant": "1"})
    clock.advance(60)
    assert gate.check({"tenant": "1"})
    assert gate.check({"tenant": "1"}).plan is not None


def test_a_plan_that_was_made_before_a_switch_is_not_used() -> None:
    gate, cache = gate_of(), PlanCache(10, 100, 16)
    plan = gate.planner.plan(None, [{"user": "1"}])
    assert plan is not None
    assert cache.get(b"message", gate.planner) is None
    cache.put(b"message", plan)
    assert cache.get(b"message", gate.planner) is plan
    gate.switches.mode("shadow", "api/path")
    cache.put(b"late", plan)
    assert cache.get(b"message", gate.planner) is None
    assert cache.get(b"late", gate.planner) is None
    cache.put(b"late", plan)
    assert len(cache) == 0


def test_messages_are_worth_keeping_when_they_come_again() -> None:
    cache = PlanCache(10, 8, 16)
    assert [cache.wants(b"a"), cache.wants(b"a"), cache.wants(b"a")] == [False, True, True]
    assert [cache.wants(b"a" * 9), cache.wants(b"a" * 9)] == [False, False]


DESCRIPTORS = st.sampled_from(
    [
        {"user": "1"}, {"user": "2"}, {"path": "/"}, {"tenant": "1"}, {"quiet": "1"},
        {"unknown": "1"}, {"country": "nowhere"}, {"user": "1", "path": "/"},
    ]
)  # fmt: skip
STEPS = st.one_of(
    st.lists(DESCRIPTORS, min_size=1, max_size=3),
    st.sampled_from(
        [
            *SWITCHES.values(),
            lambda s: s.override("user", "1", limit="1/minute", lasts="30s"),
            lambda s: s.mode("off", "small"),
            lambda s: s.clear_mode("api/user"),
            lambda s: s.clear_override("user", "1"),
            lambda s: s.clear_list("deny", "user", "1"),
            lambda s: s.clear_list("allow", "user", "1"),
            lambda s: s.mode("shadow"),
            lambda s: s.mode("enforce"),
        ]
    ),
)


@given(st.lists(st.tuples(STEPS, st.integers(0, 20)), max_size=25))
def test_both_ways_come_to_the_same_verdict(steps: list[tuple[Any, int]]) -> None:
    clock = FakeClock(1_700_000_000 * 10**9)
    short, general = gate_of(clock), gate_of(clock)
    for step, seconds in steps:
        clock.advance(seconds)
        if not isinstance(step, list):
            step(short.switches)
            step(general.switches)
            continue
        one = short.check(*step)
        other = general._run(Taken(), step, None, 1)
        assert other.plan is None
        assert (one.allowed, one.rule and one.rule.id) == (
            other.allowed,
            other.rule and other.rule.id,
        )
        for ours, theirs in zip(one.statuses, other.statuses, strict=True):
            assert ours.pairs == theirs.pairs
            assert (ours.allowed, ours.reason) == (theirs.allowed, theirs.reason)
            assert repr(ours.decision) == repr(theirs.decision)
            assert ours.limit_name == theirs.limit_name
