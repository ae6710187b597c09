"""A replay decides as `Gate.check` does, request by request: both ways, for every kind of rule."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Gate, MemoryStore
from penstock._mode import REPLAY_COMPILED
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.deciding.paths import AmbiguousPath
from penstock.replay.deciding.log_request import LogRequest
from penstock.replay.deciding.replay import replay_of
from penstock.replay.deciding.settings import Settings
from penstock.replay.reading.requests import Requests
from penstock.rules.reading.loading import read_rules
from penstock.testing import FakeClock

# `make soak` asks for more.
EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "60"))
START = 1_704_067_200
SECOND = 1_000_000_000
ADDRESSES = ["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8::2", "x"]
PATHS = ["/", "/login", "/api/a", "/api/b", "//login", "/a/../b", "/%2flogin", "/api/a;x"]
USERS = ["ann", "bob", "x|y=z", None]
LIMITS = [
    "2/minute",
    "3/minute burst 1",
    "2/10s leaky_bucket",
    "2/10s fixed_window",
    "2/minute fixed_window align first_hit",
    "3/day fixed_window tz Asia/Taipei",
    "3/30s sliding_window",
    "3/30s sliding_window cells 5",
    "2/30s sliding_log",
    "9/30s sliding_log",
    "2/30s sliding_log count_rejected",
    "2/30s sliding_log lockout 1m",
    "2/minute lockout 5m",
    "3/minute soft 2 for 1m",
    "6/minute warm_up 2m",
    "3/minute debt 4",
    "3/minute initial 1",
    "0/minute",
]

limits = st.sampled_from(LIMITS)
several = st.lists(limits, min_size=1, max_size=2, unique=True)


def rule_options() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        several.map(lambda each: {"limits": each}),
        st.builds(lambda each: {"limits": each, "shadow_mode": True}, several),
        st.builds(lambda each, cost: {"limits": each, "cost": cost}, several, st.integers(1, 3)),
        st.just({"rate_limit": {"unlimited": True}}),
        st.builds(
            lambda one, other: {
                "limits": [one],
                "split": {"percent": 50, "limits": [other]},
            },
            limits,
            limits,
        ),
        st.builds(
            lambda one, other: {
                "limits": [one],
                "schedule": [{"from": "00:01", "to": "00:03", "limits": [other]}],
            },
            limits,
            limits,
        ),
        st.just({"rate_limit": {"unit": "minute", "requests_per_unit": 2}}),
        st.just({"rate_limit": {"unit": "minute", "requests_per_unit": 0}}),
    )


def plans() -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda one, other: {
            "key": "user",
            "plans": {"by": "user", "tiers": {"ann": [one], "bob": [other]}, "default": "bob"},
        },
        limits,
        limits,
    )


def slow_options() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        several.map(lambda each: {"limits": each, "quota_mode": True}),
        limits.map(lambda each: {"limits": [each], "concurrency": 2}),
    )


@st.composite
def rule_files(draw: st.DrawFn) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if draw(st.booleans()):
        step: dict[str, Any] = {"key": "remote_address", **draw(rule_options())}
        if draw(st.booleans()):
            step["deny"] = ["2001:db8::1"]
        if draw(st.booleans()):
            step["allow"] = ["192.0.2.2"]
        if draw(st.booleans()):
            step["group"] = "subnet"
        steps.append(step)
    if draw(st.booleans()):
        steps.append({"key": "remote_address", "value": "192.0.2.2", **draw(rule_options())})
    if draw(st.booleans()):
        below = {"key": "remote_address", **draw(rule_options())}
        steps.append({"key": "path", "value": "/login", "descriptors": [below]})
    if draw(st.booleans()):
        step = {"key": "path", "value": "/api/*", **draw(rule_options())}
        if draw(st.booleans()):
            step["share_threshold"] = True
        if draw(st.booleans()):
            step["descriptors"] = [{"key": "user", **draw(rule_options())}]
        steps.append(step)
    if draw(st.booleans()):
        steps.append(draw(plans()))
    if draw(st.integers(0, 4)) == 0:
        steps.append({"key": "method", **draw(slow_options())})
    steps.append({"key": "host", **draw(rule_options())})
    rules: dict[str, Any] = {"domain": "web", "descriptors": steps}
    if draw(st.integers(0, 3)) == 0:
        rules["deny"] = {"user": ["bob"]}
    if draw(st.integers(0, 3)) == 0:
        rules["allow"] = {"remote_address": ["192.0.2.0/31"]}
    return rules


@st.composite
def traffic(draw: st.DrawFn) -> list[dict[str, Any]]:
    out, time = [], START
    for _ in range(draw(st.integers(1, 40))):
        time += draw(st.sampled_from([0, 0, 1, 5, 30, 61]))
        out.append(
            {
                "time": time,
                "remote_address": draw(st.sampled_from(ADDRESSES)),
                "path": draw(st.sampled_from(PATHS)),
                "user": draw(st.sampled_from(USERS)),
                "method": draw(st.sampled_from(["GET", "POST"])),
                "host": draw(st.sampled_from(["a", None])),
                "bytes": draw(st.integers(0, 4)),
            }
        )
    return out


class Reference:
    """What an application with this gate would have answered."""

    def __init__(self, rules: dict[str, Any], start: int, trust: Trust) -> None:
        self.clock = FakeClock(start)
        self.gate = Gate(read_rules(rules), MemoryStore(clock=self.clock), clock=self.clock)
        self.gate.group("remote_address")
        self.gate.group("ip")
        self.trust = trust
        self.descriptors = Settings(trust).descriptors(self.gate)

    def check(self, request: dict[str, Any], hits: int) -> int:
        self.clock.set(request["time"] * SECOND)
        names = {"peer": "remote_address", "target": "path"}
        log_request = LogRequest(lambda name: request.get(names.get(name, name)), self.trust)
        try:
            descriptors = self.descriptors.of(log_request)
        except AmbiguousPath:
            return 2
        if not descriptors:
            return 0
        verdict = self.gate.check(*descriptors, hits=hits)
        self.gate.release(verdict)
        return 0 if verdict else 1


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("cost", [None, "bytes"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(rules=rule_files(), requests=traffic())
def test_a_replay_decides_as_the_gate(
    rules: dict[str, Any], requests: list[dict[str, Any]], slow: bool, cost: str | None
) -> None:
    reference = Reference(rules, requests[0]["time"] * SECOND, Settings().trust)
    expected = [
        reference.check(request, max(1, request["bytes"]) if cost else 1) for request in requests
    ]
    source = Requests.of(requests)
    replay = replay_of(read_rules(rules), source, Settings(cost=cost), slow=slow)
    answers = [answer for block in source.blocks() for answer in replay.feed(block)[: block.n]]
    assert answers == expected


@pytest.mark.skipif(not REPLAY_COMPILED, reason="there is one way only")
@settings(max_examples=EXAMPLES, deadline=None)
@given(rules=rule_files(), requests=traffic())
def test_both_ways_count_the_same(rules: dict[str, Any], requests: list[dict[str, Any]]) -> None:
    seen = []
    for slow in (False, True):
        source = Requests.of(requests)
        replay = replay_of(read_rules(rules), source, Settings(), slow=slow)
        for block in source.blocks():
            replay.feed(block)
        outcome = replay.outcome()
        seen.append(
            (
                outcome.allowed, outcome.refused, outcome.ambiguous, outcome.unmatched,
                {
                    each.rule.id: (
                        each.tally.asked, each.tally.refused, each.tally.touched(),
                        sum(1 for count in each.tally.asked_by_key() if count),
                        each.tally.timeline(), sorted(map(repr, each.top(10))),
                    )
                    for each in outcome.rules if each.tally.asked
                },
            )
        )  # fmt: skip
    assert seen[0] == seen[1]
