"""CSV: one line for each rule or window, and for each key, for spreadsheets."""

from __future__ import annotations

import csv
from typing import TextIO

from penstock.durations import format_period
from penstock.replay.behaviour import describe
from penstock.replay.recommending.recommendation import Recommendation
from penstock.replay.report import Report


def write_csv(report: Report, out: TextIO) -> None:
    """The rules (with an empty key), each followed by the keys that it refused most."""
    table = csv.writer(out)
    table.writerow(["rule", "key", "asked", "refused", "keys", "keys_refused", "behaviour"])
    for rule in report.rules:
        table.writerow([rule.id, "", rule.asked, rule.refused, rule.keys, rule.keys_refused, ""])
        for key in rule.top:
            table.writerow(
                [rule.id, _text(key.key), key.asked, key.refused, "", "", _text(describe(key))]
            )


def write_advice_csv(advice: Recommendation, out: TextIO) -> None:
    """The windows with their limits, then the keys that are refused, then the heaviest."""
    table = csv.writer(out)
    table.writerow(
        ["window", "key", "asked", "refused", "limit", "median", "p99", "p99.9", "most", "why"]
    )
    for each in advice.windows:
        needs = [each.quantiles[name] for name in ("p50", "p99", "p99.9", "p100")]
        limit = each.choice.limit
        table.writerow([format_period(each.window), "", "", "", limit, *needs, each.choice.why])
    refused = {key.key for key in advice.refused_keys}
    heaviest = [key for key in advice.heaviest if key.key not in refused]
    for key in [*advice.refused_keys, *heaviest]:
        row = [_text(key.key), key.asked, key.refused, "", "", "", "", "", _text(describe(key))]
        table.writerow(["", *row])


def _text(value: str) -> str:
    """No spreadsheet takes it for a formula."""
    value = value.encode("utf-8", "replace").decode()
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
