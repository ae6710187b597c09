"""The Lua script that decides in Redis: its text, and the policies that it gets.

The script consists of the twins beside the Python algorithms. `policy` turns a `Limit` into the
numbers that they need. Lua's doubles are exact for whole numbers below 2**53 only: the head of
each ``.lua`` file says what that means for it, and `policy` refuses limits that would not be
exact.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

from penstock.algorithms.calendar import calendar_window
from penstock.durations import MICROSECOND, SECOND, format_duration
from penstock.errors import UnsupportedLimit
from penstock.limit_options import CALENDAR_UNITS, COLD, RAMP_STEPS
from penstock.limits import CLOSED, STOCK, Limit

TWINS = (
    "token_bucket", "initial_bucket", "fixed_window", "sliding_window", "sliding_log", "stock",
    "lockout", "soft", "regional_bucket",
)  # fmt: skip
FILES = ("base", *TWINS, "reserve", "request", "group", "batch")

# In production, the time is the server's.
_SERVER_TIME = """\
local time = redis.call('TIME')
local now_s, now_us = tonumber(time[1]), tonumber(time[2])
local LINGER, KEEP = 0, false
"""
# In tests, the last arguments are the time; how many milliseconds later keys expire, as real time
# differs from theirs; and 1 if expired rows are kept, as they are in a table until they are reused.
_TEST_TIME = """\
local now_s, now_us = tonumber(ARGV[#ARGV - 3]), tonumber(ARGV[#ARGV - 2])
local LINGER, KEEP = tonumber(ARGV[#ARGV - 1]), ARGV[#ARGV] == '1'
"""

EXACT = 2**53  # below: every whole number is a double
EXACT_BY_8 = 2**56  # below: every multiple of 8 is, thus every whole microsecond in ns
_WEIGHT_BITS = 52
MOST_COST = EXACT  # above every amount that a row can hold: a larger cost acts the same
# A decision that looks at so many hits blocks the server for about 1 ms: see sliding_log.lua.
MOST_HITS = 2_000


@dataclass(frozen=True, slots=True)
class Rule:
    """The numbers of a twin, in the order in which its ``read`` takes them."""

    name: str
    numbers: dict[str, int]
    inner: Rule | None = None

    def packed(self) -> bytes:
        numbers = struct.pack(f"<{len(self.numbers)}d", *self.numbers.values())
        inner = self.inner.packed() if self.inner is not None else b""
        return self.name.encode() + b"\0" + numbers + inner


class Policy:
    """What the script must know about a limit; packed once, sent with many calls.

    The answer to a ``brief`` one, a plain bucket, is a single number, from which the client
    computes the rest.
    """

    __slots__ = ("brief", "capacity", "limit", "most", "paced", "rule", "text", "unit")

    def __init__(self, limit: Limit, rule: Rule) -> None:
        self.limit = limit
        self.rule = rule
        self.text = rule.packed()
        self.brief = rule.numbers.get("brief") == 1
        while rule.inner is not None:
            rule = rule.inner
        self.unit = rule.numbers.get("interval", 1)
        self.capacity = limit.burst * self.unit
        self.most = limit.burst + limit.debt
        self.paced = limit.algorithm == "leaky_bucket"

    def needed(self, cost: int) -> int:
        """As in TokenBucket.need."""
        debt = self.limit.debt
        if debt == 0:
            return cost
        return cost - debt if cost > debt else 1


def script(test_clock: bool = False, driver: str | None = None) -> str:
    """The whole script; with ``test_clock`` it takes the time from its last arguments.

    A ``driver`` of one's own, in Lua, does something else than batches with the same rows.
    """
    folder = resources.files("penstock.algorithms")
    texts = {name: folder.joinpath(f"{name}.lua").read_text("utf-8") for name in FILES}
    parts = [_TEST_TIME if test_clock else _SERVER_TIME, texts["base"]]
    # A twin's functions are created when its rule is first used.
    parts.append("local function rule_of(name)")
    parts += [f"if name == '{name}' then\n{texts[name]}end" for name in (*TWINS, "reserve")]
    parts += ["end", texts["request"]]
    parts += [texts["group"], texts["batch"]] if driver is None else [driver]
    return "\n".join(parts)


class Script:
    """The text of the script, and its name in the server."""

    def __init__(self, text: str | None = None) -> None:
        self.text = script() if text is None else text
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def deadline(self, server_ns: int) -> int:
        """The argument that says when a call is too late, in microseconds since 1970."""
        return server_ns // 1000

    def more_arguments(self) -> tuple[Any, ...]:
        """After all others: none, except for a script that gets the time from a test."""
        return ()


def policy(limit: Limit, now: int, started: int = 0) -> Policy:
    """What the script must know about ``limit`` at ``now``, by the client's clock.

    Both times are in nanoseconds since 1970. ``started`` is when a limit with a warm-up
    came into force. A policy with calendar windows covers the one around ``now``, the one
    before and the one after; then the script answers ``refresh``.
    """
    if limit.amount == 0:
        return Policy(limit, _bucket(CLOSED, now, started))
    rule = _RULES[limit.algorithm](limit, now, started)
    if limit.soft is not None:
        grace = _duration(limit, "its grace time", limit.soft.grace_ns, 2)
        rule = Rule("soft", {"overrun": limit.soft.overrun, "grace": grace}, rule)
    if limit.lockout_ns:
        length = _duration(limit, "its lockout", limit.lockout_ns, 2)
        rule = Rule("lockout", {"length": length}, rule)
    return Policy(limit, rule)


# The rules ------------------------------------------------------------------------


def _bucket(limit: Limit, now: int, started: int) -> Rule:
    overrun = limit.soft.overrun if limit.soft is not None else 0
    # As far as TAT can be ahead, in units; see TokenBucket.ceiling.
    weight = COLD if limit.warm_up_ns else 1
    units = 2 * weight * (limit.burst + limit.debt + overrun)
    if limit.initial is not None:
        units += limit.burst  # see InitialBucket.memory
    interval = limit.interval_ns
    if units * interval + SECOND >= EXACT:  # a row counts from the second in which it is written
        interval = _by_8(interval)
    what = f"a bucket of {limit.burst} that takes {format_duration(limit.burst * interval)}"
    if (units + 1) * interval + SECOND >= EXACT_BY_8:
        raise _unsupported(limit, f"{what} to fill is too large")
    ramp_step = -(-limit.warm_up_ns // RAMP_STEPS)
    if ramp_step and 2 * max(units * interval, ramp_step * RAMP_STEPS) >= EXACT:
        raise _unsupported(limit, "a warm_up may take 52 days, and such a bucket 8 to fill")
    ceiling = units * interval
    if limit.initial is not None:
        return Rule(
            "initial_bucket",
            {
                "interval": interval,
                "burst": limit.burst,
                "debt": limit.debt,
                "ceiling": ceiling - limit.burst * interval,
                "brief": int(ceiling < EXACT),
                "missing": limit.burst - limit.initial,
            },
        )
    return Rule(
        "token_bucket",
        {
            "interval": interval,
            "burst": limit.burst,
            "debt": limit.debt,
            "ceiling": ceiling,
            "paced": int(limit.algorithm == "leaky_bucket"),
            "brief": int(not ramp_step and ceiling < EXACT),
            "ramp_step": ramp_step,
            "ramp_start": started // MICROSECOND,
        },
    )


def _fixed_window(limit: Limit, now: int, started: int) -> Rule:
    numbers = {"amount": limit.amount, "period": 0, "epoch": 0, "bounds": 0}
    if limit.tz is not None:
        numbers |= _calendar(limit.period_ns, limit.tz, now)
    elif limit.align == "first_hit":
        numbers["period"] = _duration(limit, "its period", limit.period_ns, 2)
    elif limit.period_ns % MICROSECOND:
        raise _unsupported(
            limit, "windows aligned to the epoch need a period of whole microseconds"
        )
    else:
        numbers["epoch"] = _duration(limit, "its period", limit.period_ns, 2) // MICROSECOND
    return Rule("fixed_window", numbers)


def _calendar(period: int, tz: str, now: int) -> dict[str, int]:
    """The five bounds of four windows, from the start of the one before ``now`` on."""
    unit, zone = CALENDAR_UNITS[period], ZoneInfo(tz)
    start, end, after = calendar_window(now, unit, zone)
    moments = {
        "before": calendar_window(start - 1, unit, zone)[0],
        "start": start,
        "end": end,
        "after": after,
        "last": calendar_window(end, unit, zone)[2],
    }
    bounds = {name: moment // MICROSECOND for name, moment in moments.items()}
    return {"bounds": len(bounds)} | bounds


def _sliding_window(limit: Limit, now: int, started: int) -> Rule:
    overrun = limit.soft.overrun if limit.soft is not None else 0
    most_used = 4 * (limit.amount + overrun)
    width = -(-limit.period_ns // limit.cells)
    shift = max(0, (most_used * width).bit_length() - _WEIGHT_BITS)
    if 2 * (limit.cells + 1) * width >= EXACT:
        shift = max(shift, 3)
    ticks = -(-width >> shift)
    if (limit.cells + 1) * (ticks << shift) >= EXACT_BY_8:
        raise _unsupported(limit, "its period is too long")
    return Rule(
        "sliding_window",
        {
            "amount": limit.amount,
            "cells": limit.cells,
            "most_used": most_used,
            "tick": 1 << shift,
            "ticks": ticks,
            "round_by": ticks - 1 if limit.rounding == "up" else 0,
        },
    )


def _sliding_log(limit: Limit, now: int, started: int) -> Rule:
    overrun = limit.soft.overrun if limit.soft is not None else 0
    if limit.amount + overrun > MOST_HITS:
        raise UnsupportedLimit(
            f"{limit} would keep everybody else waiting while Redis looks through the log of one"
            f" key: a sliding_log in Redis holds at most {MOST_HITS}; algorithm='sliding_window'"
            " counts any amount at the same cost"
        )
    return Rule(
        "sliding_log",
        {
            "amount": limit.amount,
            "period": _duration(limit, "its period", limit.period_ns, 2),
            "count_rejected": int(limit.count_rejected),
            "slots": limit.amount + overrun + 1,
            "most_used": 4 * (limit.amount + overrun),
        },
    )


def _stock(limit: Limit, now: int, started: int) -> Rule:
    return Rule("stock", {})


_RULES = {
    "token_bucket": _bucket,
    "leaky_bucket": _bucket,
    "fixed_window": _fixed_window,
    "sliding_window": _sliding_window,
    "sliding_log": _sliding_log,
    STOCK: _stock,
}


def _duration(limit: Limit, what: str, length: int, times: int) -> int:
    """``length``, exact in a double ``times`` over, rounded up by some ns if it is long."""
    if times * length >= EXACT:
        length = _by_8(length)
    if times * length >= EXACT_BY_8:
        longest = format_duration(EXACT_BY_8 // times // (86_400 * SECOND) * 86_400 * SECOND)
        raise _unsupported(limit, f"{what} is longer than {longest}")
    return length


def _by_8(length: int) -> int:
    return -(-length // 8) * 8


def _unsupported(limit: Limit, why: str) -> UnsupportedLimit:
    return UnsupportedLimit(
        f"{limit} cannot be decided exactly in Redis, whose scripts count in doubles: {why}"
    )
