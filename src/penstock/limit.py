"""Limit: how much, per what time, decided by which algorithm.

A `Limit` is a value: frozen, hashable, equal to another of the same meaning,
and its ``str()`` reads back as itself. It is checked once, when it is made, so
that nothing behind it has to doubt it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from penstock import durations, limit_text
from penstock.durations import Duration, format_duration, format_period, parse_duration
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
    "token_bucket": _RATE_OPTIONS | {"debt"},
    "leaky_bucket": _RATE_OPTIONS,
    "fixed_window": _WINDOW_OPTIONS | {"align", "tz"},
    "sliding_window": _WINDOW_OPTIONS | {"cells", "rounding"},
    "sliding_log": _WINDOW_OPTIONS | {"count_rejected"},
}
# How a sliding window's estimate becomes whole units; the first is the default.
ROUNDINGS = ("down", "up")
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


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Limit:
    """``amount`` units per ``per``: ``Limit(100, "minute")`` or ``Limit.parse("100/minute")``.

    Options, each only with the algorithms that know it:

    - ``burst``: how much may come at once (token and leaky bucket; default ``amount``)
    - ``debt``: units that one hit may borrow beyond what is there (token bucket)
    - ``align``, ``tz``: where a fixed window starts: ``"epoch"`` (default),
      ``"first_hit"``, or ``"calendar"`` in a named time zone
    - ``cells``: how finely a sliding window is counted
    - ``rounding``: whether its estimate is rounded ``"down"`` (default) or ``"up"``
    - ``count_rejected``: a sliding log that remembers refused hits, too
    - ``lockout``: after a refusal, refuse for so long
    - ``soft``: ``(overrun, grace)``, or ``"20 for 10m"``, or ``"20% for 10m"``
    - ``warm_up``: ramp from a third of the rate to all of it in so long (buckets)
    - ``on_failure``: while a shared store cannot be asked: ``"open"`` (allow), ``"closed"``
      (refuse) or ``"local"`` (decide in this process); by default what the store says
    - ``share``: with ``"local"``, the part of the limit that is this process's, from 0 to 1
    """

    amount: int
    period_ns: int
    burst: int
    algorithm: str
    debt: int
    align: str | None
    tz: str | None
    cells: int
    rounding: str | None
    count_rejected: bool
    lockout_ns: int
    soft: Soft | None
    warm_up_ns: int
    on_failure: str | None
    share: float | None
    _hash: int = field(compare=False)  # worked out once: every decision looks a limit up

    def __init__(
        self,
        amount: int,
        per: Duration,
        *,
        burst: int | None = None,
        algorithm: str = "token_bucket",
        debt: int | None = None,
        align: str | None = None,
        tz: str | None = None,
        cells: int | None = None,
        rounding: str | None = None,
        count_rejected: bool | None = None,
        lockout: Duration | None = None,
        soft: str | tuple[int, Duration] | Soft | None = None,
        warm_up: Duration | None = None,
        on_failure: str | None = None,
        share: float | None = None,
    ) -> None:
        given = {
            "burst": burst, "debt": debt, "align": align, "tz": tz, "cells": cells,
            "rounding": rounding, "count_rejected": count_rejected, "lockout": lockout,
            "soft": soft, "warm_up": warm_up, "on_failure": on_failure, "share": share,
        }  # fmt: skip
        _check_options(algorithm, {name for name, value in given.items() if value is not None})
        units = _whole(amount, "amount", 1)
        period = parse_duration(per, "per")
        values: dict[str, object] = {
            "amount": units,
            "period_ns": period,
            "burst": units if burst is None else _whole(burst, "burst", 1),
            "algorithm": algorithm,
            "debt": 0 if debt is None else _whole(debt, "debt", 1),
            "align": _alignment(algorithm, align, tz, period),
            "tz": _zone(tz, align),
            "cells": _cells(algorithm, cells, period),
            "rounding": _rounding(algorithm, rounding),
            "count_rejected": _flag(count_rejected, "count_rejected"),
            "lockout_ns": 0 if lockout is None else parse_duration(lockout, "lockout"),
            "soft": None if soft is None else _parse_soft(soft, units),
            "warm_up_ns": 0 if warm_up is None else parse_duration(warm_up, "warm_up"),
            "on_failure": None if on_failure is None else check_policy(on_failure),
            "share": None if share is None else check_share(share),
        }
        values["_hash"] = hash(tuple(values.values()))
        for name, value in values.items():
            object.__setattr__(self, name, value)
        _check_together(self)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Pickled as text: hashes of strings differ between processes."""
        return Limit.parse, (str(self),)

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read a limit from one line, such as ``"1000/hour burst 2000 lockout 15m"``."""
        amount, per, options = limit_text.read(text, ALGORITHMS)
        try:
            return cls(amount, per, **options)
        except LimitError as error:
            raise LimitError(f"{text!r}: {error}") from None

    def changed(self, **changes: Any) -> Limit:
        """A limit like this one, but for some arguments; None takes an option away."""
        own: dict[str, Any] = {
            "amount": self.amount,
            "per": f"{self.period_ns}ns",
            "algorithm": self.algorithm,
            "burst": self.burst if "burst" in ALGORITHMS[self.algorithm] else None,
            "debt": self.debt or None,
            "align": self.align,
            "tz": self.tz,
            "cells": self.cells or None,
            "rounding": self.rounding,
            "count_rejected": self.count_rejected or None,
            "lockout": f"{self.lockout_ns}ns" if self.lockout_ns else None,
            "soft": self.soft,
            "warm_up": f"{self.warm_up_ns}ns" if self.warm_up_ns else None,
            "on_failure": self.on_failure,
            "share": self.share,
        }
        return Limit(**{**own, **changes})

    @property
    def interval_ns(self) -> int:
        """Time that one unit takes to come back, rounded up to a whole nanosecond."""
        return -(-self.period_ns // self.amount)

    def __str__(self) -> str:
        words = [self.counted_as]
        if self.on_failure is not None:
            words.append(f"on_failure {self.on_failure}")
        if self.share is not None:
            words.append(f"share {self.share!r}")
        return " ".join(words)

    @property
    def counted_as(self) -> str:
        """The limit as text, but for what happens on failure: that is not counted by."""
        words = [f"{self.amount}/{format_period(self.period_ns)}"]
        if self.algorithm != "token_bucket":
            words.append(self.algorithm)
        if self.burst != self.amount:
            words.append(f"burst {self.burst}")
        if self.debt:
            words.append(f"debt {self.debt}")
        if self.tz is not None:
            words.append(f"tz {self.tz}")
        elif self.align not in (None, "epoch"):
            words.append(f"align {self.align}")
        if self.algorithm == "sliding_window" and self.cells != DEFAULT_CELLS:
            words.append(f"cells {self.cells}")
        if self.rounding not in (None, ROUNDINGS[0]):
            words.append(f"rounding {self.rounding}")
        if self.count_rejected:
            words.append("count_rejected")
        if self.lockout_ns:
            words.append(f"lockout {format_duration(self.lockout_ns)}")
        if self.soft is not None:
            words.append(f"soft {self.soft}")
        if self.warm_up_ns:
            words.append(f"warm_up {format_duration(self.warm_up_ns)}")
        return " ".join(words)

    def __repr__(self) -> str:
        return f"Limit.parse({str(self)!r})"


def as_limit(value: Limit | str) -> Limit:
    """The limit itself, or the one that a string describes."""
    if isinstance(value, Limit):
        return value
    if isinstance(value, str):
        return Limit.parse(value)
    raise LimitError(
        f"a limit is a Limit or a string such as '100/minute', not {type(value).__name__}"
    )


def _check_options(algorithm: str, given: set[str]) -> None:
    if algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise LimitError(f"unknown algorithm {algorithm!r}: use one of {known}")
    for name in sorted(given - ALGORITHMS[algorithm]):
        homes = " or ".join(a for a, options in ALGORITHMS.items() if name in options)
        raise LimitError(f"{name} means nothing to {algorithm}: it needs {homes}")


def _check_together(limit: Limit) -> None:
    """What each option cannot see alone."""
    if limit.soft is not None and limit.debt:
        raise LimitError("soft and debt are two ways to go beyond a limit: choose one")
    if limit.soft is not None and limit.warm_up_ns:
        raise LimitError("soft lets more through than the limit, warm_up less: choose one")
    if limit.soft is not None and limit.count_rejected:
        raise LimitError("soft lets hits through that count_rejected would punish: choose one")
    overrun = limit.soft.overrun if limit.soft is not None else 0
    if limit.algorithm == "sliding_log" and limit.amount + overrun > LONGEST_LOG:
        raise LimitError(
            f"a sliding_log of {limit.amount + overrun} would keep as many timestamps a key:"
            f" at most {LONGEST_LOG}; algorithm='sliding_window' counts any amount in constant"
            " memory"
        )
    if "burst" in ALGORITHMS[limit.algorithm]:
        if limit.amount > limit.period_ns:
            raise LimitError(f"{limit.amount} in {limit.period_ns} ns is above one a nanosecond")
        weight = COLD if limit.warm_up_ns else 1
        refill = weight * (limit.burst + limit.debt + overrun) * limit.interval_ns
        if refill > LONGEST_REFILL:
            raise LimitError(
                f"a burst of {limit.burst} at {limit.amount}/{format_period(limit.period_ns)}"
                " would take more than 36 years to come back: lower burst or debt"
            )
        if limit.warm_up_ns and limit.interval_ns > durations.DAY:
            raise LimitError("warm_up needs a rate of at least one a day")


def _whole(value: object, what: str, least: int) -> int:
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


def _flag(value: object, what: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise LimitError(f"{what} must be True or False, not {value!r}")


def _alignment(algorithm: str, align: str | None, tz: str | None, period: int) -> str | None:
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


def _zone(tz: str | None, align: str | None) -> str | None:
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


def _cells(algorithm: str, cells: int | None, period: int) -> int:
    if algorithm != "sliding_window":
        return 0
    count = DEFAULT_CELLS if cells is None else _whole(cells, "cells", 1)
    if count > min(MOST_CELLS, period):
        raise LimitError(f"cells must be from 1 to {min(MOST_CELLS, period)}, not {count}")
    return count


def _rounding(algorithm: str, rounding: str | None) -> str | None:
    if algorithm != "sliding_window":
        return None
    if rounding is None:
        return ROUNDINGS[0]
    if rounding not in ROUNDINGS:
        raise LimitError(f"unknown rounding {rounding!r:.100}: use one of {', '.join(ROUNDINGS)}")
    return rounding


def _parse_soft(soft: object, amount: int) -> Soft:
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
    return Soft(_whole(soft[0], "soft overrun", 1), parse_duration(soft[1], "soft grace"))
