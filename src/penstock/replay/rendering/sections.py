"""A report as sections of text and tables, for terminals with and without rich."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.replay.behaviour import describe
from penstock.replay.report import Report, RuleReport, shown_time, sparkline

_SHOWN_KEYS = 5


@dataclass(slots=True)
class Section:
    """A title, lines of text, and a table if it has ``columns``; ``>`` aligns one to the right.

    ``is_verbatim``: lines to be copied, which are not wrapped, however narrow the terminal is.
    """

    title: str = ""
    lines: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    is_verbatim: bool = False


def number(value: float) -> str:
    return f"{value:,.0f}"


def share(value: float) -> str:
    """As people say it: 0.03 %, 12.5 %, 99.92 %."""
    percent = 100 * value
    if percent == 0:
        return "0 %"
    if percent < 0.01:
        return f"{percent:.4f} %"
    return f"{percent:.2f} %" if percent < 10 or percent > 99 else f"{percent:.1f} %"


def safe(text: str, most: int = 60) -> str:
    """A text of a log for a terminal: no control, bidirectional or invisible characters."""
    shown = "".join(
        char
        if char.isprintable() and char not in _INVISIBLE and not 0xD800 <= ord(char) < 0xE000
        else char.encode("unicode_escape", "surrogatepass").decode()
        if not 0xDC80 <= ord(char) <= 0xDCFF
        else f"\\x{ord(char) - 0xDC00:02x}"
        for char in text
    )
    if len(shown) <= most:
        return shown
    half = (most - 1) // 2
    return f"{shown[:half]}…{shown[-half:]}"


_INVISIBLE = set("\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff\u00ad\u061c")


def headline(report: Report) -> str:
    if not report.requests:
        return "Nothing to replay: the log has no requests."
    if not report.refused:
        return f"Nothing refused: all {number(report.requests)} requests pass."
    strict = max((rule for rule in report.rules if not rule.shadow), key=lambda rule: rule.refused)
    return (
        f"Refuses {share(report.refused_share)} of {number(report.requests)} requests"
        f" ({number(report.refused)}), most by {strict.id}: {number(strict.keys_refused)} of"
        f" {number(strict.keys)} keys."
    )


def sections(report: Report) -> list[Section]:
    out = [Section("", [headline(report)])]
    if report.requests:
        out[0].lines.append(
            f"{shown_time(report.first)} to {shown_time(report.last)} UTC;"
            f" {number(report.unmatched)} requests met no rule"
        )
    rules = Section(
        "rules",
        columns=["rule", "limit", ">asked", ">refused", ">share", ">keys refused", "when"],
    )
    for rule in report.rules:
        name = safe(rule.id) + (" (shadow)" if rule.shadow else "")
        rules.rows.append(
            [
                name, safe("; ".join(rule.limits), 40), number(rule.asked), number(rule.refused),
                share(rule.refused_share), f"{number(rule.keys_refused)} of {number(rule.keys)}",
                sparkline(rule.timeline.refused, 24),
            ]
        )  # fmt: skip
    out.append(rules)
    for rule in report.rules:
        if rule.refused:
            out.append(_refused(rule))
    if report.change is not None:
        change = report.change
        table = Section(
            "against the older rules",
            [
                f"{number(change.newly_refused)} requests newly refused,"
                f" {number(change.newly_allowed)} newly allowed,"
                f" from {number(change.clients_affected)} clients"
            ],
        )
        if change.clients:
            table.columns = ["client", ">newly refused", ">newly allowed"]
            table.rows = [
                [safe(client), number(refused), number(allowed)]
                for client, refused, allowed in change.clients
            ]
        out.append(table)
    if report.algorithms:
        out.append(
            Section(
                "the same numbers with each algorithm",
                columns=["algorithm", ">refused", ">share", ">keys refused"],
                rows=[
                    [
                        row.algorithm, number(row.refused),
                        share(row.refused / report.requests if report.requests else 0),
                        number(row.keys_refused),
                    ]
                    for row in report.algorithms
                ],
            )
        )  # fmt: skip
    if report.malformed:
        bad = Section("lines that could not be read")
        bad.lines.append(f"{number(report.malformed)} of {number(report.lines)} lines; such as")
        bad.lines += [
            f"{name}:{line}: {safe(text, 90)}" for name, line, text in report.malformed_lines
        ]
        out.append(bad)
    if report.warnings:
        out.append(Section("what this log cannot tell", [f"- {each}" for each in report.warnings]))
    out.append(Section("read", [*report.notes]))
    return out


def _refused(rule: RuleReport) -> Section:
    lines = [
        f"worst: {shown_time(moment.time)} UTC, {number(moment.refused)} of"
        f" {number(moment.asked)} requests refused in {moment.seconds:g} s"
        for moment in rule.worst[:1]
    ]
    return Section(
        f"refused by {safe(rule.id)}",
        lines,
        ["key", ">asked", ">refused", "how it behaves"],
        [
            [safe(key.key), number(key.asked), number(key.refused), safe(describe(key), 90)]
            for key in rule.top[:_SHOWN_KEYS]
        ],
    )
