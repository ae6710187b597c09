"""The same counters through OpenTelemetry."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.metrics")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from penstock import Gate
from penstock.metrics import Recorder
from penstock.metrics.families import FAMILIES
from penstock.metrics.otel import instrument
from penstock.testing import FakeClock


def read(reader: InMemoryMetricReader) -> dict[str, dict[frozenset[Any], Any]]:
    data = reader.get_metrics_data()
    assert data is not None
    metrics: dict[str, dict[frozenset[Any], Any]] = {}
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            assert scope.scope.name == "penstock"
            for metric in scope.metrics:
                points = {
                    frozenset((point.attributes or {}).items()): point.value  # type: ignore[union-attr]  # no histograms here
                    for point in metric.data.data_points
                }
                metrics[metric.name] = points
    return metrics


def test_it_exports_what_was_counted_and_goes_on() -> None:
    gate = Gate.from_rules({"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]})
    recorder, clock = Recorder(), FakeClock()
    recorder.follow(gate)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    try:
        instrument(recorder.snapshot, provider, clock)
        for refused in (3, 8):
            for _ in range(5):
                recorder.decided("api", gate.check({"user": "42"}), 0.003)
            clock.advance(1)
            metrics = read(reader)
            labels = {"domain": "api", "rule": "api/user", "outcome": "refused"}
            assert metrics["penstock_decisions_total"][frozenset(labels.items())] == refused
        api = {"domain": "api"}
        assert metrics["penstock_decision_seconds_count"][frozenset(api.items())] == 10
        sums = metrics["penstock_decision_seconds_sum"][frozenset(api.items())]
        assert sums == pytest.approx(0.03)
        buckets = metrics["penstock_decision_seconds_bucket"]
        assert buckets[frozenset({**api, "le": "0.0025"}.items())] == 0
        assert buckets[frozenset({**api, "le": "0.005"}.items())] == 10
        assert buckets[frozenset({**api, "le": "+Inf"}.items())] == 10
        assert metrics["penstock_workers"] == {frozenset(): 1}
        names = {name for name, values in recorder.snapshot().values.items() if values}
        assert {name for name in names if FAMILIES[name].kind != "histogram"} <= set(metrics)
    finally:
        provider.shutdown()


def test_one_export_looks_once() -> None:
    recorder, looked = Recorder(), []
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    def snapshot() -> Any:
        looked.append(1)
        return recorder.snapshot()

    try:
        instrument(snapshot, provider, FakeClock())
        read(reader)
        assert len(looked) == 1
    finally:
        provider.shutdown()
