"""Metrics of slots: in use, taken and refused, also if another process releases."""

from __future__ import annotations

from typing import Any

from penstock import AsyncGate, MemoryStore
from penstock.metrics import Recorder
from penstock.metrics.slots import IN_USE, REFUSED, TAKEN
from penstock.metrics.snapshot import Snapshot
from penstock.rules.deciding.verdict import Verdict
from penstock.testing import FakeClock

RULES = {"domain": "api", "descriptors": [{"key": "user", "concurrency": 2}]}


def worker(clock: FakeClock, store: MemoryStore) -> tuple[AsyncGate, Recorder]:
    gate = AsyncGate.from_rules(RULES, store, clock=clock)
    recorder = Recorder(clock=clock)
    recorder.follow(gate)
    return gate, recorder


def value(name: str, *recorders: Recorder) -> Any:
    families: list[Any] = [recorder.snapshot().values.get(name, {}) for recorder in recorders]
    return sum(family.get(("api/user",), 0) for family in families)


def check(gate: AsyncGate) -> Verdict:
    return gate.check_now({"user": "42"})


def test_in_use_taken_and_refused() -> None:
    clock = FakeClock()
    gate, recorder = worker(clock, MemoryStore(clock=clock))
    first, _, third = check(gate), check(gate), check(gate)
    assert not third
    assert [value(name, recorder) for name in (IN_USE, TAKEN, REFUSED)] == [2, 2, 1]
    gate.release_now(first)
    assert [value(name, recorder) for name in (IN_USE, TAKEN, REFUSED)] == [1, 2, 1]
    clock.advance(31)
    assert [value(name, recorder) for name in (IN_USE, TAKEN, REFUSED)] == [0, 2, 1]


def test_one_process_grants_and_another_releases() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    (one, first), (other, second) = worker(clock, store), worker(clock, store)
    granted = check(one)
    other.release_now(granted)
    assert value(IN_USE, first, second) == 0
    clock.advance(31)
    assert value(IN_USE, first, second) == 0
    check(other)
    assert value(IN_USE, first, second) == 1


def test_a_snapshot_can_be_sent() -> None:
    clock = FakeClock()
    gate, recorder = worker(clock, MemoryStore(clock=clock))
    check(gate)
    sent = Snapshot.from_bytes(recorder.snapshot().to_bytes())
    assert sent.values[IN_USE] == {("api/user",): 1}
