"""Who gets how much of a limit: pure functions, twins of those in `bank.lua`.

::

    terms     a limit as Envoy can be told it: `burst` tokens, and `rate` tokens in `interval` s
    demand    requests a second, allowed and denied, as an average over reports
    share     overload:  rate (0.1 / n + 0.9 demand / all demand)
              else:      demand + spare / n

The interval is constant for a limit, because Envoy does not notice a change of the interval
alone. It is 100 s, or ten times that as often as a slow limit needs it for whole numbers.

Tokens and rates are integers, and times whole milliseconds, all exact in the doubles of Lua. Only
demand and shares are doubles, computed in the same order in both languages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from penstock.durations import SECOND
from penstock.limits import Limit
from penstock.service.envoy_constants import U32

# How long Envoy uses an assignment, in seconds: three of its reports.
TTL_SECONDS = 15
TTL = TTL_SECONDS * 1000
# A message is assumed to reach Envoy within this time, in milliseconds.
SLACK = 2_000
# Envoy reports so often, and nothing changes that.
REPORTS = 5_000
# What a new value weighs in the average if it is of a whole REPORTS.
WEIGHT = 0.6
# A shorter time is no measure of a rate.
SHORTEST_SAMPLE = 1_000
# The part of a scarce rate that is divided equally.
FLOOR = 0.1
# What stays in the bank while bursts have to be collected: see `reach`.
HELD_BACK, HELD_BACK_SPARE = 0.05, 0.1
# What stays in the bank for newcomers if some Envoys cannot prove a decrease.
RESERVE = 0.1
# An Envoy with another stream that reported in this time is not the same one, come back.
SAME_NODE = 3_000

LEAST_FILL = 10_000
SHORTEST_INTERVAL, LONGEST_INTERVAL = 100, 10_000_000
_EXACT = 2**53


class Terms(NamedTuple):
    """A limit to divide."""

    rate: int  # tokens in `interval`
    burst: int
    interval: int  # seconds

    @property
    def unit(self) -> int:
        """How many units of the bank's are one token: one a millisecond at rate 1."""
        return self.interval * 1000


def undividable(limit: Limit) -> str | None:
    """Why a limit cannot be divided exactly; None if it can."""
    if limit.algorithm not in ("token_bucket", "leaky_bucket"):
        return f"{limit.algorithm} cannot be divided exactly among Envoys: use token_bucket"
    for option, is_set in (
        ("debt", limit.debt), ("soft", limit.soft is not None), ("lockout", limit.lockout_ns),
        ("warm_up", limit.warm_up_ns), ("initial", limit.initial is not None),
    ):  # fmt: skip
        if is_set:
            return f"{option} has no meaning for a bucket that Envoy keeps: leave it out"
    terms = terms_of([limit])
    if terms.burst * terms.unit >= _EXACT:
        return "its burst takes too long to fill"
    return None


def terms_of(limits: Sequence[Limit], cost: int = 1) -> Terms:
    """The strictest of several limits, of which each request takes ``cost`` units."""
    slowest = max([limit.interval_ns for limit in limits]) * cost
    burst = min([limit.burst for limit in limits]) // cost
    interval = SHORTEST_INTERVAL
    while interval * SECOND // slowest < LEAST_FILL and interval < LONGEST_INTERVAL:
        interval *= 10
    return Terms(min(interval * SECOND // slowest, U32), min(burst, U32), interval)


def averaged(demand: float, requests: int, elapsed: int) -> float:
    """The demand after so many requests in so many milliseconds; -1 is an unknown one."""
    latest = requests * 1000 / elapsed
    if demand < 0:
        return latest
    return demand + WEIGHT * min(elapsed, REPORTS) / REPORTS * (latest - demand)


def total_of(demands: Sequence[float]) -> float:
    """Their sum, one after the other as in Lua: `sum` compensates for rounding."""
    total = 0.0
    for demand in demands:
        total += demand
    return total


def share(reach: float, demand: float, total: float, nodes: int) -> float:
    """The part of ``reach`` for one of ``nodes``; all in tokens per interval."""
    if total > reach:
        return reach * (FLOOR / nodes + (1 - FLOOR) * demand / total)
    return demand + (reach - total) / nodes


def reach(
    terms: Terms, demands: Sequence[float], bursts: Sequence[int], free: int, provable: bool
) -> float:
    """How much of the rate is to be divided now.

    All of it, unless nodes have much less of the burst than they should have, and there is not
    so much in the bank. Burst can only come from refill that nobody is assigned, so some is held
    back until there is enough. It is the spare rate where there is one.
    """
    most: float = terms.rate if provable else terms.rate * (1 - RESERVE)
    total, nodes = total_of(demands), len(demands)
    is_scarce = total > most
    missing = 0
    for demand, burst in zip(demands, bursts, strict=True):
        if burst > 0:
            fair = math.floor(terms.burst * share(most, demand, total, nodes) / terms.rate)
            wanted = fair // 2 if is_scarce else fair
            missing += max(0, wanted - burst)
    if missing * terms.unit > free:
        if is_scarce:
            return most * (1 - HELD_BACK)
        return max(total, most * (1 - HELD_BACK_SPARE))
    return most
