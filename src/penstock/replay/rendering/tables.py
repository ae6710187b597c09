"""CSV: one line for each rule and key, for spreadsheets."""

from __future__ import annotations

import csv
from typing import TextIO

from penstock.replay.behaviour import describe
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


def _text(value: str) -> str:
    """No spreadsheet takes it for a formula."""
    value = value.encode("utf-8", "replace").decode()
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
