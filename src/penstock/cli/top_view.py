"""The view of ``penstock top``: lines of text for a screen of a given size. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from penstock.cli.arguments import counted
from penstock.cli.paint import Paint
from penstock.cli.top_source import (
    KeyRow,
    LeasedKeyRow,
    Look,
    RuleRow,
    key_rows,
    local_share,
    rule_rows,
    totals,
)

NARROWEST = 40
ROWS = 20
# Lines other than rows: above, between, and the heads of both tables.
_OTHERS = 7
_NONE = "-"
# A title, and the width.
Column = tuple[str, int]
_RULE_COLUMNS = (
    ("allowed/s", 11), ("refused/s", 11), ("near/s", 9), ("% refused", 11), ("total", 14),
)  # fmt: skip
_KEY_COLUMNS = (("refused/s", 11), ("refused", 14))
_LEASE_COLUMNS = (("units held", 12), ("asked/s", 11))
# Holders of one key: the others are summed up in one line.
_HOLDERS = 8
# A text, and the same with colours.
Piece = tuple[str, str]


def screen(
    before: Look,
    now: Look,
    paint: Paint,
    width: int,
    admin: str,
    height: int | None = None,
    rows: int = ROWS,
) -> list[str]:
    """As many lines as fit; without a ``height``, ``rows`` for each table."""
    width = max(NARROWEST, width)
    rules, keys = rule_rows(before, now), key_rows(before, now)
    lines = [_title(now, paint, width, admin), *_summary(before, now, rules, paint, width)]
    if now.leases:
        lines.append(_leases(before, now, width))
    leased = _leased(now, paint, width, rows if height is None else max(0, (height - _OTHERS) // 3))
    for_rules = for_keys = rows
    if height is not None:
        left = height - bool(now.leases) - len(leased)
        for_rules, for_keys = _room(len(rules), len(keys), left)
    lines.append("")
    lines += _rules(rules[:for_rules], len(rules), paint, width)
    lines += leased
    lines.append("")
    lines += _keys(keys[:for_keys], len(keys), paint, width)
    return lines if height is None else lines[:height]


def _room(rules: int, keys: int, height: int) -> tuple[int, int]:
    """Rows for each table: half of the screen, and more if the other needs less."""
    room = max(2, height - _OTHERS)
    half = room // 2
    return max(half, room - keys), max(room - half, room - rules)


def _title(now: Look, paint: Paint, width: int, admin: str) -> str:
    about = now.about
    parts = [admin.partition("://")[2]]
    if "uptime" in about:
        parts.append(f"up {duration(float(about['uptime']))}")
    if "workers" in about:
        parts.append(counted(int(about["workers"]), "worker", ","))
    if "rules" in about:
        parts.append(counted(int(about["rules"]), "rule", ","))
    parts.append(f"penstock {about.get('version', '')}".strip())
    return f"{paint.bold('penstock top')}  {fit('  '.join(parts), width - 14).rstrip()}"


def _summary(
    before: Look, now: Look, rules: Sequence[RuleRow], paint: Paint, width: int
) -> list[str]:
    states: list[Piece] = []
    for name, state in sorted(now.components.items()):
        colour = paint.green if state == "up" else paint.red
        text = clean(state)
        states.append((f"{clean(name)} {text}", f"{clean(name)} {colour(text)}"))
    if "store" in now.about:
        states.append(_plain(f"counts in {clean(str(now.about['store']))}"))
    allowed, refused, near = totals(rules)
    part = refused / (allowed + refused) if allowed + refused else 0.0
    lost, total = f"{refused:,.0f} refused ({part:.1%})", f"{allowed + refused:,.0f}"
    passed, seconds = f"{allowed:,.0f} allowed", f"in the last {now.at - before.at:.1f} s"
    rates: list[Piece] = [
        (f"{total} a second:", f"{paint.bold(total)} a second:"),
        (passed, paint.green(passed)),
        (lost, paint.red(lost) if refused else lost),
        _plain(f"{near:,.0f} near a limit"),
        (seconds, paint.dim(seconds)),
    ]
    return [_joined(states, width), _joined(rates, width)]


def _leases(before: Look, now: Look, width: int) -> str:
    """Of all workers: two that lease one key have two leases."""
    share = local_share(before, now)
    texts = [
        counted(now.leases.get("keys", 0), "lease", ","),
        f"{now.leases.get('units', 0):,} units held",
        f"{_NONE if share is None else format(share, '.1%')} decided locally",
    ]
    return _joined([_plain(text) for text in texts], width)


def _plain(text: str) -> Piece:
    return text, text


def _joined(pieces: Sequence[Piece], width: int) -> str:
    """As many parts as fit, with two spaces between them."""
    shown, taken = [], -2
    for plain, painted in pieces:
        taken += len(plain) + 2
        if taken > width:
            break
        shown.append(painted)
    return "  ".join(shown)


def _rules(rows: Sequence[RuleRow], total: int, paint: Paint, width: int) -> list[str]:
    lines = []
    for row in rows:
        part = row.total_refused / row.total if row.total else 0.0
        rates = [_number(rate) for rate in (row.allowed, row.refused, row.near)]
        lines.append((row.rule, [*rates, f"{part:.1%}", f"{row.total:,}"]))
    return _table("RULE", _RULE_COLUMNS, lines, total, paint, width, "no requests yet")


def _keys(rows: Sequence[KeyRow], total: int, paint: Paint, width: int) -> list[str]:
    lines = []
    for row in rows:
        count = f"{row.total:,}" if not row.error else f"{row.total - row.error:,}+"
        lines.append((row.key, [_number(row.refused), count]))
    return _table("REFUSED KEY", _KEY_COLUMNS, lines, total, paint, width, "no refusals yet")


def _leased(now: Look, paint: Paint, width: int, most: int) -> list[str]:
    """Who holds how much of each key; nothing if there is no room for it, or nothing leased."""
    rows: list[tuple[str, Sequence[str]]] = []
    keys = 0
    for leased in now.leased_keys:
        more = _holders(leased)
        if rows and len(rows) + len(more) > most:
            break
        keys += 1
        rows += more
    if not rows or most < 2:
        return []
    total = len(now.leased_keys)
    head = f"LEASED KEY ({keys} of {total})" if keys < total else "LEASED KEY"
    return ["", *_table(head, _LEASE_COLUMNS, rows[:most], 0, paint, width, "")]


def _holders(leased: LeasedKeyRow) -> list[tuple[str, Sequence[str]]]:
    """A line for the key, and one for each process that holds some of it."""
    lines: list[tuple[str, Sequence[str]]] = [
        (f"{leased.key}  {leased.limit}", [f"{leased.units:,}", f"{leased.demand:,}"])
    ]
    for holder in leased.holders[:_HOLDERS]:
        lines.append((f"  {holder.instance}", [f"{holder.units:,}", f"{holder.demand:,}"]))
    others = leased.holders[_HOLDERS:]
    if others:
        units, demand = sum(each.units for each in others), sum(each.demand for each in others)
        lines.append((f"  {len(others)} others", [f"{units:,}", f"{demand:,}"]))
    return lines


def _table(
    name: str,
    columns: Sequence[Column],
    rows: Sequence[tuple[str, Sequence[str]]],
    total: int,
    paint: Paint,
    width: int,
    if_empty: str,
) -> list[str]:
    """A headline and the rows: a name each, and as many columns as fit."""
    columns = _fitting(columns, width)
    width -= sum(size for _, size in columns)
    headline = f"{name} ({len(rows)} of {total})" if len(rows) < total else name
    titles = "".join(f"{title:>{size}}" for title, size in columns)
    lines = [paint.bold(fit(headline, width) + titles)]
    for row, cells in rows:
        line = fit("  " + clean(row), width)
        for (title, size), cell in zip(columns, cells, strict=False):
            highlighted = title == "refused/s" and cell != _NONE
            line += paint.red(f"{cell:>{size}}") if highlighted else f"{cell:>{size}}"
        lines.append(line)
    return lines if rows else [*lines, paint.dim(f"  {if_empty}")]


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns that fit next to a name of some length."""
    fitting: list[Column] = []
    left = width - 20
    for name, size in columns:
        if size > left:
            break
        fitting.append((name, size))
        left -= size
    return fitting


def _number(rate: float) -> str:
    return _NONE if rate == 0 else f"{rate:,.1f}" if rate < 10 else f"{rate:,.0f}"


def duration(seconds: float) -> str:
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {whole % 60}s" if minutes else f"{whole}s"


def clean(text: str) -> str:
    """Untrusted text must not move the cursor or change colours."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def fit(text: str, width: int) -> str:
    """Cut or pad to a width in terminal cells; some characters take two."""
    out = ""
    taken = 0
    for at, char in enumerate(text):
        size = cells(char)
        if taken + size > width or (taken + size == width and at + 1 < len(text)):
            return out + "~" + " " * (width - taken - 1) if width else ""
        out += char
        taken += size
    return out + " " * (width - taken)


def cells(char: str) -> int:
    """The width of a character in cells."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
