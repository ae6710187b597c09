"""nginx: ``limit_req`` and ``limit_conn``, for the http block.

``limit_req`` is a bucket whose first request is free: ``burst=b-1 nodelay`` is a burst of b. The
rate is kept in thousandths of a request a second, rounded down. Several are decided all or none,
as Penstock does. A key that is empty is not limited, so conditions are maps to a key or to
nothing. Maps compare texts without regard to case: what must not, is a regular expression.
"""

from __future__ import annotations

from fractions import Fraction

from penstock.errors import RulesError
from penstock.limits import Limit
from penstock.replay.exporting.escaping import (
    COOKIE_NAME,
    HEADER_NAME,
    address_of,
    comment,
    is_plain,
    pcre,
)
from penstock.replay.exporting.items import (
    Item,
    Part,
    Piece,
    merged,
)
from penstock.replay.exporting.nginx_address import address_map, variable
from penstock.replay.exporting.numbers import (
    Choices,
    Job,
    as_bucket,
    check,
    notes,
    rate,
    round_rate,
    share_note,
    together_note,
)
from penstock.replay.exporting.sources import ADDRESS, COOKIE, HEADER, HOST, METHOD, PATH

NAME, FILE = "nginx", "penstock-limits.conf"
LOAD = (
    f"Save it as {FILE} beside nginx.conf, and put this line into the http block:",
    f"    include {FILE};",
    "Then: nginx -t && nginx -s reload",
    "",
    "- Every nginx counts for itself; its workers count together.",
    "- A server or location with a limit_req or limit_conn of its own does not inherit these:",
    "  repeat the lines there.",
    "- `return` and `rewrite` answer before any limit is checked.",
    "- Behind another proxy, set real_ip_header and set_real_ip_from.",
)
CAPTURES = (
    "The maps with ~ overwrite $1, $2, ... of regular expressions in locations. Name those, as in",
    "    location ~ ^/users/(?<id>.+)$ { ... }",
)
# A state takes 128 bytes; one with a long key takes more.
_SHORT, _LONG = 128, 512
_MEGABYTE = 1 << 20
_MOST_BURST = 2_000_000  # it is kept in thousandths, as a 32-bit number
_MOST_RATE = 2_000_000


def whole(pieces: list[Piece], choices: Choices) -> list[str]:
    items = [piece.item for piece in pieces]
    lines = []
    shadows = {item.rule.shadow for item in items}
    for word, concurrency in (("req", False), ("conn", True)):
        if any(item.concurrency is concurrency for item in items):
            lines.append(f"limit_{word}_status 429;")
            if shadows == {True}:
                lines.append(f"limit_{word}_dry_run on;")
    groups = {part.group for item in items for part in item.counted if part.group is not None}
    for group in sorted(groups):
        lines += ["", *address_map(group)]
    (limits,) = merged(pieces)
    lines += ["", *limits]
    if any('"~' in line for line in lines):
        lines = [*(f"# {line}" for line in CAPTURES), "", *lines]
    return lines


def write(item: Item, job: Job) -> Piece:
    choices = job.choices
    if item.closed:
        raise RulesError("nginx has no limit of 0: write location ... { return 429; }")
    if item.rule.shadow and not all(other.rule.shadow for other in job.items):
        raise RulesError(
            "limit_req_dry_run is for all limits or none: export shadow rules on their own, by"
            " --rule"
        )
    key, lines = _key(item)
    short = all(part.source.kind in (ADDRESS, METHOD) for part in item.counted)
    size = choices.room(item) * (_SHORT if short else _LONG)
    zone = f"{item.name}:{max(1, -(-size // _MEGABYTE))}m"
    if item.concurrency:
        piece = Piece(item, item.limit)
        share_note(piece)
        lines += [f"limit_conn_zone {key} zone={zone};"]
        lines += [f"limit_conn {item.name} {item.limit.amount};"]
    else:
        bucket, piece = as_bucket(item, choices)
        # limit_req comes before limit_conn.
        together_note(piece, [other for other in job.meeting(item) if other.concurrency])
        text, kept = _rate(bucket)
        round_rate(piece, rate(bucket), Fraction(kept, 1000))
        delay = "" if bucket.algorithm == "leaky_bucket" else " nodelay"
        burst = f" burst={bucket.burst - 1}" if bucket.burst > 1 else ""
        lines += [f"limit_req_zone {key} zone={zone} rate={text};"]
        lines += [f"limit_req zone={item.name}{burst}{delay};"]
        piece.means = Limit(kept, "1000s", burst=bucket.burst, algorithm=bucket.algorithm)
    check(piece, choices)
    piece.sections = ([*notes(piece), *lines, ""],)
    return piece


