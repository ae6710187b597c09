"""Trials of changed rules on recorded requests."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import Gate, MemoryStore
from penstock.metrics.flight import FlightRecorder, Recorded
from penstock.replay.trying import Trial, try_rules
from penstock.rules.reading.loading import read_rules
from penstock.testing import FakeClock

T0 = 1_700_000_000_000_000_000


def rules(*limits: str, **more: Any) -> dict[str, Any]:
    steps = [{"key": "user", "limits": list(limits), **more}, {"key": "ip", "limits": "3/minute"}]
    return {"domain": "api", "descriptors": steps}


def recorded(steps: list[tuple[float, list[dict[str, str]]]]) -> Recorded:
    clock = FakeClock(T0)
    flight = FlightRecorder(1000, 100, clock)
    for pause, descriptors in steps:
        clock.advance(pause)
        flight.decided("api", [tuple(each.items()) for each in descriptors], False)
    return Recorded.load([flight.dump(0)])


def trial(record: Recorded, before: dict[str, Any], after: dict[str, Any]) -> Trial:
    return try_rules(record, read_rules(before), read_rules(after))


def test_a_higher_limit() -> None:
    record = recorded([(1.0, [{"user": user}]) for user in "aaaaabb"])
    result = trial(record, rules("2/hour"), rules("4/hour"))
    assert (result.requests, result.before.refused, result.after.refused) == (7, 3, 1)
    assert (result.newly_refused, result.newly_allowed) == (0, 2)
    assert result.keys == [("api/user", (("user", "a"),), 3, 1)]
    assert result.before.rules["api/user"].asked == 7
    assert result.last - result.first == 6 * 10**9


def test_nothing_recorded() -> None:
    result = trial(recorded([]), rules("2/hour"), rules("4/hour"))
    assert (result.requests, result.keys_changed) == (0, 0)


def test_a_rule_in_shadow_refuses_nothing_but_is_counted() -> None:
    record = recorded([(1.0, [{"user": "a"}]) for _ in range(5)])
    result = trial(record, rules("2/hour"), rules("2/hour", shadow_mode=True))
    assert (result.before.refused, result.after.refused) == (3, 0)
    assert result.after.rules["api/user"].refused == 3


def test_a_domain_that_the_new_rules_do_not_have() -> None:
    record = recorded([(1.0, [{"user": "a"}]) for _ in range(5)])
    other = {**rules("2/hour"), "domain": "other"}
    result = trial(record, rules("2/hour"), other)
    assert (result.newly_allowed, result.after.rules) == (3, {})


def test_overrides_in_force_are_taken_over() -> None:
    record = recorded([(1.0, [{"user": "a"}]) for _ in range(5)])

    def prepare(gate: Gate) -> None:
        gate.switches.override("user", "a", limit="100/hour")

    parsed = read_rules(rules("2/hour"))
    assert try_rules(record, parsed, parsed, prepare).before.refused == 0


PAIRS = st.fixed_dictionaries({}, optional={"user": st.sampled_from("ab"), "ip": st.just("x")})
LIMITS = st.sampled_from(
    ["2/second", "3/minute burst 5", "2/second fixed_window", "5/minute sliding_window", "4/hour"]
)


@given(
    st.lists(
        st.tuples(st.floats(0, 2), st.lists(PAIRS.filter(bool), min_size=1, max_size=2)),
        max_size=40,
    ),
    LIMITS,
    LIMITS,
    st.booleans(),
)
def test_it_decides_as_a_gate_does(
    steps: list[tuple[float, list[dict[str, str]]]], first: str, second: str, shadow: bool
) -> None:
    record = recorded(steps)
    before = rules(first)
    after = rules(*dict.fromkeys([first, second]), shadow_mode=shadow)
    result = trial(record, before, after)
    refused = []
    for each in (before, after):
        clock = FakeClock(record.times[0] if record.times else T0)
        gate = Gate.from_rules(each, MemoryStore(clock=clock))
        refused.append(0)
        for at, number in zip(record.times, record.numbers, strict=True):
            clock.set(at)
            descriptors = [dict(pairs) for pairs in record.requests[number][1]]
            refused[-1] += not gate.check(*descriptors).allowed
    assert [result.before.refused, result.after.refused] == refused
    assert result.newly_refused - result.newly_allowed == refused[1] - refused[0]
