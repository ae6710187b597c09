"""What a log cannot tell: sentences that stand beside every result."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.replay.deciding.settings import Settings
from penstock.replay.reading.requests import Requests
from penstock.replay.report import Report
from penstock.rules.model import RuleSet
from penstock.rules.walk import all_rules, limits_of

SECOND = 1_000_000_000


def warnings_of(report: Report, rules: RuleSet, source: Requests, refused_before: int) -> list[str]:
    """What this log cannot tell."""
    out: list[str] = []
    span = report.last - report.first
    if report.stopped:
        out.append(report.stopped)
    if report.interrupted:
        out.append("interrupted: this is about the requests that were read until then")
    if not report.requests:
        return [*out, "there was no request"]
    short = [
        str(limit.limit)
        for rule in all_rules(rules)
        for _, limits in limits_of(rule)
        for limit in limits
        if 0 < limit.limit.period_ns < 10 * SECOND
    ]
    if source.whole_seconds and short:
        out.append(
            f"the log has whole seconds only: what {short[0]} refuses within some seconds is"
            " an estimate (requests are spread evenly over each second)"
        )
    long = [
        str(limit.limit)
        for rule in all_rules(rules)
        for _, limits in limits_of(rule)
        for limit in limits
        if limit.limit.period_ns > span
    ]
    if long:
        out.append(f"the log is shorter than the period of {long[0]}")
    if span < 7 * 86400 * SECOND:
        out.append(f"the log covers {_days(span)}: a weekly peak may be missing")
    if refused_before:
        share = refused_before / report.requests
        out.append(
            f"{share:.2%} of the requests were answered 429 already: clients would have sent"
            " others without that limit"
        )
    if report.ambiguous:
        out.append(
            f"{report.ambiguous} requests have paths that servers read in several ways: they get"
            " 400 before any limit"
        )
    if source.late:
        out.append(f"{source.late} lines were far out of order, and were moved to their neighbours")
    if any(rule.concurrency for rule in all_rules(rules)) and "duration" not in source.numbers:
        out.append("the log has no durations: concurrency was not simulated")
    if report.refused:
        out.append(
            "clients that are refused behave otherwise than the log says: some retry, some leave"
        )
    return out


def unmatched_warnings(report: Report, settings: Settings) -> list[str]:
    if not report.requests or report.unmatched < report.requests:
        return []
    hint = (
        "does the log have the fields that the keys of the rules are from (--field, --dimension)?"
    )
    if settings.dimensions and settings.trust.nobody:
        hint = "headers are read from trusted proxies only: --trusted CIDR"
    return [f"no request met a rule: {hint}"]


def one_key_warnings(report: Report, fields: Sequence[str]) -> list[str]:
    """About rules that are meant to tell clients apart, and do not in this log."""
    out = []
    for rule in report.rules:
        varies = any("=" not in part for part in rule.id.split("/")[1:])
        if rule.keys == 1 and rule.asked > 100 and varies:
            out.append(
                f"{rule.id} counted all of its {rule.asked:,} requests as one key: "
                + one_key_hint(rule.id, fields)
            )
    return out


def one_key_hint(what: str, fields: Sequence[str]) -> str:
    """Why there may be one key only."""
    if "address" not in what and not what.endswith("ip"):
        return "does the log say whose request it was (--field, --dimension)?"
    if "peer" not in fields and "header:x-forwarded-for" in fields:
        return (
            "this log has no address but that in X-Forwarded-For; name the proxies that set it,"
            " such as --trusted 10.0.0.0/8"
        )
    return "is it the address of a proxy (--trusted, --format)?"


def out_of_memory(requests: int, memory: int) -> str:
    return (
        f"stopped after {requests:,} requests: their keys and texts take more than the"
        f" {memory / (1 << 20):,.0f} MB given: write --memory with more, or replay less"
    )


def _days(span: int) -> str:
    seconds = span / SECOND
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * 86400:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.1f} days"
