"""Durations as people write them, to whole nanoseconds and back."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from penstock.errors import LimitError

Duration = str | int | float | timedelta

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY
MONTH = 30 * DAY
YEAR = 365 * DAY
LONGEST = 10 * YEAR

# The first name of each line is the one that a period is printed with, the
# second the short one for a multiple of it.
_UNITS = {
    YEAR: ("year", "y", "years"),
    MONTH: ("month", "mo", "months"),
    WEEK: ("week", "w", "weeks"),
    DAY: ("day", "d", "days"),
    HOUR: ("hour", "h", "hours", "hr", "hrs"),
    MINUTE: ("minute", "m", "minutes", "min", "mins"),
    SECOND: ("second", "s", "seconds", "sec", "secs"),
    MILLISECOND: ("millisecond", "ms", "milliseconds"),
    MICROSECOND: ("microsecond", "us", "microseconds", "µs"),
    1: ("nanosecond", "ns", "nanoseconds"),
}
_MOST_DIGITS = 30
_BY_NAME = {name: size for size, names in _UNITS.items() for name in names}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)?\s*([a-zµ]+)")


def parse_duration(value: Duration, what: str) -> int:
    """Nanoseconds of ``value``: a name, ``"30s"``, ``"1h30m"``, seconds or a timedelta."""
    if isinstance(value, timedelta):
        size = Fraction((value.days * 86_400 + value.seconds) * SECOND + value.microseconds * 1_000)
    elif isinstance(value, str):
        size = _parse_text(value, what)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if value != value or value in (float("inf"), float("-inf")):
            raise LimitError(f"{what} must be a finite number of seconds, not {value!r}")
        if abs(value) > LONGEST:
            raise LimitError(f"{what} must be at most 10 years")
        # Through its decimal digits: 0.1 is meant as a tenth, not as the nearest double.
        size = Fraction(str(value)) * SECOND
    else:
        raise LimitError(
            f"{what} must be a duration such as '30s', 'minute', 60 (seconds) or a timedelta,"
            f" not {value!r}"
        )
    if size.denominator != 1:
        raise LimitError(f"{what} {value!r} is not a whole number of nanoseconds")
    if not 0 < size <= LONGEST:
        raise LimitError(f"{what} must be above zero and at most 10 years, not {value!r}")
    return int(size)


def _parse_text(text: str, what: str) -> Fraction:
    rest = text.strip().lower()
    size = Fraction(0)
    example = (
        f"{what} {text!r} is not a duration: write it like 'minute', '30s', '1h30m' or '250ms'"
    )
    if not rest:
        raise LimitError(example)
    alone = True
    while rest:
        part = _PART.match(rest)
        if part is None or part.end() == 0:
            raise LimitError(example)
        number, name = part.groups()
        if number is not None and len(number) > _MOST_DIGITS:
            raise LimitError(f"{what} has a number of {len(number)} digits, which is too large")
        if name not in _BY_NAME:
            raise LimitError(f"{what} {text!r} has an unknown unit {name!r}: {example_units()}")
        rest = rest[part.end() :].lstrip()
        if number is None and not (alone and not rest):
            raise LimitError(example)
        size += Fraction(number or 1) * _BY_NAME[name]
        alone = False
    return size


def is_unit(name: str) -> bool:
    """Whether ``name`` is a unit of time, in any of its spellings."""
    return name in _BY_NAME


def example_units() -> str:
    return "use one of " + ", ".join(names[0] for names in reversed(_UNITS.values()))


def format_period(size: int) -> str:
    """``minute`` for one of a unit, ``90s`` for several: what stands behind the slash."""
    return _UNITS[size][0] if size in _UNITS else format_duration(size)


def format_duration(size: int) -> str:
    """The shortest exact form with one unit: ``15m``, ``90s``, ``1500ms``."""
    for unit, names in _UNITS.items():
        if size % unit == 0 and unit not in (YEAR, MONTH):
            return f"{size // unit}{names[1]}"
    raise AssertionError("every whole number is a multiple of one nanosecond")
