"""What `simulate` and `recommend` share: options about logs, and the display of progress."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.integrations.deciding.identity import FORWARDED, X_FORWARDED_FOR, Trust
from penstock.replay.reading.formats import LogError
from penstock.replay.reading.logs import read_log
from penstock.replay.reading.requests import Requests

if TYPE_CHECKING:
    from penstock.replay.recommending.recommendation import Recommendation
    from penstock.replay.report import Report

# A run that is done sooner shows no progress.
_QUIET_SECONDS = 1.0
_EVERY = 0.2
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def add_log_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the log")
    group.add_argument(
        "--format",
        default="",
        metavar="FORMAT",
        help="combined, common, envoy, alb, haproxy, json, csv; a log_format of nginx, a LogFormat"
        " of Apache or a format of Envoy as text; or an nginx.conf (default: guessed)",
    )
    group.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="NAME=FIELD",
        help="what a field of JSON lines or CSV is: user=account_id, time=at, bytes=size",
    )
    group.add_argument(
        "--zone", type=float, default=0, metavar="HOURS",
        help="hours east of UTC, for times that do not say (default 0)",
    )  # fmt: skip
    group.add_argument(
        "--strict", action="store_true", help="fail at the first line that cannot be read"
    )
    group.add_argument(
        "--trusted",
        action="append",
        default=[],
        metavar="CIDR",
        help="a trusted proxy: the client is then found in X-Forwarded-For, as in middleware",
    )
    group.add_argument(
        "--forwarded", default=X_FORWARDED_FOR, choices=(X_FORWARDED_FOR, FORWARDED),
        help=f"the header that trusted proxies set (default: {X_FORWARDED_FOR})",
    )  # fmt: skip
    group.add_argument(
        "--dimension",
        action="append",
        default=[],
        metavar="NAME=SOURCE",
        help="where a key of the rules comes from: tenant=field:tenant_id, user=header:x-user",
    )
    group.add_argument(
        "--threads", type=int, default=1, help="that scan lines (default 1); deciding has its own"
    )
    group.add_argument("--quiet", action="store_true", help="show no progress")


def add_shapes(parser: argparse.ArgumentParser, rows: str) -> None:
    """How a result is printed, and into which files it is written."""
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print it as JSON")
    shape.add_argument("--csv", action="store_true", help=f"print {rows} as CSV")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as one file")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="write each plot as a file")


def write_files(found: Report | Recommendation, html: Path | None, svg: Path | None) -> str:
    """Write what was asked for; why that failed, or ""."""
    from penstock.replay.rendering import html as pages
    from penstock.replay.report import Report

    try:
        if html is not None:
            text = (
                pages.report_page(found) if isinstance(found, Report) else pages.advice_page(found)
            )
            html.write_text(text, encoding="utf-8", errors="replace")
        if svg is not None:
            pages.write_plots(found, svg)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def add_memory(parser: argparse.ArgumentParser, beyond: str) -> None:
    parser.add_argument(
        "--memory", type=_size, default=1 << 30, metavar="SIZE",
        help=f"for what is kept of the log, such as 500M (default 1G): {beyond}. The program itself"
        " takes about 40 MB more",
    )  # fmt: skip


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip(), re.I)
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"a size is written like 500M or 2G, not {text!r:.50}")
    return int(match[1]) * _UNITS[match[2].upper()]


def open_requests(arguments: argparse.Namespace, names: list[str]) -> Requests:
    fields: dict[str, str] = {}
    for text in arguments.field:
        name, equals, field = text.partition("=")
        if not (name and equals and field):
            raise LogError(f"--field is NAME=FIELD, such as user=account_id, not {text!r:.100}")
        fields[name] = field
    return read_log(
        *names,
        format=arguments.format,
        fields=fields,
        zone=arguments.zone,
        strict=arguments.strict,
        threads=arguments.threads,
        progress=progress_bar(arguments.quiet),
    )


def trust_of(arguments: argparse.Namespace) -> Trust:
    return Trust(arguments.trusted, header=arguments.forwarded)


def progress_bar(quiet: bool) -> Callable[[int, int, int], None] | None:
    """Shows lines, rate and the time left, on a terminal and after a second."""
    if quiet or not sys.stderr.isatty():
        return None
    began = time.monotonic()
    shown = began

    def show(lines: int, position: int, size: int) -> None:
        nonlocal shown
        now = time.monotonic()
        took = now - began
        if took < _QUIET_SECONDS or now - shown < _EVERY:
            return
        shown = now
        text = f"{lines:,} lines  {lines / took / 1e6:.2f} M/s"
        if size and position:
            part = min(1.0, position / size)
            bar = "█" * round(20 * part)
            text = f"{bar:<20} {part:4.0%}  {text}  {took / part - took:.0f} s left"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    return show


def clear_progress(quiet: bool) -> None:
    if not quiet and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
