"""Limit: how much, per what time, decided by which algorithm.

A `Limit` is a value: frozen, hashable, equal to another of the same meaning,
and its ``str()`` reads back as itself. It is checked once, when it is made, so
that nothing behind it has to doubt it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Never

from penstock import durations, limit_text
from penstock.durations import Duration, format_duration, format_period, parse_duration
from penstock.errors import LimitError
from penstock.limit_options import (
    ALGORITHMS,
    COLD,
    DEFAULT_CELLS,
    LONGEST_LOG,
    LONGEST_REFILL,
    MOST_UNITS,
    ROUNDINGS,
    Soft,
    alignment_of,
    check_closed,
    check_options,
    check_policy,
    check_share,
    flag,
    number_of_cells,
    parse_soft,
    rounding_of,
    time_zone,
    units_of,
    whole_number,
)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Limit:
    """``amount`` units per ``per``: ``Limit(100, "minute")`` or ``Limit.parse("100/minute")``.

    An amount of 0 closes: every hit is refused, and no waiting helps.

    Options, each only with the algorithms that know it:

    - ``burst``: how much may come at once (token and leaky bucket; default ``amount``)
    - ``initial``: units that a key begins with, from 0 (token bucket; default ``burst``)
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
    initial: int | None
    on_failure: str | None
    share: float | None
    _hash: int = field(compare=False)  # worked out once: every decision looks a limit up

    def __init__(
        self,
        amount: int,
        per: Duration | None = None,
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
        initial: int | None = None,
        on_failure: str | None = None,
        share: float | None = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            raise TypeError(
                f"Limit does not take {name}=: write Limit({amount!r:.20}, '30s'), an amount and a"
                " time, and options such as burst= and algorithm="
            )
        given = {
            "burst": burst, "debt": debt, "align": align, "tz": tz, "cells": cells,
            "rounding": rounding, "count_rejected": count_rejected, "lockout": lockout,
            "soft": soft, "warm_up": warm_up, "initial": initial, "on_failure": on_failure,
            "share": share,
        }  # fmt: skip
        check_options(algorithm, {name for name, value in given.items() if value is not None})
        units = units_of(amount, per)
        if per is None:
            raise LimitError(
                f"Limit({amount}) does not say per what time: Limit({amount}, 'minute')"
            )
        period = parse_duration(per, "per")
        if units == 0:
            check_closed({name for name, value in given.items() if value is not None})
        values: dict[str, object] = {
            "amount": units,
            "period_ns": period,
            "burst": units if burst is None else whole_number(burst, "burst", 1),
            "algorithm": algorithm,
            "debt": 0 if debt is None else whole_number(debt, "debt", 1),
            "align": alignment_of(algorithm, align, tz, period),
            "tz": time_zone(tz, align),
            "cells": number_of_cells(algorithm, cells, period),
            "rounding": rounding_of(algorithm, rounding),
            "count_rejected": flag(count_rejected, "count_rejected"),
            "lockout_ns": 0 if lockout is None else parse_duration(lockout, "lockout"),
            "soft": None if soft is None else parse_soft(soft, units),
            "warm_up_ns": 0 if warm_up is None else parse_duration(warm_up, "warm_up"),
            "initial": None if initial is None else whole_number(initial, "initial", 0),
            "on_failure": None if on_failure is None else check_policy(on_failure),
            "share": None if share is None else check_share(share),
        }
        if values["initial"] == values["burst"]:
            values["initial"] = None  # full, as without it
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
        """Read a limit from one line, such as ``"1000/hour burst 2000 lockout 15m"``.

        A text of several limits is for a `Limiter`, and for `limits_of`.
        """
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
            "burst": self.burst if self.amount and "burst" in ALGORITHMS[self.algorithm] else None,
            "debt": self.debt or None,
            "align": self.align,
            "tz": self.tz,
            "cells": self.cells or None,
            "rounding": self.rounding,
            "count_rejected": self.count_rejected or None,
            "lockout": f"{self.lockout_ns}ns" if self.lockout_ns else None,
            "soft": self.soft,
            "warm_up": f"{self.warm_up_ns}ns" if self.warm_up_ns else None,
            "initial": self.initial,
            "on_failure": self.on_failure,
            "share": self.share,
        }
        return Limit(**{**own, **changes})

    @property
    def interval_ns(self) -> int:
        """Time that one unit takes to come back, rounded up to a whole nanosecond.

        Of an amount of 0 nothing ever does: then it is the period.
        """
        return -(-self.period_ns // self.amount) if self.amount else self.period_ns

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
        if self.initial is not None:
            words.append(f"initial {self.initial}")
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
    raise not_a_limit(value)


def limits_of(value: Limit | str) -> tuple[Limit, ...]:
    """The limit itself, or the one or several that a string describes.

    ``"5/minute; 100/day"`` is two; ``,`` and ``|`` separate as well. `LimitError` if one comes
    twice: it would be counted once, which is hardly what was meant.
    """
    if isinstance(value, Limit):
        return (value,)
    if not isinstance(value, str):
        raise not_a_limit(value)
    texts = limit_text.split(value)
    if len(texts) == 1:
        return (Limit.parse(value),)
    limits: dict[str, Limit] = {}
    for text in texts:
        limit = Limit.parse(text)
        if limits.setdefault(limit.counted_as, limit) is not limit:
            raise LimitError(f"{value!r} names {limit.counted_as!r} twice")
    return tuple(limits.values())


def not_a_limit(value: object) -> LimitError:
    """The error for what is neither a limit nor a text, with what to write instead."""
    if type(value) is int:
        return LimitError(
            f"{value} does not say per what time: write '{value}/minute', or"
            f" Limit({value}, 'minute')"
        )
    if isinstance(value, (list, tuple, set, frozenset)):
        return LimitError("several limits are one string here, such as '5/minute; 100/day'")
    return LimitError(
        f"a limit is a Limit or a string such as '100/minute', not {type(value).__name__}"
    )


def _check_together(limit: Limit) -> None:
    """What each option cannot see alone."""
    if limit.soft is not None and limit.debt:
        raise LimitError("soft and debt are two ways to go beyond a limit: choose one")
    if limit.soft is not None and limit.warm_up_ns:
        raise LimitError("soft lets more through than the limit, warm_up less: choose one")
    if limit.soft is not None and limit.count_rejected:
        raise LimitError("soft lets hits through that count_rejected would punish: choose one")
    if limit.initial is not None:
        _check_initial(limit)
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


def _check_initial(limit: Limit) -> None:
    assert limit.initial is not None
    if limit.initial > limit.burst:
        raise LimitError(
            f"initial is at most burst: {limit.initial} units do not fit a bucket of {limit.burst}"
        )
    if limit.lockout_ns:
        raise LimitError(
            "initial refuses hits of a key that has done nothing yet, and lockout would punish"
            " them: choose one"
        )
    if limit.soft is not None:
        raise LimitError("soft lets more through than the limit, initial less: choose one")
    if limit.warm_up_ns:
        raise LimitError("warm_up begins slowly for all keys, initial for each: choose one")


# Every limit of 0 is decided as this bucket without room, whatever its algorithm and period: no
# cost fits it, so that no row is ever written.
CLOSED = Limit(0, "second")

# What the units of quotas are counted by: see `penstock.algorithms.stock`. Nobody writes it.
STOCK = "stock"


def stock_limit(on_failure: str | None = None) -> Limit:
    """The limit whose counters hold the units of quotas. Its amount and period mean nothing."""
    limit = Limit(MOST_UNITS, "year", algorithm="fixed_window", on_failure=on_failure)
    values = {name: getattr(limit, name) for name in Limit.__slots__}
    values["algorithm"] = STOCK
    values["align"] = None
    values["_hash"] = hash(tuple([value for name, value in values.items() if name != "_hash"]))
    stock = object.__new__(Limit)
    for name, value in values.items():
        object.__setattr__(stock, name, value)
    return stock
