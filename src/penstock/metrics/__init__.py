"""Metrics: counts decisions, exposes them to Prometheus or OpenTelemetry, and watches refusals.

The core emits events and does not know of metrics. A `Recorder` counts decisions and events
(`counters.py`, `event_counters.py`, `slots.py`); when metrics are read, `collect.py` makes a
`Snapshot` of them, and `gather.py` sums the snapshots of several processes. `families.py` has
the names of all metrics. May import the core, `rules/` and `gate.py`.

`penstock.metrics.prometheus` and `penstock.metrics.otel` have optional dependencies, so they
are not imported here.
"""

from penstock.metrics.anomaly import AnomalyWatch, RefusalsJumped, RefusalsSettled
from penstock.metrics.gather import Gathered
from penstock.metrics.labels import Hashed
from penstock.metrics.recorder import Recorder
from penstock.metrics.snapshot import Snapshot, merge
from penstock.metrics.statsd import Statsd
from penstock.metrics.top import Counted, Top
from penstock.metrics.webhook import Webhook

__all__ = [
    "AnomalyWatch",
    "Counted",
    "Gathered",
    "Hashed",
    "Recorder",
    "RefusalsJumped",
    "RefusalsSettled",
    "Snapshot",
    "Statsd",
    "Top",
    "Webhook",
    "merge",
]
