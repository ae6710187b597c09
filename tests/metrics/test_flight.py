"""FlightRecorder: the last requests, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock import Gate, MemoryStore
from penstock.metrics import Recorder
from penstock.metrics.flight import LONGEST, FlightRecorder, Recorded
from penstock.testing import FakeClock

RULES = {"domain": "api", "descriptors": [{"key": "user", "limits": "2/minute"}]}
T0 = 1_700_000_000_000_000_000


def pairs(user: str) -> tuple[tuple[str, str], ...]:
    return (("user", user),)


def recorded(*recorders: FlightRecorder, since: int = 0, most: int | None = None) -> Recorded:
    return Recorded.load([each.dump(since) for each in recorders], most)


def shown(record: Recorded) -> list[tuple[int, str, bool]]:
    users = [request[1][0][0][1] for request in record.requests]
    return [
        (time - T0, users[number], bool(refused))
        for time, number, refused in zip(record.times, record.numbers, record.refused, strict=True)
    ]


def test_what_a_gate_decided_is_recorded() -> None:
    clock = FakeClock(T0)
    flight = FlightRecorder(100, 10, clock)
    recorder = Recorder(flight=flight)
    gate = Gate.from_rules(RULES, MemoryStore(clock=clock))
    for user in ("a", "b", "a", "a"):
        recorder.decided("api", gate.check({"user": user}), 0.0)
        clock.advance(1e-9)
    assert shown(recorded(flight)) == [
        (0, "a", False), (1, "b", False), (2, "a", False), (3, "a", True)
    ]  # fmt: skip


def test_hits_are_part_of_a_request() -> None:
    clock = FakeClock(T0)
    flight = FlightRecorder(100, 10, clock)
    recorder = Recorder(flight=flight)
    gate = Gate.from_rules(RULES)
    for hits in (1, 3):
        plan = gate.planner.make("api", [pairs("a")], hits)
        assert plan is not None
        recorder.planned(plan, plan.hit(), 0.0)
    assert [request[2] for request in recorded(flight).requests] == [1, 3]


def test_only_what_is_recent() -> None:
    clock = FakeClock(T0)
    flight = FlightRecorder(100, 10, clock)
    for second in range(5):
        flight.decided("api", [pairs(str(second))], False)
        clock.advance(1)
    assert [user for _, user, _ in shown(recorded(flight, since=T0 + 3 * 10**9))] == ["3", "4"]


def test_several_recorders_in_the_order_of_time() -> None:
    clock = FakeClock(T0)
    first, second = FlightRecorder(100, 10, clock), FlightRecorder(100, 10, clock)
    for number in range(6):
        (first if number % 2 else second).decided("api", [pairs(str(number % 3))], False)
        clock.advance(1e-9)
    record = recorded(first, second)
    assert [user for _, user, _ in shown(record)] == ["0", "1", "2", "0", "1", "2"]
    assert len(record.requests) == 3
    assert [user for _, user, _ in shown(recorded(first, second, most=2))] == ["1", "2"]


def test_requests_that_are_too_many_or_too_long_are_unknown() -> None:
    flight = FlightRecorder(100, 2, FakeClock(T0))
    for user in ("a", "b", "c", "a", "x" * LONGEST):
        flight.decided("api", [pairs(user)], False)
    record = recorded(flight)
    assert [user for _, user, _ in shown(record)] == ["a", "b", "a"]
    assert record.unknown == 2


@given(
    st.integers(1, 12),
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=80),
)
def test_a_ring_has_the_newest(capacity: int, most: int, requests: list[tuple[str, bool]]) -> None:
    """What it knows is right and in its place, also when numbers are used again."""
    clock = FakeClock(T0)
    flight = FlightRecorder(capacity, most, clock)
    account = []
    for at, (user, refused) in enumerate(requests):
        flight.decided("api", [pairs(user)], refused)
        account.append((at, user, refused))
        clock.advance(1e-9)
    record = recorded(flight)
    newest = account[-capacity:]
    assert len(record) + record.unknown == len(newest)
    assert all(row in newest for row in shown(record))
    if len({user for user, _ in requests}) <= most:
        assert shown(record) == newest