def _rate(bucket: Limit) -> tuple[str, int]:
    """A rate as nginx writes it, never above the limit's; and in thousandths, as it is kept."""
    wanted = rate(bucket)
    minutes, seconds = int(wanted * 60), int(wanted)
    if not minutes:
        raise RulesError(
            f"{bucket}: nginx counts nothing slower than 1r/m; write at least 1/minute, or keep"
            " this limit in Penstock"
        )
    if bucket.burst > _MOST_BURST or wanted > _MOST_RATE:
        raise RulesError(f"{bucket}: nginx counts to {_MOST_BURST:,} only")
    if 1000 * seconds >= 1000 * minutes // 60:
        return f"{seconds}r/s", 1000 * seconds
    return f"{minutes}r/m", 1000 * minutes // 60


# Keys --------------------------------------------------------------------------------------------


def _key(item: Item) -> tuple[str, list[str]]:
    """The variable that an item counts by, and the maps that it takes."""
    lines: list[str] = []
    # The path last: of all values, it alone may have the line feed that separates them.
    parts = sorted(item.counted, key=lambda part: part.source.kind == PATH)
    key = ""
    for at, part in enumerate(parts):
        value, more = _value(item, part, at)
        lines += more
        if not key:
            key = value
            continue
        both, name = f"${item.name}_both_{at}", f"${item.name}_{at}"
        # Empty if one of the two is.
        lines += [
            f'map {key} {both} {{ "" ""; default {value}; }}',
            f'map {both} {name} {{ "" ""; default "{_braced(key)}\\n{_braced(both)}"; }}',
        ]
        key = name
    for at, part in enumerate(each for each in item.parts if not each.counted):
        name = f"${item.name}_if_{at}"
        lines += [
            f"map {_variable(part)} {name} {{",
            '    default "";',
            *(f'    {_pattern(part, other)} "";' for other in part.others),
            f"    {_pattern(part, part.value or '')} {key or 'all'};",
            "}",
        ]
        key = name
    return key, lines


def _value(item: Item, part: Part, at: int) -> tuple[str, list[str]]:
    """A variable with the value of a part; it is empty if the part does not match."""
    value = variable(part.group) if part.group is not None else _variable(part)
    if part.value is None and not part.others:
        return value, []
    name = f"${item.name}_value_{at}"
    lines = [f"map {_variable(part)} {name} {{"]
    otherwise = value if part.value is None else '""'
    lines += [f"    default {otherwise};"]
    lines += [f'    {_pattern(part, other)} "";' for other in part.others]
    if part.value is not None:
        lines += [f"    {_pattern(part, part.value)} {value};"]
    return name, [*lines, "}"]


def _braced(name: str) -> str:
    return f"${{{name[1:]}}}"


def _variable(part: Part) -> str:
    source = part.source
    if source.kind == HEADER:
        if not HEADER_NAME.fullmatch(source.name):
            raise RulesError(
                f"nginx reads no header {comment(source.name)!r}: its variables are for letters,"
                " digits and single hyphens"
            )
        return f"$http_{source.name.replace('-', '_')}"
    if source.kind == COOKIE:
        if not COOKIE_NAME.fullmatch(source.name):
            raise RulesError(
                f"nginx reads no cookie {comment(source.name)!r}: its variables are for letters,"
                " digits and _"
            )
        return f"$cookie_{source.name}"
    return {
        ADDRESS: "$remote_addr", METHOD: "$request_method", PATH: "$uri", HOST: "$http_host",
    }[source.kind]  # fmt: skip


def _pattern(part: Part, value: str) -> str:
    """A value or a pattern as the left side of a map."""
    kind, wildcard = part.source.kind, "*" in value
    if kind == ADDRESS:
        return f'"{address_of(value)}"'
    # nginx takes methods in upper case only; in a map, words such as include have a meaning.
    if kind == METHOD and value.isupper() and len(value) <= 40 and is_plain(value):
        return f'"{value}"'
    return f'"~{pcre(value, wildcard=wildcard)}"'
