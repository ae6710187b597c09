"""The view of ``penstock top``: lines of text for a screen of a given size. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from penstock.cli.paint import Paint
from penstock.cli.top_source import KeyRow, Look, RuleRow, key_rows, rule_rows, totals

NARROWEST = 40
ROWS = 20
# Lines other than rows: above, between, and the heads of both tables.
_OTHERS = 7
_RULE_COLUMNS = (
    ("allowed/s", 11), ("refused/s", 11), ("near/s", 9), ("% refused", 11), ("total", 14),
)  # fmt: skip
# A text, and the same with colours.
Piece = tuple[str, str]
_KEY_COLUMNS = (("refused/s", 11), ("refused", 14))


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
    for_rules, for_keys = (rows, rows) if height is None else _room(len(rules), len(keys), height)
    lines = [_title(now, paint, width, admin), *_summary(before, now, rules, paint, width), ""]
    lines += _rules(rules[:for_rules], len(rules), paint, width)
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
        parts.append(_many(int(about["workers"]), "worker"))
    if "rules" in about:
        parts.append(_many(int(about["rules"]), "rule"))
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
    columns = _fitting(_RULE_COLUMNS, width)
    lines = [_headline("RULE", total, len(rows), columns, paint, width)]
    for row in rows:
        part = row.total_refused / row.total if row.total else 0.0
        cells = {
            "allowed/s": _number(row.allowed),
            "refused/s": _number(row.refused),
            "near/s": _number(row.near),
            "% refused": f"{part:.1%}",
            "total": f"{row.total:,}",
        }
        lines.append(_line(row.rule, cells, columns, paint, width, row.refused > 0))
    if not rows:
        lines.append(paint.dim("  no requests yet"))
    return lines


def _keys(rows: Sequence[KeyRow], total: int, paint: Paint, width: int) -> list[str]:
    columns = _fitting(_KEY_COLUMNS, width)
    lines = [_headline("REFUSED KEY", total, len(rows), columns, paint, width)]
    for row in rows:
        count = f"{row.total:,}" if not row.error else f"{row.total - row.error:,}+"
        cells = {"refused/s": _number(row.refused), "refused": count}
        lines.append(_line(row.key, cells, columns, paint, width, row.refused > 0))
    if not rows:
        lines.append(paint.dim("  no refusals yet"))
    return lines


def _fitting(columns: Sequence[tuple[str, int]], width: int) -> list[tuple[str, int]]:
    """The columns that fit, next to a name of some length."""
    kept: list[tuple[str, int]] = []
    left = width - 20
    for name, size in columns:
        if size > left:
            break
        kept.append((name, size))
        left -= size
    return kept


def _headline(
    name: str,
    total: int,
    shown: int,
    columns: Sequence[tuple[str, int]],
    paint: Paint,
    width: int,
) -> str:
    words = f"{name} ({shown} of {total})" if shown < total else name
    head = fit(words, width - sum(size for _, size in columns))
    return paint.bold(head + "".join(f"{title:>{size}}" for title, size in columns))


def _line(
    name: str,
    cells: dict[str, str],
    columns: Sequence[tuple[str, int]],
    paint: Paint,
    width: int,
    refusing: bool,
) -> str:
    out = fit("  " + clean(name), width - sum(size for _, size in columns))
    for title, size in columns:
        cell = f"{cells[title]:>{size}}"
        out += paint.red(cell) if title == "refused/s" and refusing else cell
    return out


def _number(rate: float) -> str:
    return "-" if rate == 0 else f"{rate:,.1f}" if rate < 10 else f"{rate:,.0f}"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


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
