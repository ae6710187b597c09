"""A store that is full says so in the log, and not too often."""

from __future__ import annotations

import logging

import pytest

from penstock import Gate, MemoryStore
from penstock.metrics import Recorder, Snapshot
from penstock.running.store_watch import StoreWatch
from penstock.testing import FakeClock


def told(evictions: int, repairs: int = 0) -> Snapshot:
    snapshot = Snapshot(0)
    snapshot.set("penstock_store_max_keys", ("shared",), 1000)
    snapshot.set("penstock_store_evictions_total", ("shared",), evictions)
    snapshot.set("penstock_store_repairs_total", ("shared",), repairs)
    return snapshot


def test_it_says_so_at_once_and_then_once_in_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    watch = StoreWatch(clock)
    seconds_and_counts = [(0, 50), (10, 50), (20, 53), (30, 80), (600, 90), (621, 100), (9999, 100)]
    said, now = {}, 0
    for at, count in seconds_and_counts:
        clock.advance(at - now)
        now = at
        caplog.clear()
        watch.look(told(count))
        said[at] = [record.getMessage() for record in caplog.records]
    assert [at for at, lines in said.items() if lines] == [20, 621]
    assert "is full: 3 keys" in said[20][0]
    assert "raise --max-keys (now 1000)" in said[20][0]
    assert "is full: 47 keys" in said[621][0]


def test_damage_is_said_apart(caplog: pytest.LogCaptureFixture) -> None:
    watch = StoreWatch(FakeClock())
    with caplog.at_level(logging.WARNING):
        watch.look(told(0))
        watch.look(told(0, repairs=2))
    assert ["damaged: 2 times" in record.getMessage() for record in caplog.records] == [True]


def test_a_recorder_tells_of_its_gates_store() -> None:
    store = MemoryStore(max_keys=10)
    rules = {"domain": "api", "descriptors": [{"key": "user", "limits": "5/day"}]}
    gate = Gate.from_rules(rules, store)
    recorder = Recorder()
    recorder.follow(gate)
    for number in range(25):
        gate.check({"user": str(number)})
    snapshot = recorder.snapshot()
    assert snapshot.get("penstock_store_max_keys", "memory") == 10
    assert snapshot.get("penstock_store_evictions_total", "memory") == store.evictions == 15
