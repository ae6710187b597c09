"""The quota service as operators see it: metrics, and each bucket of each Envoy."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.metrics import Snapshot
from penstock.service.rlqs.messages import ALLOW_ALL, Blanket, Tokens
from penstock.service.rlqs.service import RlqsService
from penstock.service.rlqs.shares import TTL
from penstock.service.rlqs.streams import Bucket

# More than that is nothing that people read.
MOST_ROWS = 1_000


def collect(out: Snapshot, service: RlqsService) -> None:
    """Add its metrics. None of them has a label that grows with buckets or Envoys."""
    stats = service.stats
    kinds = Counter({"token_bucket": 0, "allow": 0, "deny": 0, "none": 0})
    for stream in service.streams.values():
        kinds.update([kind_of(bucket) for bucket in stream.buckets.values()])
    out.set("penstock_rlqs_streams", (), len(service.streams))
    for kind, count in kinds.items():
        out.set("penstock_rlqs_buckets", (kind,), count)
    out.set("penstock_rlqs_reports_total", (), stats.reports)
    out.set("penstock_rlqs_assignments_total", (), stats.assignments)
    out.set("penstock_rlqs_pushes_total", (), stats.pushes)
    out.set("penstock_rlqs_denials_total", (), stats.denials)
    for reason, count in (
        ("bank", stats.unanswered), ("undivided", stats.undivided), ("full", stats.ignored),
    ):  # fmt: skip
        out.set("penstock_rlqs_unanswered_total", (reason,), count)
    out.set("penstock_rlqs_abandoned_total", (), stats.abandoned)
    out.set("penstock_rlqs_bank_failures_total", (), stats.failures)
    out.set("penstock_rlqs_stalled_streams_total", (), stats.stalled)
    out.set("penstock_rlqs_degraded", (), int(service.degraded))


def rows(service: RlqsService) -> dict[str, Any]:
    """The buckets of all streams, as JSON; the busiest first."""
    now = service.now()
    buckets = [bucket for stream in service.streams.values() for bucket in stream.buckets.values()]
    buckets.sort(key=lambda bucket: -(bucket.reply.demand if bucket.reply is not None else 0))
    return {
        "degraded": service.degraded,
        "total": len(buckets),
        "buckets": [row_of(bucket, now) for bucket in buckets[:MOST_ROWS]],
    }


def row_of(bucket: Bucket, now: int) -> dict[str, Any]:
    """Rates are in requests a second, of this Envoy and of all that share the limit."""
    reply, terms = bucket.reply, bucket.rule.terms
    row: dict[str, Any] = {
        "domain": bucket.domain,
        "bucket": dict(bucket.pairs),
        "rule": bucket.rule.rule or None,
        "node": bucket.stream.node,
        "assignment": kind_of(bucket),
        "expires_in": max(0, bucket.sent_at + TTL - now) / 1000 if bucket.action else None,
        "proven": bucket.sent != 0 and bucket.proven == bucket.sent,
        "divided": None,
    }
    if reply is not None and terms is not None:
        row["divided"] = {
            "demand": round(reply.demand, 3),
            "share": reply.wanted / terms.interval,
            "rate": reply.rate / terms.interval,
            "burst": reply.burst,
            "nodes": reply.nodes,
            "total_demand": round(reply.total, 3),
            "limit_rate": terms.rate / terms.interval,
            "limit_burst": terms.burst,
            "assigned_rate": reply.rate_out / terms.interval,
            "assigned_burst": reply.burst_out,
        }
    return row


def kind_of(bucket: Bucket) -> str:
    action = bucket.action
    if isinstance(action, Tokens):
        return "token_bucket"
    if isinstance(action, Blanket):
        return "allow" if action.rule == ALLOW_ALL else "deny"
    return "none"
