"""Limits that are not in the rules: how many there may be, and when they are let go of."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

pytest.importorskip("yaml")

from penstock import Descriptor, Gate, MemoryStore, SharedMemoryStore, TooManyLimits
from penstock.rules.deciding import pool
from penstock.testing import FakeClock

RULES = "domain: api\ndescriptors: [{key: user, limits: 10/hour}]"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_700_000_000 * 10**9)


@pytest.fixture
def gate(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setattr(pool, "MOST_BROUGHT", 3)
    return Gate.from_rules(RULES, MemoryStore(clock=clock), clock=clock)


def left(gate: Gate, limit: str, user: str = "1") -> int:
    """After one more hit by a limit that the request brings."""
    decision = gate.check(Descriptor.of({"user": user}, limit)).decision
    assert decision is not None
    return decision.remaining


def test_there_are_only_so_many_at_once(gate: Gate, clock: FakeClock) -> None:
    assert [left(gate, f"{n}/hour") for n in (1, 2, 3)] == [0, 1, 2]
    with pytest.raises(TooManyLimits, match=r"3 different limits .* and 3 is the most"):
        left(gate, "4/hour")
    assert left(gate, "3/hour") == 1, "known ones go on"
    assert left(gate, "10/hour") == 9, "and so does one that stands in the rules"


def test_what_has_run_out_makes_room(gate: Gate, clock: FakeClock) -> None:
    left(gate, "5/minute")
    left(gate, "7/day")
    left(gate, "8/day")
    clock.advance(600)
    assert left(gate, "4/day") == 3
    with pytest.raises(TooManyLimits):
        left(gate, "5/minute")
    assert left(gate, "7/day") == 5


def test_nothing_is_lost_for_others_to_have_room(gate: Gate, clock: FakeClock) -> None:
    left(gate, "1/day")
    left(gate, "2/day")
    left(gate, "3/day")
    for _ in range(20):
        clock.advance(60)
        with pytest.raises(TooManyLimits):
            left(gate, "4/day")
    decision = gate.check(Descriptor.of({"user": "1"}, "1/day")).decision
    assert decision is not None
    assert not decision


def test_a_store_that_keeps_state_elsewhere_needs_no_refusal(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MOST_BROUGHT", 3)
    with SharedMemoryStore(tmp_path / "file", clock=clock) as store:
        gate = Gate.from_rules(RULES, store, clock=clock)
        for _ in range(2):
            for n in range(1, 20):
                gate.check(Descriptor.of({"user": "1"}, f"{n + 20}/hour"))
        assert len(store._counters) <= 4
        assert left(gate, "21/hour") == 18


def test_one_that_comes_into_the_rules_is_kept(gate: Gate, clock: FakeClock) -> None:
    for _ in range(3):
        left(gate, "5/hour")
    gate.replace(RULES.replace("10/hour", "5/hour"))
    left(gate, "1/hour", "2")
    left(gate, "2/hour", "2")
    clock.advance(24 * 3600)
    for _ in range(5):
        assert gate.check({"user": "1"})
    left(gate, "3/hour", "2")
    left(gate, "4/hour", "2")
    gate.replace(RULES.replace("10/hour", "5/hour") + "\n")
    assert not gate.check({"user": "1"}), "its counters are the same as before"


def test_memory_stays_bounded(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST_BROUGHT", 256)
    gate = Gate.from_rules(RULES, MemoryStore(clock=clock), clock=clock)

    def bring(first: int, count: int) -> None:
        for n in range(first, first + count):
            left(gate, f"{n}/second")
            clock.advance(1)

    tracemalloc.start()
    try:
        bring(1, 256)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        bring(257, 3_000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 300_000, "3,000 more limits would be some 4 MB"
    assert len(gate.pool) <= pool.MOST_BROUGHT


def test_overrides_leave_nothing_behind(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    gate = Gate.from_rules(RULES, store, clock=clock)
    for n in range(2_000):
        gate.switches.override("user", "1", factor=2 + n, lasts="1s")
        assert gate.check({"user": "1"})
        clock.advance(60)
    assert len(store._counters) < 1_000
