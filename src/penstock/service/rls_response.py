"""Writes Envoy's rate limit responses (envoy.service.ratelimit.v3).

In the order of the fields, without what has its default value::

    RateLimitResponse   1 overall_code  2 statuses...  3 response_headers_to_add...
    DescriptorStatus    1 code  2 current_limit  3 limit_remaining  4 duration_until_reset
    RateLimit           1 requests_per_unit  2 unit  3 name
    Duration            1 seconds

This module is compiled where possible. Compiled, it writes by index without Python's bounds
checks, into buffers whose size was computed before by the same steps.
"""

from __future__ import annotations

from penstock.clock import Clock
from penstock.decision import Decision
from penstock.limits import Limit
from penstock.numbers import epoch_window, quota
from penstock.service.envoy_constants import NS, U32, UNIT_OF_PERIOD

try:
    import cython  # needed to compile this, not to run it
except ModuleNotFoundError:
    from penstock import _no_cython as cython


class CurrentLimit:
    """A limit as responses report it: see `current_limit`. ``wire`` is the field, with its tag.

    ``window`` is the length of its windows in nanoseconds if they are aligned to 1970.
    """

    def __init__(self, amount: int, unit: int, name: str, window: int = 0) -> None:
        self.amount = amount
        self.unit = unit
        self.name = name
        self.window = window
        body = bytearray()
        for tag, number in ((8, amount), (16, unit)):
            if number:
                body.append(tag)
                body += varint_of(number)
        if name:
            text = name.encode("utf-8", "replace")
            body += b"\x1a" + varint_of(len(text)) + text
        self.wire = b"\x12" + varint_of(len(body)) + bytes(body)


# There is one for every descriptor, so its memory is reused. The garbage collector need not
# track it, as it refers to nothing but a CurrentLimit, which refers to nothing.
@cython.freelist(64)
@cython.no_gc
@cython.final
@cython.cclass
class Row:
    """A DescriptorStatus. ``reset`` is in seconds, and -1 where nothing is counted."""

    code: int
    limit: CurrentLimit | None
    remaining: int
    reset: int


def new_row(code: int, limit: CurrentLimit | None, remaining: int, reset: int) -> Row:
    row = Row.__new__(Row)
    row.code = code
    row.limit = limit
    row.remaining = remaining
    row.reset = reset
    return row


def row_of(decision: Decision, limit: CurrentLimit, code: int, clock: Clock) -> Row:
    """A decision, in the numbers of `penstock.numbers`."""
    remaining = decision.shown_remaining()
    reset = decision.shown_reset()
    if reset <= 0 and limit.window > 0:  # a window in which nothing was counted yet
        reset = limit.window - clock.now() % limit.window
    row = Row.__new__(Row)
    row.code = code
    row.limit = limit
    row.remaining = remaining if remaining < U32 else U32
    row.reset = (reset + NS - 1) // NS if reset > 0 else 0
    return row


def write_row(row: Row) -> bytes:
    """The whole response, if there is only one status."""
    size = row_size(row)
    out = bytearray(3 + varint_size(size) + size)
    out[0] = 8
    out[1] = row.code
    put_row(out, 2, row, size)
    return bytes(out)


def write_response(overall: int, rows: list[Row], headers: list[tuple[str, str]]) -> bytes:
    total = 2
    for row in rows:
        size = row_size(row)
        total += 1 + varint_size(size) + size
    out = bytearray(total)
    out[0] = 8
    out[1] = overall
    at = 2
    for row in rows:
        at = put_row(out, at, row, row_size(row))
    for name, value in headers:
        key, text = name.encode("ascii"), value.encode("ascii")
        pair = b"\x0a%b%b\x12%b%b" % (varint_of(len(key)), key, varint_of(len(text)), text)
        out += b"\x1a" + varint_of(len(pair)) + pair
    return bytes(out)


def row_size(row: Row) -> int:
    """The size of a status, without its tag and its length."""
    size = 2
    if row.limit is not None:
        size += len(row.limit.wire)
    if row.remaining > 0:
        size += 1 + varint_size(row.remaining)
    if row.reset > 0:
        size += 3 + varint_size(row.reset)
    elif row.reset == 0:
        size += 2
    return size


def put_row(out: bytearray, at: int, row: Row, size: int) -> int:
    """Write a status of that size, and return where it ends."""
    out[at] = 18
    at = put_varint(out, at + 1, size)
    out[at] = 8
    out[at + 1] = row.code
    at += 2
    if row.limit is not None:
        wire = row.limit.wire
        for index in range(len(wire)):
            out[at + index] = wire[index]
        at += len(wire)
    if row.remaining > 0:
        out[at] = 24
        at = put_varint(out, at + 1, row.remaining)
    if row.reset >= 0:
        out[at] = 34
        if row.reset == 0:
            out[at + 1] = 0
            return at + 2
        out[at + 1] = 1 + varint_size(row.reset)
        out[at + 2] = 8
        at = put_varint(out, at + 3, row.reset)
    return at


def varint_size(value: int) -> int:
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


def put_varint(out: bytearray, at: int, value: int) -> int:
    while value > 127:
        out[at] = value & 127 | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


def varint_of(value: int) -> bytes:
    out = bytearray(varint_size(value))
    put_varint(out, 0, value)
    return bytes(out)


def current_limit(limit: Limit, name: str | None) -> CurrentLimit:
    """``limit`` as responses report it: what can be taken at once, and is restored in a unit.

    If its period is not one of Envoy's units, the unit is UNKNOWN. Then an unnamed limit gets its
    text as a name.
    """
    amount, window = quota(limit)
    unit = UNIT_OF_PERIOD.get(window, 0)
    shown_name = name or ("" if unit else str(limit))
    return CurrentLimit(amount if amount < U32 else U32, unit, shown_name, epoch_window(limit))
