"""Snapshot: the values of all families at one moment, as sent between processes.

Each worker of a host counts for itself and sends its snapshot as bytes (JSON) to the process
that serves ``/metrics``, where they are summed: see `gather.py`.

The value of a histogram is a list: a count for each of `BOUNDS`, one for values above all of
them, and the sum.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from penstock.metrics.families import BOUNDS, FAMILIES, HISTOGRAM, MOST, NEWEST, SUM, Family
from penstock.metrics.top import Top, load
from penstock.metrics.top import merge as merge_tops

VERSION = 1

Labels = tuple[str, ...]
Value = int | float | list[int | float]
# The rule, and the pairs as text.
RefusedKey = tuple[str, ...]


class Snapshot:
    """``values`` by family and labels; ``refused``, the keys that were refused most."""

    __slots__ = ("at", "refused", "values")

    def __init__(self, at: int, refused: Top[RefusedKey] | None = None) -> None:
        self.at = at  # nanoseconds since 1970
        self.refused: Top[RefusedKey] = Top() if refused is None else refused
        self.values: dict[str, dict[Labels, Value]] = {}

    def set(self, name: str, labels: Labels, value: Value) -> None:
        self.values.setdefault(name, {})[labels] = value

    def add(self, name: str, labels: Labels, value: Value) -> None:
        """Add to the present value: names that are shortened may become equal."""
        values = self.values.setdefault(name, {})
        values[labels] = _added(values[labels], value) if labels in values else value

    def get(self, name: str, *labels: str) -> Value:
        """One value; 0 if there is none."""
        return self.values.get(name, {}).get(labels, 0)

    def refusals(self) -> dict[str, int]:
        """Refused decisions by rule, for an `AnomalyWatch`."""
        refusals: dict[str, int] = {}
        for (_, rule, outcome), value in self.values.get("penstock_decisions_total", {}).items():
            if outcome == "refused" and isinstance(value, int):
                refusals[rule] = refusals.get(rule, 0) + value
        return refusals

    def to_bytes(self) -> bytes:
        families = {
            name: [[labels, value] for labels, value in values.items()]
            for name, values in self.values.items()
        }
        whole = {
            "version": VERSION, "at": self.at, "families": families, "refused": self.refused.dump(),
        }  # fmt: skip
        return json.dumps(whole, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """ValueError if it is not a complete result of `to_bytes` of this version."""
        try:
            whole = json.loads(data)
            if whole["version"] != VERSION:
                raise ValueError(f"version {whole['version']!r:.20}")
            snapshot = cls(int(whole["at"]), load(whole["refused"]))
            for name, rows in whole["families"].items():
                family = FAMILIES[name]
                for labels, value in rows:
                    snapshot.set(name, _labels(family, labels), _value(family, value))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"not a snapshot of Penstock's metrics, version {VERSION}: {error!r:.200}"
            ) from None
        return snapshot


def cumulative(histogram: Value) -> list[tuple[str, float]]:
    """The buckets of a histogram: each upper bound, and how many values are at most that."""
    assert isinstance(histogram, list)
    bounds = [*[f"{bound:g}" for bound in BOUNDS], "+Inf"]
    return list(zip(bounds, accumulate(histogram[:-1]), strict=True))


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The sum of several processes; each family says how its values are merged."""
    by_age = sorted(snapshots, key=lambda each: each.at)
    out = Snapshot(by_age[-1].at if by_age else 0, merge_tops([each.refused for each in by_age]))
    for each in by_age:
        for name, values in each.values.items():
            _merge_values(out, FAMILIES[name], values)
    return out


def _merge_values(out: Snapshot, family: Family, values: dict[Labels, Value]) -> None:
    merged = out.values.setdefault(family.name, {})
    if family.merge == NEWEST and "worker" not in family.labels:
        merged.clear()  # limits that the newest snapshot lacks were removed
    for labels, value in values.items():
        before = merged.get(labels)
        if before is None or family.merge == NEWEST:
            merged[labels] = value
        elif family.merge == SUM:
            merged[labels] = _added(before, value)
        elif not isinstance(before, list) and not isinstance(value, list):
            merged[labels] = max(before, value) if family.merge == MOST else min(before, value)


def _added(a: Value, b: Value) -> Value:
    if isinstance(a, list) and isinstance(b, list):
        return [x + y for x, y in zip(a, b, strict=True)]
    if isinstance(a, list) or isinstance(b, list):
        raise ValueError("a histogram and a number cannot be added")
    return a + b


def _labels(family: Family, labels: Any) -> Labels:
    if len(labels) != len(family.labels) or not all(isinstance(each, str) for each in labels):
        raise ValueError(f"{family.name} has the labels {family.labels}, not {labels!r:.100}")
    return tuple(labels)


def _value(family: Family, value: Any) -> Value:
    if family.kind == HISTOGRAM:
        if not isinstance(value, list) or len(value) != len(BOUNDS) + 2:
            raise ValueError(f"{family.name} is not {value!r:.100}")
        return [_number(each) for each in value]
    return _number(value)


def _number(value: Any) -> int | float:
    if type(value) not in (int, float):
        raise ValueError(f"a value must be a number, not {value!r:.100}")
    number: int | float = value
    return number
