"""RecentRefusals: which requests were refused lately, since when, and why.

The last refused requests of a process, each once: by its descriptors and what refused it. With the
one that was not refused for longest forgotten first, memory is bounded. For an operator who
asks why a customer is refused: see ``penstock admin who``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.clock import SECOND
from penstock.metrics.labels import LONGEST, Pair, short

Pairs = tuple[Pair, ...]
# What refused it: a rule's id, or a reason; all descriptors of the request; the refused one.
Key = tuple[str, tuple[Pairs, ...], Pairs]

MOST_REFUSALS = 1_000
# Refusals belong together if the next one comes within this time, or while the client should wait.
PAUSE = 60 * SECOND


class RecentRefusals:
    """`add` must be called by one thread at a time."""

    def __init__(self, most: int = MOST_REFUSALS) -> None:
        self._most = most
        # since, last, count, when it ends, domain, reason, limit; the oldest entry first
        self._rows: dict[Key, list[Any]] = {}

    def add(
        self,
        domain: str,
        by: str,
        descriptors: tuple[Pairs, ...],
        pairs: Pairs,
        reason: str,
        limit: object,
        wait_ns: int | None,
        now: int,
    ) -> None:
        """``by`` is the id of a rule, or "". ``wait_ns`` is None if no waiting helps."""
        key: Key = by, descriptors, pairs
        row = self._rows.pop(key, None)
        if row is None:
            if len(self._rows) >= self._most:
                del self._rows[next(iter(self._rows))]
            if any(len(value) > LONGEST for each in descriptors for _, value in each):
                key = by, tuple(map(_shortened, descriptors)), _shortened(pairs)
                row = self._rows.pop(key, None)
        wait = 0 if wait_ns is None else wait_ns
        if row is None or now > row[3] + PAUSE:
            row = [now, now, 0, now + wait, domain, reason, None]
        row[1], row[3], row[6] = now, now + wait, limit
        row[2] += 1
        self._rows[key] = row

    def of(self, key: str, value: str) -> list[dict[str, Any]]:
        """Those of requests with this pair in any descriptor, the last first; plain values."""
        pair = key, short(value) if len(value) > LONGEST else value
        rows = []
        for (by, descriptors, pairs), row in [*self._rows.items()]:
            if any(pair in each for each in descriptors):
                since, last, count, until, domain, reason, limit = row
                rows.append(
                    {
                        "domain": domain,
                        "rule": by or None,
                        "pairs": [list(each) for each in pairs],
                        "reason": reason,
                        "limit": None if limit is None else str(limit),
                        "since": since / SECOND,
                        "last": last / SECOND,
                        "until": until / SECOND,
                        "count": count,
                    }
                )
        return rows[::-1]

    def __len__(self) -> int:
        return len(self._rows)


def merge(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of several processes: one row for each descriptor and what refused it, the last first."""
    merged: dict[object, dict[str, Any]] = {}
    for row in rows:
        key = row["domain"], row["rule"], row["reason"], tuple(map(tuple, row["pairs"]))
        known = merged.get(key)
        if known is None:
            merged[key] = dict(row)
            continue
        newer = row if row["last"] > known["last"] else known
        known.update(
            limit=newer["limit"],
            since=min(known["since"], row["since"]),
            last=newer["last"],
            until=max(known["until"], row["until"]),
            count=known["count"] + row["count"],
        )
    return sorted(merged.values(), key=lambda row: -row["last"])


def _shortened(pairs: Pairs) -> Pairs:
    return tuple((key, short(value) if len(value) > LONGEST else value) for key, value in pairs)
