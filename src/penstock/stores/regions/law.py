"""The numbers of regions: what can be divided among sites, and who gets how much. Pure.

::

    terms     a limit: `burst` units, and `rate` units in `span` milliseconds
    floor     the part of a limit that is reserved for one region, in millionths; never lent
    lendable  what is left of rate and burst when all floors are taken off
    demand    units in `span` that a site is asked for, as an average over its reports
    excess    the demand that is above the site's floor
    share     scarce:  lendable (0.1 / n + 0.9 excess / all excess)
              else:    excess + spare / n

Units, rates and times are whole numbers, exact in the doubles of Lua. Only demands and shares are
doubles, computed in the same order in `home.lua`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.durations import MILLISECOND, SECOND
from penstock.limits import Limit

WHOLE = 1_000_000  # a floor is in millionths
# The part of a scarce rate that is divided equally.
EQUALLY = 0.1
# Numbers that differ by less than this part of the limit are left as they are.
NEAR = 200
# A message may be under way for so long beyond the lease, as a part of it and at least in ms.
SLACK_PART, LEAST_SLACK = 10, 250
SHORTEST_LEASE, LONGEST_LEASE = SECOND, 600 * SECOND
# Of its lease, a site uses this much: its clock may run slower than the home's.
USABLE_PERCENT = 98
_LEAST_RATE = 1_000_000  # in a span, so that a millionth of it is a whole unit
_SHORTEST_SPAN, _LONGEST_SPAN = 100_000, 10_000_000_000
_EXACT = 2**53


class Terms(NamedTuple):
    """A limit to divide."""

    rate: int  # units in `span`
    burst: int
    span: int  # milliseconds; also how many parts a unit has in the home's account

    def part(self, floor: int) -> tuple[int, int]:
        """The rate and burst of a floor."""
        return self.rate * floor // WHOLE, self.burst * floor // WHOLE

    def lendable(self, floors: Iterable[int]) -> tuple[int, int]:
        """The rate and burst that are reserved for nobody."""
        rate, burst = self.rate, self.burst
        for floor in floors:
            reserved, units = self.part(floor)
            rate -= reserved
            burst -= units
        return max(0, rate), max(0, burst)


class Times(NamedTuple):
    """In milliseconds."""

    lease: int
    slack: int
    pace: int  # how often an agent reports
    memory: int  # of demand

    @property
    def whole(self) -> int:
        """After so long, a site certainly does not use a lease any more."""
        return self.lease + self.slack


def times_of(lease: int) -> Times:
    """For a lease of so many nanoseconds."""
    length = lease // MILLISECOND
    pace = max(50, length // 15)
    return Times(length, max(LEAST_SLACK, length // SLACK_PART), pace, 2 * pace)


def terms_of(limit: Limit) -> Terms:
    span = _SHORTEST_SPAN
    while span * MILLISECOND // limit.interval_ns < _LEAST_RATE and span < _LONGEST_SPAN:
        span *= 10
    return Terms(span * MILLISECOND // limit.interval_ns, limit.burst, span)


def undividable(limit: Limit, floor: int) -> str | None:
    """Why a limit is decided at home; None if sites can share it."""
    if limit.amount == 0:
        return None
    if limit.algorithm != "token_bucket":  # a leaky bucket's queue has one pace, everywhere
        return f"{limit.algorithm} cannot be divided exactly among regions"
    for option, is_set in (
        ("debt", limit.debt), ("soft", limit.soft is not None), ("lockout", limit.lockout_ns),
        ("warm_up", limit.warm_up_ns), ("initial", limit.initial is not None),
    ):  # fmt: skip
        if is_set:
            return f"{option} cannot be divided among regions"
    terms = terms_of(limit)
    rate, burst = terms.part(floor)
    if burst < 1 or rate < 1:
        return f"the floor of this region, {floor / 10_000:g} % of {limit.burst}, is less than 1"
    full = 2 * (limit.burst + 1) * (terms.span * MILLISECOND // rate + 1) + SECOND
    largest = max(terms.burst * terms.span, terms.rate * WHOLE, terms.burst * WHOLE)
    if max(full, largest) >= _EXACT:
        return "its burst takes too long to fill"
    return None


def averaged(demand: float, latest: int, elapsed: int, memory: int) -> float:
    """The demand after a report of ``latest``, ``elapsed`` ms after the last; -1 is unknown."""
    if demand < 0 or elapsed >= memory:
        return float(latest)
    return demand + (latest - demand) * elapsed / memory


def share(lendable: int, excess: float, total: float, holders: int) -> float:
    """The part of the rate for one of ``holders``, which all together have ``total``."""
    if total > lendable:
        return lendable * (EQUALLY / holders + (1 - EQUALLY) * excess / total)
    return excess + (lendable - total) / holders
