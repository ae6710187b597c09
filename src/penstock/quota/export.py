"""Entries as lines of text: JSON or CSV, for invoices and for other systems.

Export goes on from a cursor: ``seq`` of the last entry that was exported. It counts up without
gaps, so what was exported once never changes and nothing is exported twice.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime

from penstock.quota.errors import InvalidQuota
from penstock.quota.views import Entry

FORMATS = ("jsonl", "csv")
COLUMNS = (
    "seq", "at", "account", "meter", "kind", "amount", "held", "source", "period", "who", "note",
)  # fmt: skip


def check_format(format: object) -> str:
    if format not in FORMATS:
        raise InvalidQuota(f"the format is 'jsonl' or 'csv', not {format!r:.100}")
    return str(format)


def header(format: str) -> str:
    return ",".join(COLUMNS) + "\n" if format == "csv" else ""


def lines(entries: Iterable[Entry], format: str) -> str:
    if format == "jsonl":
        return "".join(
            json.dumps(dict(zip(COLUMNS, _values(entry), strict=True)), ensure_ascii=False) + "\n"
            for entry in entries
        )
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_values, entries))
    return text.getvalue()


def _values(entry: Entry) -> list[object]:
    return [_plain(getattr(entry, column)) for column in COLUMNS]


def _plain(value: object) -> object:
    """Times in UTC, as in RFC 3339."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value
