"""Which format a log has: by its first lines, or as the user says."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.replay.reading import formats
from penstock.replay.reading.blocks import Block, Scanner
from penstock.replay.reading.formats import CSV, JSON, LogError, LogFormat
from penstock.replay.reading.named_fields import flat, named_format
from penstock.replay.reading.program import program
from penstock.replay.reading.server_formats import (
    ENVOY_DEFAULT,
    from_apache,
    from_envoy,
    from_nginx,
    in_nginx_file,
)

NAMED: Mapping[str, LogFormat] = {
    "combined": formats.COMBINED,
    "common": formats.COMMON,
    "envoy": from_envoy(ENVOY_DEFAULT, "envoy"),
    "alb": formats.ALB,
    "haproxy": formats.HAPROXY,
}
# What has one name in several forms.
_FORMS = {"haproxy": (formats.HAPROXY, formats.HAPROXY_RAW)}
# Lines of a file that are looked at.
LINES = 20


def format_of(
    lines: Sequence[bytes], given: str = "", fields: Mapping[str, str] | None = None
) -> LogFormat:
    """The format of these first lines of a log.

    ``given`` is a name, a format in the language of nginx, Apache or Envoy, or an nginx.conf, also
    with the name of its log_format: ``nginx.conf:main``. ``fields`` names those of JSON and CSV.
    """
    lines = [line for line in lines if line.strip()][:LINES]
    if given:
        return _given(given, lines, fields)
    if not lines:
        raise LogError("the log is empty")
    if lines[0].lstrip().startswith(b"{"):
        return _json(lines, fields)
    forms = [form for name, each in NAMED.items() for form in _FORMS.get(name, (each,))]
    best = max(forms, key=lambda each: _readable(each, lines))
    if _readable(best, lines) * 2 > len(lines):
        return best
    table = _csv(lines, fields)
    if table is not None and (_readable(table, lines[1:]) or len(lines) == 1):
        return table
    raise LogError(
        f"unrecognised log format: {lines[0][:120].decode('utf-8', 'replace')!r}\n"
        "  give --format: one of " + ", ".join([*NAMED, "json", "csv"]) + ", the log_format of"
        " nginx as text, an nginx.conf, Apache's LogFormat, or Envoy's format"
    )


def _given(given: str, lines: Sequence[bytes], fields: Mapping[str, str] | None) -> LogFormat:
    if given in NAMED:
        return max(_FORMS.get(given, (NAMED[given],)), key=lambda each: _readable(each, lines))
    if given in ("json", "jsonl", "ndjson"):
        return _json(lines, fields)
    if given in ("csv", "tsv"):
        table = _csv(lines, fields, b"\t" if given == "tsv" else b"")
        if table is None:
            raise LogError("the first line of CSV has the names of its columns")
        return table
    if "%" in given and ("%START_TIME" in given or "%REQ" in given):
        return from_envoy(given)
    if "$" in given:
        return from_nginx(given)
    if "%" in given:
        return from_apache(given)
    name, colon, wanted = given.rpartition(":")
    path = Path(name if colon and not Path(given).exists() else given)
    if path.is_file():
        return in_nginx_file(path, wanted if path == Path(name) and colon else "")
    raise LogError(
        f"unknown format {given!r:.100}: use one of {', '.join([*NAMED, 'json', 'csv'])}, or a"
        " format in the language of nginx, Apache or Envoy, or the name of an nginx.conf"
    )


def _json(lines: Sequence[bytes], fields: Mapping[str, str] | None) -> LogFormat:
    problem: object = "no line of it can be read"
    merged: dict[str, object] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError as error:
            problem = error
            continue
        if isinstance(record, dict):
            merged = {**flat(record), **{k: v for k, v in merged.items() if v not in (None, "")}}
    if not merged:
        raise LogError(f"these are not JSON lines: {problem}")
    return named_format(JSON, merged, fields).checked()


def _csv(
    lines: Sequence[bytes], fields: Mapping[str, str] | None, given: bytes = b""
) -> LogFormat | None:
    head = lines[0].decode("utf-8", "replace").lstrip("\ufeff").rstrip("\r\n")
    separator = given or max((b",", b"\t", b";", b"|"), key=lambda sign: head.count(sign.decode()))
    if not given and head.count(separator.decode()) < 1:
        return None
    rows = list(
        csv.reader(
            [head, *(line.decode("utf-8", "replace").rstrip("\r\n") for line in lines[1:])],
            delimiter=separator.decode(),
        )
    )
    names = rows[0]
    if len(set(names)) != len(names) or not all(names):
        return None
    samples: dict[str, object] = dict.fromkeys(names)
    for row in rows[1:]:
        for name, value in zip(names, row, strict=False):
            if samples[name] in (None, ""):
                samples[name] = value
    if len(rows) == 1:
        raise LogError("this CSV has names and nothing else")
    try:
        return named_format(CSV, samples, fields, separator=separator).checked()
    except LogError:
        # A line with commas is not yet a table.
        if given or fields or _is_table(rows):
            raise
        return None


def _is_table(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has the names of columns that all others have."""
    names = rows[0]
    plain = all(re.fullmatch(r"[A-Za-z_][\w .:@-]*", name) for name in names)
    return plain and all(len(row) == len(names) for row in rows[1:])


def _readable(log_format: LogFormat, lines: Sequence[bytes]) -> int:
    """How many of these lines a format reads."""
    scan = program(log_format, [])
    scanner = Scanner(
        scan.how, scan.head, scan.steps, [scan.interner() for _ in scan.words],
        len(scan.numbers), log_format.separator,
    )  # fmt: skip
    block = Block(len(scan.words), len(scan.numbers), max(1, len(lines)))
    scanner.scan(b"".join(line.rstrip(b"\r\n") + b"\n" for line in lines), 0, block)
    return block.n
