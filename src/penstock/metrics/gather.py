"""Gathered: the sum of the metrics of several processes, including those that ended.

The process that serves ``/metrics`` puts in the last snapshot of each worker. A worker that ends
is retired: its gauges are removed, but its counters stay. Prometheus takes a sum that decreases
for a restart from zero, and would show a burst that never happened.

Each worker bounds its families, but workers have seen different names, so the sum is bounded
again: a label set keeps its place for as long as some worker reports it.
"""

from __future__ import annotations

from penstock.metrics.counters import MOST_LABELS
from penstock.metrics.families import FAMILIES, GAUGE, MOST, OTHER, SUM, Family
from penstock.metrics.snapshot import Labels, Snapshot, Value, merge

_FEW = ("outcome", "reason")  # labels with a fixed set of values do not count against the bound


class Gathered:
    """Must be used by one thread, or under a lock of its owner."""

    def __init__(self, most_labels: int = MOST_LABELS) -> None:
        self._most_labels = most_labels
        self._live: dict[str, Snapshot] = {}
        self._gone: list[Snapshot] = []  # at most one: the sum of all that ended
        self._places: dict[str, dict[Labels, None]] = {}

    def put(self, worker: str, snapshot: bytes | Snapshot) -> None:
        """Replace the snapshot of a worker.

        ValueError if the bytes are not a snapshot (a worker was killed while it wrote them);
        the previous one then stays.
        """
        if not isinstance(snapshot, Snapshot):
            snapshot = Snapshot.from_bytes(snapshot)
        self._live[worker] = snapshot

    def retire(self, worker: str) -> None:
        """A worker ended; a new worker with its name counts from zero."""
        last = self._live.pop(worker, None)
        if last is not None:
            self._gone = [merge([*self._gone, _counted(last)])]
            self._fold(self._gone[0])

    def snapshot(self) -> Snapshot:
        """The sum of all workers."""
        out = merge([*self._gone, *self._live.values()])
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
            return  # almost always
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
    """Only the counters, of a process that ended."""
    kept = Snapshot(0, snapshot.refused)  # older than any live worker
    for name, values in snapshot.values.items():
        family = FAMILIES[name]
        if family.kind != GAUGE and family.merge in (SUM, MOST):
            kept.values[name] = dict(values)
    return kept


def _count(value: Value) -> int:
    return int(sum(value[:-1]) if isinstance(value, list) else value)
