"""Periods: from when to when an allowance is valid, by the calendar of an account's zone.

A month begins on the account's *anchor day*, a year on its anchor day and month. In a month that
is too short, it begins on the last day: with anchor 31, periods begin on January 31, February 28
or 29, March 31, April 30. The anchor is kept, so a short month changes nothing in the next.
Hours, days and weeks (from Monday) begin where the zone's clocks say so. A period is
``[starts, ends)``; each begins exactly where the one before it ends, also where daylight saving
makes a day of 23 or 25 hours.
"""

from __future__ import annotations

import calendar
from datetime import datetime
from typing import NamedTuple

from penstock.algorithms.calendar import calendar_window, start_of_day
from penstock.quota.values import moment, zone_of

UNITS = ("hour", "day", "week", "month", "year")
# For comparing allowances of different units only.
LENGTHS = {"hour": 1, "day": 24, "week": 168, "month": 730, "year": 8760}


class Anchor(NamedTuple):
    """Where an account's periods begin."""

    tz: str
    day: int = 1
    month: int = 1


class Span(NamedTuple):
    """``[starts, ends)``, in nanoseconds since 1970."""

    starts: int
    ends: int


def period_at(now: int, unit: str, anchor: Anchor) -> Span:
    """The period that ``now`` lies in."""
    if unit in ("hour", "day", "week"):
        starts, ends, _ = calendar_window(now, unit, zone_of(anchor.tz))
        return Span(starts, ends)
    months = 12 if unit == "year" else 1
    local = moment(now, anchor.tz)
    index = local.year * 12 + (anchor.month if unit == "year" else local.month) - 1
    # Near a boundary, and where clocks are turned back over midnight, the neighbours may be it.
    while _start(index, anchor) > now:
        index -= months
    while _start(index + months, anchor) <= now:
        index += months
    return Span(_start(index, anchor), _start(index + months, anchor))


def _start(index: int, anchor: Anchor) -> int:
    """When the period of a month begins; months are counted from year 0."""
    year, month = index // 12, index % 12 + 1
    day = min(anchor.day, calendar.monthrange(year, month)[1])
    return start_of_day(datetime(year, month, day), zone_of(anchor.tz))
