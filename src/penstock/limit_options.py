"""The options of a limit: which algorithm takes which, and what values they may have."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from penstock import durations, limit_text
from penstock.durations import format_duration, parse_duration
from penstock.errors import LimitError

DEFAULT_CELLS = 10
MOST_CELLS = 1_000
MOST_UNITS = 10**12
LONGEST_LOG = 1_000_000
# A full bucket is `burst` intervals of time. Below 2**60 nanoseconds (36 years),
# no sum of it and the present time can overflow a 64-bit integer.
LONGEST_REFILL = 2**60
# How many times the time of a unit it costs when a warm-up begins, and in how many steps
# that comes down to once.
COLD = 3
RAMP_STEPS = 1024

# What happens while the shared store cannot be asked.
FAILURE_POLICIES = ("open", "closed", "local")

_WINDOW_OPTIONS = {"lockout", "soft", "on_failure", "share"}
_RATE_OPTIONS = _WINDOW_OPTIONS | {"burst", "warm_up"}
ALGORITHMS: dict[str, set[str]] = {
    "token_bucket": _RATE_OPTIONS | {"debt", "initial"},
    "leaky_bucket": _RATE_OPTIONS,
    "fixed_window": _WINDOW_OPTIONS | {"align", "tz"},
    "sliding_window": _WINDOW_OPTIONS | {"cells", "rounding"},
    "sliding_log": _WINDOW_OPTIONS | {"count_rejected"},
}
# How a sliding window's estimate becomes whole units; the first is the default.
ROUNDINGS = ("down", "up")
# Options that let more through than the amount.
_LETS_THROUGH = {"burst", "debt", "soft"}
ALIGNMENTS = ("epoch", "calendar", "first_hit")
CALENDAR_UNITS = {
    durations.MINUTE: "minute",
    durations.HOUR: "hour",
    durations.DAY: "day",
    durations.WEEK: "week",
    durations.MONTH: "month",
    durations.YEAR: "year",
}


@dataclass(frozen=True, slots=True)
class Soft:
    """An overrun that is let through for a while: so many units, for so long."""

    overrun: int
    grace_ns: int

    def __str__(self) -> str:
        return f"{self.overrun} for {format_duration(self.grace_ns)}"


def check_options(algorithm: str, given: set[str]) -> None:
    if algorithm not in ALGORITHMS:
        raise LimitError(limit_text.unknown_algorithm(algorithm, ALGORITHMS))
    for name in sorted(given - ALGORITHMS[algorithm]):
        homes = " or ".join(a for a, options in ALGORITHMS.items() if name in options)
        raise LimitError(f"{name} means nothing to {algorithm}: it needs {homes}")


def check_closed(given: set[str]) -> None:
    """An amount of 0 lets nothing through. Options that only say how to count are harmless."""
    for name in sorted(given & _LETS_THROUGH):
        raise LimitError(
            f"an amount of 0 refuses everything, and {name} would let something through: leave"
            f" {name} out, or give an amount of at least 1"
        )


def units_of(amount: object, per: object) -> int:
    if isinstance(amount, str):
        if per is None:
            raise LimitError(
                f"Limit takes an amount and a time: read a text by Limit.parse({amount!r})"
            )
        shown = f"Limit({amount}, {per!r})" if amount.isdigit() else "Limit(100, 'minute')"
        raise LimitError(f"the amount is a whole number, not the text {amount!r:.100}: {shown}")
    return whole_number(amount, "amount", 0)


def whole_number(value: object, what: str, least: int) -> int:
    if type(value) is not int:
        raise LimitError(f"{what} must be a whole number, not {value!r}")
    if not least <= value <= MOST_UNITS:
        shown = str(value) if abs(value) < 10**30 else "a number of more than 30 digits"
        raise LimitError(f"{what} must be from {least} to {MOST_UNITS}, not {shown}")
    return value


def check_policy(value: object) -> str:
    """A failure policy by its name, or an error that says which there are."""
    if value not in FAILURE_POLICIES:
        known = ", ".join(FAILURE_POLICIES)
        raise LimitError(f"unknown on_failure {value!r:.100}: use one of {known}")
    return str(value)


def check_share(value: object) -> float:
    """A part of a limit: above 0, at most 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise LimitError(f"share is a number above 0 and at most 1, not {value!r:.100}")
    return float(value)


def flag(value: object, what: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise LimitError(f"{what} must be True or False, not {value!r}")


def alignment_of(algorithm: str, align: str | None, tz: str | None, period: int) -> str | None:
    if algorithm != "fixed_window":
        return None
    if align is None:
        align = "epoch" if tz is None else "calendar"
    if align not in ALIGNMENTS:
        raise LimitError(f"unknown align {align!r}: use one of {', '.join(ALIGNMENTS)}")
    if tz is not None and align != "calendar":
        raise LimitError(f"tz means nothing with align={align!r}: it needs align='calendar'")
    if align == "calendar" and period not in CALENDAR_UNITS:
        names = ", ".join(CALENDAR_UNITS.values())
        raise LimitError(f"a calendar window is one {names}, not {format_duration(period)}")
    return align


def time_zone(tz: str | None, align: str | None) -> str | None:
    if tz is None:
        return "UTC" if align == "calendar" else None
    try:
        ZoneInfo(tz)
    except Exception as error:  # zoneinfo raises half a dozen kinds for a bad name
        raise LimitError(
            f"unknown time zone {tz!r}: use a name such as 'Asia/Taipei' (the names come from"
            " the system's tz database or the tzdata package)"
        ) from error
    return tz


def number_of_cells(algorithm: str, cells: int | None, period: int) -> int:
    if algorithm != "sliding_window":
        return 0
    count = DEFAULT_CELLS if cells is None else whole_number(cells, "cells", 1)
    if count > min(MOST_CELLS, period):
        raise LimitError(f"cells must be from 1 to {min(MOST_CELLS, period)}, not {count}")
    return count


def rounding_of(algorithm: str, rounding: str | None) -> str | None:
    if algorithm != "sliding_window":
        return None
    if rounding is None:
        return ROUNDINGS[0]
    if rounding not in ROUNDINGS:
        raise LimitError(f"unknown rounding {rounding!r:.100}: use one of {', '.join(ROUNDINGS)}")
    return rounding


def parse_soft(soft: object, amount: int) -> Soft:
    example = "soft is an overrun and a grace time, such as (20, '10m') or '20% for 10m'"
    if isinstance(soft, Soft):
        soft = (soft.overrun, f"{soft.grace_ns}ns")
    if isinstance(soft, str):
        overrun, word, grace = soft.partition(" for ")
        overrun = overrun.strip()
        percent = overrun.endswith("%")
        digits = overrun.removesuffix("%").strip()
        if not word or not (digits.isascii() and digits.isdigit()) or len(digits) > 30:
            raise LimitError(f"{example}, not {soft!r:.100}")
        units = max(1, amount * int(digits) // 100) if percent else int(digits)
        soft = (units, grace.strip())
    if not isinstance(soft, tuple) or len(soft) != 2:
        raise LimitError(f"{example}, not {soft!r}")
    return Soft(whole_number(soft[0], "soft overrun", 1), parse_duration(soft[1], "soft grace"))
