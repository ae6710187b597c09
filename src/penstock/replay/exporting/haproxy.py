"""HAProxy: stick tables.

A table counts by ``gpc0_rate``: two windows, of which the former counts in proportion. Its rules
are three groups: what a request is counted by; ``deny`` for all limits; and only then the counting,
so that a refused request counts nowhere. (``http_req_rate`` counts refused ones, too: a client that
goes on would never be admitted again.)
"""

from __future__ import annotations

from penstock.durations import format_duration
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
    BUCKETS,
    Item,
    Part,
    Piece,
    merged,
)
from penstock.replay.exporting.numbers import Choices, Job, check, differ, notes, share_note
from penstock.replay.exporting.sources import ADDRESS, COOKIE, HEADER, HOST, METHOD, PATH

NAME, FILE = "HAProxy", "penstock.cfg"
LOAD = (
    "Copy the backends beside yours, and the http-request lines into your frontend, before its",
    "other rules. Or load it as it is, before the file that has your frontends:",
    f"    haproxy -f {FILE} -f haproxy.cfg     with `frontend www from penstock`",
    f"Check it: haproxy -c -f {FILE} -f haproxy.cfg",
    "",
    "- Every HAProxy counts for itself, unless its tables are shared by peers.",
    "- Behind a proxy that sets the header: http-request set-src hdr(x-forwarded-for), first.",
    "- Paths are compared decoded, but // and /../ stay as they are: refuse such paths, if your",
    "  servers resolve them.",
    "- A full table forgets its oldest keys.",
)
MILLISECOND = 1_000_000
_LONGEST = 24 * 86_400_000  # milliseconds, as a signed 32-bit number
_COUNTERS = 3  # sc0 to sc2, unless HAProxy was built with more
_MOST = 2**31


def write(item: Item, job: Job) -> Piece:
    """Sections: tables, and the three groups of rules."""
    choices = job.choices
    piece = Piece(item, item.limit)
    share_note(piece)
    conditions = [text for part in item.parts for text in _conditions(part)]
    given = f" if {' '.join(conditions)}" if conditions else ""
    shadow = f"http-request set-var(txn.{item.name}_shadow) bool(true)"
    refuse = shadow if item.rule.shadow else "http-request deny deny_status 429"
    if item.closed:
        piece.sections = ([], [], [*notes(piece), f"{refuse}{given}"], [])
        return piece
    counter = _counter(item, job)
    var = f"txn.{item.name}"
    found = f"{{ var({var}) -m found }}"
    if item.concurrency:
        differ(piece, "refused requests count, too, while they are being answered")
        stored, measure = (
            "conn_cur",
            f"{{ sc_conn_cur({counter},{item.name}) gt {item.limit.amount} }}",
        )
        expire, count = 3_600_000, []
    else:
        amount, window = _window(piece, choices)
        stored = f"gpc0,gpc0_rate({window}ms)"
        measure = f"{{ sc_gpc0_rate({counter},{item.name}) ge {amount} }}"
        expire = min(2 * window, _LONGEST)
        unless = f" !{{ var({var}_shadow) -m found }}" if item.rule.shadow else ""
        count = [f"http-request sc-inc-gpc0({counter}) if {found}{unless}"]
        piece.means = Limit(amount, f"{window}ms", algorithm="sliding_window", cells=1)
    check(piece, choices)
    kind, key = _key(item)
    size = max(16, choices.room(item))
    table = f"stick-table type {kind} size {size} expire {expire}ms store {stored}"
    track = [f"http-request {line.replace('VAR', var)}{given}" for line in key]
    track.append(f"http-request track-sc{counter} var({var}) table {item.name} if {found}")
    piece.sections = (
        [*notes(piece), f"backend {item.name}", f"    {table}"],
        track,
        [*notes(piece)[:1], f"{refuse} if {found} {measure}"],
        count,
    )
    return piece


def whole(pieces: list[Piece], choices: Choices) -> list[str]:
    tables, tracks, denies, counts = merged(pieces)
    rules = ["# What requests are counted by.", *tracks, "# Limits.", *denies]
    if counts:
        rules += ["# Counted, as no limit has refused it.", *counts]
    return [*tables, "", "defaults penstock", "    mode http", *(f"    {line}" for line in rules)]


