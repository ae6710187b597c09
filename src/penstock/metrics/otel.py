"""The metrics for OpenTelemetry: instruments that are read when it exports.

>>> from opentelemetry.sdk.metrics import MeterProvider
>>> from penstock.metrics import Recorder
>>> recorder = Recorder()
>>> instrument(recorder.snapshot, MeterProvider())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        MeterProvider,
        Observation,
        get_meter_provider,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"this needs {error.name}: pip install 'penstock[otel]'", name=error.name
    ) from None

from penstock._version import __version__
from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.metrics.families import COUNTER, FAMILIES, HISTOGRAM, Family
from penstock.metrics.snapshot import Snapshot, cumulative

# Instruments are read one after the other: for this long they see the same snapshot.
_FRESH = SECOND // 10


def instrument(
    read: Callable[[], Snapshot], provider: MeterProvider | None = None, clock: Clock = MONOTONIC
) -> None:
    """Export the snapshots of ``read`` through ``provider``, or through the global one.

    OpenTelemetry has no observable histogram, so a histogram becomes counters: cumulative
    ``..._bucket`` with the bound as ``le``, ``..._sum`` and ``..._count``.
    """
    meter = (provider or get_meter_provider()).get_meter("penstock", __version__)
    reader = _SnapshotReader(read, clock)
    for family in FAMILIES.values():
        if family.kind == HISTOGRAM:
            for suffix in ("_bucket", "_sum", "_count"):
                observe = reader.histogram(family, suffix)
                meter.create_observable_counter(
                    family.name + suffix, [observe], description=family.help
                )
        else:
            counter = family.kind == COUNTER
            create = meter.create_observable_counter if counter else meter.create_observable_gauge
            create(family.name, [reader.numbers(family)], description=family.help)


Observe = Callable[[CallbackOptions], Iterable[Observation]]


class _SnapshotReader:
    def __init__(self, read: Callable[[], Snapshot], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._last: Snapshot | None = None
        self._last_at = 0

    def _snapshot(self) -> Snapshot:
        now = self._clock.now()
        if self._last is None or not 0 <= now - self._last_at < _FRESH:
            self._last, self._last_at = self._read(), now
        return self._last

    def numbers(self, family: Family) -> Observe:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for labels, value in self._snapshot().values.get(family.name, {}).items():
                assert not isinstance(value, list)
                yield Observation(value, dict(zip(family.labels, labels, strict=True)))

        return observe

    def histogram(self, family: Family, suffix: str) -> Observe:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for labels, value in self._snapshot().values.get(family.name, {}).items():
                assert isinstance(value, list)
                attributes = dict(zip(family.labels, labels, strict=True))
                if suffix == "_sum":
                    yield Observation(value[-1], attributes)
                elif suffix == "_count":
                    yield Observation(sum(value[:-1]), attributes)
                else:
                    for bound, count in cumulative(value):
                        yield Observation(count, {**attributes, "le": bound})

        return observe
