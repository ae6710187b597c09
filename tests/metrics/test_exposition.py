"""What Prometheus reads, read by its own parsers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from penstock import Gate
from penstock.metrics import AnomalyWatch, Gathered, Recorder, Snapshot, Webhook, merge
from penstock.metrics.families import BOUNDS, FAMILIES
from penstock.metrics.prometheus import Collector, exposition

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
DOCS = Path(__file__).parents[2] / "docs/reference/metrics.md"

NASTY = ['"', "\\", "\n", "a\nb\\n", "{}", "é", "\ud800", "\x00", " ", "\u2028", "x" * 5000, "=,"]


def recorded() -> Recorder:
    gate = Gate.from_rules({
        "domain": "api",
        "descriptors": [
            {"key": "user", "limits": "2/hour"},
            {"key": "all", "detailed_metric": True, "limits": "1/hour"},
        ],
    })  # fmt: skip
    recorder = Recorder()
    recorder.follow(gate)
    for at in range(5):
        recorder.decided("api", gate.check({"user": "42"}), 0.00002 * 10**at)
    for value in NASTY:
        recorder.decided("api", gate.check({"all": value}), 0.01)
    return recorder


def parsed(snapshot: Snapshot, accept: str) -> dict[tuple[str, frozenset[Any]], float]:
    body, content_type = exposition(snapshot, accept)
    is_open = content_type.startswith("application/openmetrics-text")
    assert is_open == (accept == OPENMETRICS)
    parse = parse_openmetrics if is_open else parse_text
    samples = [sample for family in parse(body.decode()) for sample in family.samples]
    values = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(values) == len(samples), "one name and one set of labels: one sample"
    return values


def key(name: str, **labels: str) -> tuple[str, frozenset[Any]]:
    return name, frozenset(labels.items())


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_every_value_is_read_back(accept: str) -> None:
    snapshot = recorded().snapshot()
    samples = parsed(snapshot, accept)
    for name, values in snapshot.values.items():
        for labels, value in values.items():
            named = dict(zip(FAMILIES[name].labels, labels, strict=True))
            if isinstance(value, list):
                *counts, total = value
                assert samples[key(f"{name}_count", **named)] == sum(counts)
                assert samples[key(f"{name}_sum", **named)] == pytest.approx(total)
            else:
                assert samples[key(name, **named)] == value
    ours = "penstock_decisions_total"
    assert samples[key(ours, domain="api", rule="api/user", outcome="refused")] == 3


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_a_histogram_counts_upwards(accept: str) -> None:
    samples = parsed(recorded().snapshot(), accept)
    name = "penstock_decision_seconds_bucket"
    buckets = {
        float(dict(labels)["le"]): value
        for (each, labels), value in samples.items()
        if each == name
    }
    assert sorted(buckets) == [*BOUNDS, float("inf")]
    counts = [buckets[bound] for bound in sorted(buckets)]
    assert counts == sorted(counts)
    assert counts[-1] == 5 + len(NASTY)
    assert buckets[0.00001] == 0
    assert buckets[0.000025] == 1


def test_a_registry_can_have_it() -> None:
    recorder, registry = recorded(), CollectorRegistry()
    registry.register(Collector(recorder.snapshot))
    assert b'outcome="refused",rule="api/user"} 3.0' in generate_latest(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(Collector(recorder.snapshot))


def test_every_family_is_named_also_while_it_is_empty() -> None:
    body, _ = exposition(Snapshot(0))
    for name in FAMILIES:
        assert f"# TYPE {name} ".encode() in body


def test_what_is_gathered_is_exposed_as_one() -> None:
    gathered = Gathered()
    for name in ("0", "1"):
        gathered.put(name, recorded().snapshot().to_bytes())
    gathered.put("watch", merge([AnomalyWatch().snapshot(), Webhook("http://x/").snapshot()]))
    samples = parsed(gathered.snapshot(), "")
    ours = "penstock_decisions_total"
    assert samples[key(ours, domain="api", rule="api/user", outcome="refused")] == 6
    assert samples[key("penstock_workers")] == 2
    assert samples[key("penstock_refusals_anomalous", rule="all")] == 0
    assert samples[key("penstock_webhooks_total", outcome="sent")] == 0


def test_names_follow_the_conventions() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"penstock_[a-z_]+", name)
        assert name.endswith("_total") == (family.kind == "counter")
        assert "le" not in family.labels
        assert family.help.endswith(".")


def test_the_reference_page_has_every_family_and_no_other() -> None:
    rows = dict(re.findall(r"^\| `(penstock_\w+)` \| (\w+) \|", DOCS.read_text(), re.M))
    assert rows == {name: family.kind for name, family in FAMILIES.items()}
    for name, family in FAMILIES.items():
        row = next(line for line in DOCS.read_text().splitlines() if f"`{name}` |" in line)
        assert re.findall(r"`(\w+)`", row.split("|")[3]) == list(family.labels), row
