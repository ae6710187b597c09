"""The exposition for Prometheus: text, or OpenMetrics if the client accepts it.

The counters are Penstock's own, because ``labels().inc()`` of prometheus-client costs more
than a decision; prometheus-client reads them through a collector and formats them.

>>> from prometheus_client import CollectorRegistry
>>> from penstock.metrics import Recorder
>>> recorder = Recorder()
>>> registry = CollectorRegistry()
>>> registry.register(Collector(recorder.snapshot))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"this needs {error.name}: pip install 'penstock[server]'", name=error.name
    ) from None

from penstock.metrics.families import COUNTER, FAMILIES, HISTOGRAM
from penstock.metrics.snapshot import Snapshot, cumulative


class Collector:
    """For ``registry.register``. ``read`` returns the current snapshot."""

    def __init__(self, read: Callable[[], Snapshot]) -> None:
        self._read = read

    def describe(self) -> Iterator[Metric]:
        """All families, empty: tells a registry their names without reading values."""
        return metrics(Snapshot(0))

    def collect(self) -> Iterator[Metric]:
        return metrics(self._read())


def metrics(snapshot: Snapshot) -> Iterator[Metric]:
    """Every family, even without values, so that every name can be found."""
    for name, family in FAMILIES.items():
        values = snapshot.values.get(name, {})
        if family.kind == HISTOGRAM:
            histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
            for labels, value in values.items():
                assert isinstance(value, list)
                histogram.add_metric(labels, cumulative(value), value[-1])
            yield histogram
            continue
        kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
        metric = kind(name, family.help, labels=family.labels)
        for labels, value in values.items():
            assert not isinstance(value, list)
            metric.add_metric(labels, value)
        yield metric


def exposition(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """The body and the content type of a response to a request with this ``Accept``."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(lambda: snapshot))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
