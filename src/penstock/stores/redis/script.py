"""The Lua script that decides in Redis: its text, and what it is told about a limit.

The script is put together from the twins beside the Python algorithms. `policy` makes
from a `Limit` the numbers that they decide by, from the same `Algorithm` objects. A
double is exact for whole numbers below 2**53 only: the head of each ``.lua`` file says
what that means for it, and `policy` refuses what would not be exact.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

from penstock.algorithms.calendar import calendar_window
from penstock.durations import MICROSECOND, SECOND, format_duration
from penstock.errors import UnsupportedLimit
from penstock.limit import CALENDAR_UNITS, COLD, RAMP_STEPS, Limit

# In this order: each may use what came before.
TWINS = (
    "base", "token_bucket", "fixed_window", "sliding_window", "sliding_log", "lockout", "soft",
    "batch",
)  # fmt: skip

# The only time that production knows is the server's.
_SERVER_TIME = """\
local time = redis.call('TIME')
local now_s, now_us = tonumber(time[1]), tonumber(time[2])
local LINGER, KEEP = 0, false
"""
# For tests, behind all other arguments: the time; how many milliseconds later than stated
# keys expire, as real time passes otherwise than theirs; and, if 1, that rows which have
# run out are kept, as they are in a table until their place is wanted.
_TEST_TIME = """\
local now_s, now_us = tonumber(ARGV[#ARGV - 3]), tonumber(ARGV[#ARGV - 2])
local LINGER, KEEP = tonumber(ARGV[#ARGV - 1]), ARGV[#ARGV] == '1'
"""

EXACT = 2**53  # below: every whole number is a double
EXACT_BY_8 = 2**56  # below: every multiple of 8 is, thus every whole microsecond in ns
_WEIGHT_BITS = 52
MOST_COST = EXACT  # above every amount that a row can hold: a larger cost acts the same

Rule = dict[str, Any]  # what a twin in Lua is told


class Policy:
    """What the script must know about a limit; written once, sent with many calls."""

    __slots__ = ("limit", "rule", "text")

    def __init__(self, limit: Limit, rule: Rule) -> None:
        self.limit = limit
        self.rule = rule
        self.text = json.dumps(rule, separators=(",", ":"))


def script(test_clock: bool = False) -> str:
    """The whole script; with ``test_clock`` it takes the time from its last arguments."""
    folder = resources.files("penstock.algorithms")
    parts = [_TEST_TIME if test_clock else _SERVER_TIME]
    for name in TWINS:
        text = folder.joinpath(f"{name}.lua").read_text("utf-8")
        # A twin in a function of its own costs nothing where its rule is not asked for.
        parts.append(
            text if name in ("base", "batch") else f"loaders.{name} = function()\n{text}end\n"
        )
    return "\n".join(parts)


def policy(limit: Limit, now: int, started: int = 0) -> Policy:
    """What the script must know about ``limit``, made at ``now`` by the client's clock.

    Both times are in nanoseconds since 1970. ``started`` is when a limit with a warm-up
    came into force. A policy with calendar windows covers the one around ``now``, the one
    before and the one after; then the script answers ``refresh``.
    """
    made = _RULES[limit.algorithm](limit, now, started)
    if limit.soft is not None:
        most = made["most"]
        made = {
            "rule": "soft",
            "overrun": limit.soft.overrun,
            "grace": _duration(limit, "its grace time", limit.soft.grace_ns, 2),
            "inner_most": most,
            "most": most + limit.soft.overrun,
            "inner": made,
        }
    if limit.lockout_ns:
        length = _duration(limit, "its lockout", limit.lockout_ns, 2)
        made = {"rule": "lockout", "length": length, "most": made["most"], "inner": made}
    return Policy(limit, made)


# The rules ------------------------------------------------------------------------


def _bucket(limit: Limit, now: int, started: int) -> Rule:
    overrun = limit.soft.overrun if limit.soft is not None else 0
    # As far as TAT can be ahead, in units; see TokenBucket.ceiling.
    weight = COLD if limit.warm_up_ns else 1
    units = 2 * weight * (limit.burst + limit.debt + overrun)
    interval = limit.interval_ns
    if units * interval >= EXACT:
        interval = _by_8(interval)
    what = f"a bucket of {limit.burst} that takes {format_duration(limit.burst * interval)}"
    if (units + 1) * interval >= EXACT_BY_8:
        raise _unsupported(limit, f"{what} to fill is too large")
    ramp_step = -(-limit.warm_up_ns // RAMP_STEPS)
    if ramp_step and 2 * max(units * interval, ramp_step * RAMP_STEPS) >= EXACT:
        raise _unsupported(limit, "a warm_up may take 52 days, and such a bucket 8 to fill")
    return {
        "rule": "token_bucket",
        "interval": interval,
        "capacity": limit.burst * interval,
        "debt": limit.debt,
        "ceiling": units * interval,
        "paced": limit.algorithm == "leaky_bucket",
        "ramp_step": ramp_step,
        "ramp_start": started // MICROSECOND,
        "most": limit.burst + limit.debt,
    }


def _fixed_window(limit: Limit, now: int, started: int) -> Rule:
    made: Rule = {"rule": "fixed_window", "amount": limit.amount, "most": limit.amount}
    if limit.align == "first_hit":
        return made | {"period": _duration(limit, "its period", limit.period_ns, 2)}
    if limit.tz is not None:
        return made | {"calendar": _calendar(limit.period_ns, limit.tz, now)}
    if limit.period_ns % MICROSECOND:
        raise _unsupported(
            limit, "windows aligned to the epoch need a period of whole microseconds"
        )
    return made | {"epoch": _duration(limit, "its period", limit.period_ns, 2) // MICROSECOND}


def _calendar(period: int, tz: str, now: int) -> list[int]:
    """The five bounds of four windows, from the start of the one before ``now`` on."""
    unit, zone = CALENDAR_UNITS[period], ZoneInfo(tz)
    start, end, after = calendar_window(now, unit, zone)
    before = calendar_window(start - 1, unit, zone)[0]
    last = calendar_window(end, unit, zone)[2]
    return [moment // MICROSECOND for moment in (before, start, end, after, last)]


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
    return {
        "rule": "sliding_window",
        "amount": limit.amount,
        "cells": limit.cells,
        "most_used": most_used,
        "shift": shift,
        "ticks": ticks,
        "most": limit.amount,
    }


def _sliding_log(limit: Limit, now: int, started: int) -> Rule:
    overrun = limit.soft.overrun if limit.soft is not None else 0
    return {
        "rule": "sliding_log",
        "amount": limit.amount,
        "period": _duration(limit, "its period", limit.period_ns, 2),
        "count_rejected": limit.count_rejected,
        "slots": limit.amount + overrun + 1,
        "most_used": 4 * (limit.amount + overrun),
        "most": limit.amount,
    }


_RULES = {
    "token_bucket": _bucket,
    "leaky_bucket": _bucket,
    "fixed_window": _fixed_window,
    "sliding_window": _sliding_window,
    "sliding_log": _sliding_log,
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