def _window(piece: Piece, choices: Choices) -> tuple[int, int]:
    """So many in so many milliseconds."""
    limit = piece.item.limit
    if limit.algorithm == "leaky_bucket":
        raise RulesError("HAProxy delays no requests: write algorithm: token_bucket")
    if limit.algorithm in BUCKETS:
        amount, width = limit.burst, -(-limit.burst * limit.period_ns // limit.amount)
    else:
        amount, width = limit.amount, limit.period_ns
    window = -(-width // MILLISECOND)
    shown = format_duration(window * MILLISECOND)
    if window > _LONGEST or amount >= _MOST:
        raise RulesError(f"{limit}: HAProxy counts windows of up to 24 days, and to {_MOST:,}")
    if limit.algorithm in BUCKETS:
        differ(
            piece,
            f"{amount} in a window of {shown} instead of a bucket: a client that has used up the"
            f" burst waits up to {shown} for its next request",
        )
    else:
        differ(piece, f"two windows of {shown} that begin with a key's first request, weighted")
    if choices.never_above and limit.algorithm not in BUCKETS:
        piece.error.append(f"half the limit, so that at most {amount} come in any {shown}")
        amount = (amount + 1) // 2
    else:
        piece.error.append(f"up to {2 * amount - 1} in some {shown}")
    return amount, window


def _counter(item: Item, job: Job) -> int:
    """The number of its sticky counter: limits that never meet can have the same."""
    number = job.number(item)
    if number >= _COUNTERS:
        raise RulesError(
            f"HAProxy follows {_COUNTERS} keys of a request: this would be one more; export fewer"
            " rules, by --rule"
        )
    return number


# What it counts by -------------------------------------------------------------------------------


def _sample(part: Part) -> str:
    source = part.source
    if source.kind == HEADER:
        if not HEADER_NAME.fullmatch(source.name):
            raise RulesError(f"{comment(source.name)!r} is no name of a header for HAProxy")
        return f"req.fhdr({source.name},1)"
    if source.kind == COOKIE:
        if not COOKIE_NAME.fullmatch(source.name):
            raise RulesError(f"{comment(source.name)!r} is no name of a cookie for HAProxy")
        return f"req.cook({source.name})"
    if source.kind == ADDRESS:
        return "src"
    return {METHOD: "method", PATH: "path,url_dec", HOST: "req.fhdr(host,1)"}[source.kind]


def _key(item: Item) -> tuple[str, list[str]]:
    """The type of the table, and the actions that set VAR to the key."""
    parts = item.counted
    if not parts:
        return "integer", ["set-var(VAR) int(1)"]
    if len(parts) == 1 and parts[0].source.kind == ADDRESS:
        return "ipv6", [f"set-var(VAR) {_masked(parts[0])}"]
    # Each value is hashed: so no text, however long or odd, can be taken for another.
    hashes = [
        f"%[{_masked(part) if part.source.kind == ADDRESS else _sample(part)},sha2(256),hex]"
        for part in parts
    ]
    if len(parts) == 1:
        return "binary len 32", [f"set-var(VAR) {_sample(parts[0])},sha2(256)"]
    return "binary len 32", [
        f"set-var-fmt(VAR) {''.join(hashes)}",
        "set-var(VAR) var(VAR),sha2(256)",
    ]


def _masked(part: Part) -> str:
    ipv4, ipv6 = part.group or (32, 128)
    return "src" if (ipv4, ipv6) == (32, 128) else f"src,ipmask({ipv4},{ipv6})"


def _conditions(part: Part) -> list[str]:
    """The conditions that a request meets a part."""
    sample = _sample(part)
    out = [f"{{ {sample} -m found }}"] if part.source.kind in (HEADER, COOKIE, HOST) else []
    if part.value is not None:
        out.append(_is(part, sample, part.value))
    return out + [f"!{_is(part, sample, other)}" for other in part.others]


def _is(part: Part, sample: str, value: str) -> str:
    if part.source.kind == ADDRESS:
        return f"{{ src {address_of(value)} }}"
    if part.source.kind == METHOD and is_plain(value):
        return f"{{ method -- {value} }}"
    if is_plain(value) and "*" not in value:
        return f"{{ {sample} -m str -- {value} }}"
    return f"{{ {sample} -m reg -- '{pcre(value, wildcard='*' in value)}' }}"
