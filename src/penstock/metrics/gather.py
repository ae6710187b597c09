"""Gathered: the metrics of several processes as one, also after some of them ended.

The process that answers ``/metrics`` puts in what each worker sent last. A worker that ends
is retired: what it counted stays, else a sum would go down, which Prometheus takes for
a restart from zero and shows as a burst that never was. Its gauges go with it.

Each worker keeps its families within a bound, but not every worker has met the same names.
So the sum has the bound again: a label set that got a place keeps it for as long as somebody
tells of it.
"""

from __future__ import annotations

from penstock.metrics.cells import MOST_LABELS
from penstock.metrics.families import FAMILIES, GAUGE, MOST, OTHER, SUM, Family
from penstock.metrics.snapshot import Labels, Snapshot, Value, merge

_FEW = ("outcome", "reason")  # labels whose values are known: they take no place


class Gathered:
    """Used by one thread, or under a lock of its owner."""

    def __init__(self, most_labels: int = MOST_LABELS) -> None:
        self._most_labels = most_labels
        self._live: dict[str, Snapshot] = {}
        self._gone: Snapshot | None = None
        self._places: dict[str, dict[Labels, None]] = {}

    def put(self, worker: str, snapshot: bytes | Snapshot) -> None:
        """What a worker says now, in place of what it said before.

        ValueError if the bytes are no snapshot (a worker was killed while it wrote them):
        then what it said before stays.
        """
        found = snapshot if isinstance(snapshot, Snapshot) else Snapshot.from_bytes(snapshot)
        self._live[worker] = found

    def retire(self, worker: str) -> None:
        """A worker ended; if another takes its name, that one counts from zero."""
        last = self._live.pop(worker, None)
        if last is not None:
            gone = [] if self._gone is None else [self._gone]
            self._gone = merge([*gone, _counted(last)])
            self._fold(self._gone)

    def snapshot(self) -> Snapshot:
        """All together."""
        out = merge([*([] if self._gone is None else [self._gone]), *self._live.values()])
        self._fold(out)
        return out

    def _fold(self, snapshot: Snapshot) -> None:
        for name, values in list(snapshot.values.items()):
            family = FAMILIES[name]
            if family.bounded:
                self._fold_family(snapshot, family, values)

    def _fold_family(self, snapshot: Snapshot, family: Family, values: dict[Labels, Value]) -> None:
        length = len([label for label in family.labels if label not in _FEW])
        other = (OTHER,) * length
        heads = dict.fromkeys(labels[:length] for labels in values)
        heads.pop(other, None)
        if len(heads) <= self._most_labels and family.name not in self._places:
            return  # as good as always
        places = self._places.setdefault(family.name, {})
        for head in [head for head in places if head not in heads]:
            del places[head]
        for head in heads:
            if len(places) < self._most_labels:
                places[head] = None
        folded = 0
        for labels in [labels for labels in values if labels[:length] not in places]:
            if labels[:length] == other:
                continue
            value = values.pop(labels)
            folded += _count(value)
            snapshot.add(family.name, other + labels[length:], value)
        if folded:
            snapshot.add("penstock_folded_total", (family.name,), folded)


def _counted(snapshot: Snapshot) -> Snapshot:
    """Of a process that ended, only what it counted."""
    kept = Snapshot(0, snapshot.refused)  # older than whoever lives
    for name, values in snapshot.values.items():
        family = FAMILIES[name]
        if family.kind != GAUGE and family.merge in (SUM, MOST):
            kept.values[name] = dict(values)
    return kept


def _count(value: Value) -> int:
    return int(sum(value[:-1]) if isinstance(value, list) else value)
