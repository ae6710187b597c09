"""The overview: every rule now and over the last 15 minutes, and all rules together by second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.admin.errors import RequestRejected
from penstock.metrics.history import (
    ALLOWED,
    DEGRADED,
    EPISODE,
    MINUTES,
    NEAR_LIMIT,
    REFUSED,
    SECONDS,
    SERIES,
    SHADOWED,
    History,
    Ring,
    Series,
)
from penstock.metrics.snapshot import Snapshot

NOW = 10  # seconds over which the present rate is averaged
PARTS = 30  # of the small chart of a rule
KEYS = 3  # of those refused most
SPANS = ("15m", "24h")


def overview(
    history: History,
    rules: Mapping[str, Any],
    snapshot: Snapshot,
    after: int | None,
) -> dict[str, Any]:
    """``rules`` as in ``/v1/rules``; ``after`` is the newest second that the caller knows."""
    ring = history.seconds
    newest = ring.newest
    keys = _keys(snapshot)
    # A part of the small charts is complete every 30 seconds; they are sent only then.
    length = SECONDS // PARTS
    with_sparks = after is None or after // length != newest // length
    rows = [
        _row(ring, domain["domain"], rule, keys.get(rule["id"], []), with_sparks)
        for domain in rules["domains"]
        for rule in domain["rules"]
    ]
    known = None if after is None or not newest - SECONDS < after <= newest else after
    span = SECONDS if known is None else newest - known
    return {
        "second": newest,
        "complete": known is None,
        "totals": as_json(totals(ring, span)),
        "rules": rows,
    }


def _row(
    ring: Ring, domain: str, rule: Mapping[str, Any], keys: list[list[Any]], with_spark: bool
) -> dict[str, Any]:
    name = rule["id"]
    (now,) = ring.sums(name, NOW)
    parts = ring.sums(name, SECONDS, PARTS) if any(ring.sums(name, SECONDS)[0]) else []
    whole = [sum(part[series] for part in parts) for series in range(len(SERIES))]
    row = {
        "rule": name,
        "domain": domain,
        "limits": [limit["limit"] for limit in rule["limits"]],
        "line": rule["line"],
        "mode": rule["mode"],
        "overrides": rule["overrides"],
        "rate": _asked(now) / NOW,
        "refused_rate": now[REFUSED] / NOW,
        "asked": _asked(whole),
        "refused": whole[REFUSED],
        "shadowed": whole[SHADOWED],
        "near_limit": whole[NEAR_LIMIT],
        "degraded": whole[DEGRADED],
        "since": ring.since(name, REFUSED, EPISODE) if whole[REFUSED] else None,
        "keys": keys[:KEYS],
        "more_keys": max(0, len(keys) - KEYS),
    }
    if with_spark:
        row["spark"] = [[_asked(part), part[REFUSED] + part[SHADOWED]] for part in parts]
    return row


def _asked(counts: list[int]) -> int:
    return counts[ALLOWED] + counts[NEAR_LIMIT] + counts[REFUSED] + counts[SHADOWED]


def _keys(snapshot: Snapshot) -> dict[str, list[list[Any]]]:
    """The keys that were refused most, by rule."""
    keys: dict[str, list[list[Any]]] = {}
    for each in snapshot.refused.most():
        rule, *pairs = each.key
        keys.setdefault(rule, []).append([" ".join(pairs), each.count])
    return keys


def totals(ring: Ring, span: int) -> Series:
    """All rules together. A request that several rules count is in it several times."""
    rules = ring.rules
    whole = ring.read(rules[0] if rules else "", span)
    for rule in rules[1:]:
        for name, counts in ring.read(rule, span).counts.items():
            sums = whole.counts[name]
            for at, count in enumerate(counts):
                before = sums[at]
                if count and before is not None:
                    sums[at] = before + count
    return whole


def history_of(history: History, rule: str | None, span: str) -> dict[str, Any]:
    """For ``/v1/history``."""
    if span not in SPANS:
        raise RequestRejected(400, f"span must be {' or '.join(SPANS)}, not {span!r:.50}")
    ring, slots = (history.seconds, SECONDS) if span == SPANS[0] else (history.minutes, MINUTES)
    series = totals(ring, slots) if rule is None else ring.read(rule, slots)
    return as_json(series)


def as_json(series: Series) -> dict[str, Any]:
    return {"start": series.start, "width": series.width, **series.counts}
