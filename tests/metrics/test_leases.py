"""Metrics of leases: the figures of a store that leases, summed over workers."""

from __future__ import annotations

import pytest

from penstock import AsyncGate, MemoryStore
from penstock.metrics import Gathered, Recorder, Snapshot

pytest.importorskip("redis")

from penstock.stores.leased import LeaseStats

RULES = {"domain": "api", "descriptors": [{"key": "user", "limits": "100/second"}]}


class Leasing(MemoryStore):
    """Has the figures of a LeasedStore."""

    can_lease = True
    name = "redis"

    def stats(self) -> LeaseStats:
        return LeaseStats(
            leases=2, held=30, decided_here=900, decided_directly=100, calls=40, messages=70,
            failures=3, granted=1000, returned=50, lapsed=6, stretched=2,
        )  # fmt: skip


def snapshot_of(store: MemoryStore, worker: str = "0") -> Snapshot:
    recorder = Recorder(worker=worker)
    recorder.follow(AsyncGate.from_rules(RULES, store))
    return recorder.snapshot()


def figures(snapshot: Snapshot) -> dict[str, object]:
    return {
        " ".join([name.removeprefix("penstock_"), *labels[1:]]): value
        for name, values in snapshot.values.items()
        if "lease" in name
        for labels, value in values.items()
    }


def test_the_figures_of_a_store_that_leases() -> None:
    assert figures(snapshot_of(Leasing())) == {
        "leases": 2,
        "lease_units": 30,
        "lease_decisions_total here": 900,
        "lease_decisions_total directly": 100,
        "lease_calls_total": 40,
        "lease_calls_saved": 860,
        "lease_failures_total": 3,
        "lease_granted_units_total": 1000,
        "lease_stretch": 2,
        "lease_returned_units_total": 50,
        "lease_lapsed_units_total": 6,
        "lease_unused_ratio": 0.006,
    }


def test_other_stores_have_none() -> None:
    assert figures(snapshot_of(MemoryStore())) == {}


def test_workers_are_summed_and_a_worker_that_ended_holds_nothing() -> None:
    gathered = Gathered()
    for worker in ("0", "1"):
        gathered.put(worker, snapshot_of(Leasing(), worker).to_bytes())
    both = figures(gathered.snapshot())
    assert (both["leases"], both["lease_units"], both["lease_calls_total"]) == (4, 60, 80)
    gathered.retire("1")
    one = figures(gathered.snapshot())
    assert (one["leases"], one["lease_units"], one["lease_calls_total"]) == (2, 30, 80)
