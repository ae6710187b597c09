"""Metrics: what was decided, counted; told to Prometheus or OpenTelemetry; and watched.

The core tells events and knows nothing of this. `penstock.metrics.prometheus` and
`penstock.metrics.otel` need what not everybody has, so they are imported by name.
"""

from penstock.metrics.anomaly import AnomalyWatch, RefusalsJumped, RefusalsSettled
from penstock.metrics.gather import Gathered
from penstock.metrics.labels import Hashed
from penstock.metrics.recorder import Recorder
from penstock.metrics.snapshot import Snapshot, merge
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
    "Top",
    "Webhook",
    "merge",
]
