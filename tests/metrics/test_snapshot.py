"""Snapshots travel between processes and add up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Gate
from penstock.metrics import Gathered, Recorder, Snapshot, merge
from penstock.metrics.families import BOUNDS, FAMILIES
from penstock.testing import FakeClock

RULES: dict[str, Any] = {
    "domain": "api",
    "descriptors": [
        {"key": "user", "limits": "5/hour"},
        {"key": "all", "detailed_metric": True, "limits": "3/hour"},
    ],
}


def worker(name: str, descriptors: list[dict[str, str]], **options: Any) -> Recorder:
    gate, recorder = Gate.from_rules(RULES), Recorder(worker=name, **options)
    recorder.follow(gate)
    for each in descriptors:
        recorder.decided("api", gate.check(each), 0.002)
    return recorder


def test_what_was_told_comes_out_again() -> None:
    snapshot = worker("0", [{"user": "1"}] * 8 + [{"all": "é|=\n"}]).snapshot()
    there = Snapshot.from_bytes(snapshot.to_bytes())
    assert there.values == snapshot.values
    assert there.refused.most() == snapshot.refused.most()
    assert there.at == snapshot.at


ASKED = st.lists(
    st.builds(lambda key, value: {key: value}, st.sampled_from(["user", "all"]),
              st.sampled_from("abc")), max_size=20,
)  # fmt: skip


@given(st.lists(ASKED, min_size=1, max_size=4))
def test_the_sum_is_what_one_process_would_have_counted(asked: list[list[dict[str, str]]]) -> None:
    """Each with a gate of its own, so that each decides by itself."""
    parts = [worker(str(at), each).snapshot() for at, each in enumerate(asked)]
    whole = merge([Snapshot.from_bytes(part.to_bytes()) for part in parts])
    for name in ("penstock_requests_total", "penstock_decisions_total",
                 "penstock_detailed_decisions_total"):  # fmt: skip
        for labels in {labels for part in parts for labels in part.values.get(name, {})}:
            assert whole.get(name, *labels) == sum(part.get(name, *labels) for part in parts)  # type: ignore[misc]  # numbers
    *counts, seconds = whole.values["penstock_decision_seconds"]["api",]  # type: ignore[misc]  # a list
    assert sum(counts) == sum(map(len, asked))
    assert seconds == pytest.approx(0.002 * sum(map(len, asked)))
    assert whole.refused.total == sum(part.refused.total for part in parts)
    assert whole.get("penstock_workers") == len(asked)


def put(at: int, values: dict[str, dict[tuple[str, ...], Any]]) -> Snapshot:
    snapshot = Snapshot(at)
    for name, rows in values.items():
        for labels, value in rows.items():
            snapshot.set(name, labels, value)
    return snapshot


@pytest.mark.parametrize(
    ("name", "labels", "older", "newer", "expected"),
    [
        ("penstock_store_downs_total", ("redis",), 2, 3, 5),
        ("penstock_workers", (), 1, 1, 2),
        ("penstock_store_up", ("redis",), 0, 1, 0),
        ("penstock_store_up", ("redis",), 1, 0, 0),
        ("penstock_circuit_state", ("prices",), 2, 0, 2),
        ("penstock_rules_loaded_total", (), 4, 3, 4),
        ("penstock_rules_ok", (), 0, 1, 0),
        ("penstock_rules_loaded_timestamp_seconds", (), 200.0, 100.0, 100.0),
        ("penstock_rules", (), 9, 3, 3),
        ("penstock_refusals_anomalous", ("all",), 1, 0, 1),
        ("penstock_process_open_fds", ("0",), 7, 9, 9),
        ("penstock_process_cpu_seconds_total", ("0",), 1.5, 2.5, 4.0),
    ],
)
def test_each_family_says_what_several_become(
    name: str, labels: tuple[str, ...], older: Any, newer: Any, expected: Any
) -> None:
    parts = [put(2, {name: {labels: newer}}), put(1, {name: {labels: older}})]
    assert merge(parts).get(name, *labels) == expected
    assert merge(parts[::-1]).get(name, *labels) == expected


def test_a_limit_that_the_newest_does_not_know_is_gone() -> None:
    name = "penstock_limit_units"
    old = put(1, {name: {("api", "api/a", "x"): 1, ("api", "api/b", "x"): 2}})
    new = put(2, {name: {("api", "api/b", "x"): 3}})
    alarm = put(3, {"penstock_anomalies_total": {("all",): 1}})  # newest, and says nothing of it
    assert merge([new, alarm, old]).values[name] == {("api", "api/b", "x"): 3}


def test_of_processes_each_is_told() -> None:
    snapshot = merge([worker(name, []).snapshot() for name in "012"])
    assert set(snapshot.values["penstock_process_open_fds"]) == {("0",), ("1",), ("2",)}


# A worker that ends --------------------------------------------------------------------------


def test_a_sum_never_goes_down_when_a_worker_ends() -> None:
    gathered = Gathered()
    gathered.put("0", worker("0", [{"user": "1"}] * 8).snapshot().to_bytes())
    gathered.put("1", worker("1", [{"user": "2"}] * 3).snapshot().to_bytes())
    before = gathered.snapshot()
    gathered.retire("0")
    after = gathered.snapshot()
    for name, family in FAMILIES.items():
        if family.kind == "counter":
            assert after.values.get(name) == before.values.get(name), name
    assert after.values["penstock_decision_seconds"] == before.values["penstock_decision_seconds"]
    assert after.refused.most() == before.refused.most()
    assert after.get("penstock_workers") == 1
    assert set(after.values["penstock_process_open_fds"]) == {("1",)}
    gathered.put("0", worker("0", [{"user": "1"}]).snapshot().to_bytes())
    assert gathered.snapshot().get("penstock_requests_total", "api", "allowed") == 5 + 3 + 1
    assert gathered.snapshot().get("penstock_workers") == 2


def test_workers_end_one_after_the_other() -> None:
    gathered = Gathered()
    for at in range(5):
        gathered.put("0", worker("0", [{"user": "1"}] * 3).snapshot().to_bytes())
        gathered.retire("0")
        assert gathered.snapshot().get("penstock_requests_total", "api", "allowed") == 3 * (at + 1)


def test_gauges_of_who_is_gone_do_not_stay() -> None:
    gathered = Gathered()
    gathered.put("0", put(1, {"penstock_store_up": {("redis",): 0}}))
    gathered.put("1", put(2, {"penstock_store_up": {("redis",): 1}}))
    assert gathered.snapshot().get("penstock_store_up", "redis") == 0
    gathered.retire("0")
    assert gathered.snapshot().get("penstock_store_up", "redis") == 1
    gathered.retire("0")
    gathered.retire("nobody")


def test_a_worker_is_put_in_place_of_itself() -> None:
    gathered = Gathered()
    recorder = worker("0", [{"user": "1"}])
    for _ in range(3):
        gathered.put("0", recorder.snapshot().to_bytes())
    assert gathered.snapshot().get("penstock_requests_total", "api", "allowed") == 1


def test_the_sum_is_bounded_and_places_are_kept() -> None:
    gathered = Gathered(most_labels=5)
    recorders = [
        worker(str(at), [{"all": f"{at}{value}"} for value in range(4)], most_labels=5)
        for at in range(3)
    ]
    name = "penstock_detailed_decisions_total"
    kept: set[str] = set()
    for turn in range(4):
        for at in (turn % 3, (turn + 1) % 3, (turn + 2) % 3):
            gathered.put(str(at), recorders[at].snapshot())
        snapshot = gathered.snapshot()
        values = {labels[2] for labels in snapshot.values[name]}
        assert len(values) == 6
        assert "other" in values
        kept = kept or values
        assert values == kept, "who has a place keeps it"
        assert snapshot.get(name, "other", "other", "other", "allowed") == 7
        assert snapshot.get("penstock_folded_total", name) == 7
        total = sum(snapshot.values[name].values())  # type: ignore[arg-type]  # numbers
        assert total == 12


# What is not a snapshot ----------------------------------------------------------------------


def broken_snapshots() -> list[bytes]:
    good = json.loads(worker("0", [{"user": "1"}] * 7).snapshot().to_bytes())
    broken = [b"", b"{", b"[]", b"null", b"\xff", json.dumps(good).encode()[:-5]]
    for change in (
        {"version": 99},
        {"at": "soon"},
        {"refused": {}},
        {"refused": {"capacity": 0, "total": 0, "rows": []}},
        {"families": {"penstock_unheard_of": []}},
        {"families": {"penstock_workers": [[["label"], 1]]}},
        {"families": {"penstock_workers": [[[], "one"]]}},
        {"families": {"penstock_decision_seconds": [[["api"], 5]]}},
        {"families": {"penstock_decision_seconds": [[["api"], [0] * len(BOUNDS)]]}},
    ):
        broken.append(json.dumps({**good, **change}).encode())
    return broken


BROKEN = broken_snapshots()


# Named by number: the bytes contain the time, so they differ between the processes of xdist.
@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_snapshot_is_an_error_and_changes_nothing(data: bytes) -> None:
    gathered = Gathered()
    gathered.put("0", worker("0", [{"user": "1"}]).snapshot())
    with pytest.raises(ValueError, match="not a snapshot of Penstock's metrics"):
        gathered.put("0", data)
    assert gathered.snapshot().get("penstock_requests_total", "api", "allowed") == 1


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a snapshot"):
        Snapshot.from_bytes(data)


def test_nothing_is_a_sum_of_nothing() -> None:
    assert merge([]).values == {}
    assert Gathered().snapshot().values == {}


def test_refusals_by_rule() -> None:
    recorder = worker("0", [{"user": "1"}] * 8 + [{"all": "1"}] * 4, clock=FakeClock())
    assert recorder.snapshot().refusals() == {"api/user": 3, "api/all": 1}
