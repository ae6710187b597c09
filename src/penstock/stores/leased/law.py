"""The numbers of leasing: which limits can be leased, for how long, and how much at a time.

Everything here is a pure function. The bank (`bank.py`, and in Redis `bank.lua`) divides a
limit by `divide`; an instance sizes its requests by `smoothed` and `wanted`.

    horizon   h = min(100 ms, burst / 4 rate): a lease is sized for the demand of that long
    ttl       10 h, at least 0.5 s, at most 10 s: the bank vouches for a lease no longer than that
    cover     2 h, or if that is longer the refill of an eighth of the burst, up to the ttl: the
              bank vouches for at least so long
    hot       a key with 10 hits within h, which is leased until its demand is below 5 units
              within h; others are decided directly

A process with very many hot keys stretches h (`stretch.py`), and with it ttl and cover: see
`stretched`. What is hot stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.durations import MICROSECOND, MILLISECOND, SECOND
from penstock.limits import Limit

HORIZON = 100 * MILLISECOND
SHORTEST_HORIZON = MILLISECOND
LONGEST_HORIZON = SECOND
SHORTEST_TTL = SECOND // 2
LONGEST_TTL = 10 * SECOND
LEASED = ("token_bucket", "leaky_bucket", "fixed_window")
# This part of the burst may be out at a time; each holder has its part of it, by demand.
SHARE = 0.5
# Below this there is nothing to divide.
LEAST_BURST = 16
# Hits within a horizon: from so many on a key is leased.
HOT = 10
# An instance counts a lease from before it asked, and its clock may run slower than the server's.
SPENDABLE_PERCENT = 98
# Demand is averaged over so long, or over a horizon if that is longer.
MEMORY = 100 * MILLISECOND
# What an instance says to a hit: that it is to be decided directly is the last of them. They
# stand here because this module is not compiled.
REFUSED = 0
TAKEN = 1
UNKNOWN = 2
_EXACT = 2**53  # what the bank in Redis can count


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which one limit is leased. Times are in nanoseconds."""

    burst: int
    interval: int  # of one unit
    horizon: int
    cover: int
    ttl: int
    refills: bool  # a bucket does; a window begins anew
    most: int  # units that all holders may have, each its part


def terms_of(
    limit: Limit, horizon: int = HORIZON, ttl: int | None = None, share: float = SHARE
) -> Terms | None:
    """The terms for ``limit``; None if it has to be decided directly."""
    if limit.algorithm not in LEASED or limit.burst < LEAST_BURST:
        return None
    if limit.debt or limit.soft is not None or limit.lockout_ns or limit.warm_up_ns:
        return None
    if limit.initial is not None:
        return None
    refills = limit.algorithm != "fixed_window"
    full = limit.burst * limit.interval_ns if refills else limit.period_ns
    if refills and 4 * full + SECOND >= _EXACT:
        return None
    horizon = min(horizon, full // 4) // MICROSECOND * MICROSECOND
    if horizon < SHORTEST_HORIZON:
        return None
    if ttl is None:
        ttl = min(max(10 * horizon, SHORTEST_TTL), LONGEST_TTL)
    cover = max(2 * horizon, min(ttl, full // 8)) // MICROSECOND * MICROSECOND
    most = max(1, int(limit.burst * share))
    return Terms(limit.burst, limit.interval_ns, horizon, cover, ttl, refills, most)


def stretched(
    limit: Limit, horizon: int, ttl: int | None, factor: int, share: float = SHARE
) -> Terms | None:
    """`terms_of` with a horizon that is ``factor`` times as long, as far as ttl and burst allow."""
    longest = LONGEST_HORIZON if ttl is None else ttl // 4
    return terms_of(limit, max(horizon, min(factor * horizon, longest)), ttl, share)


def divide(
    terms: Terms, want: int, free: int, held: int, demand: int, total: int, holders: int,
    elapsed: int,
) -> tuple[int, int]:  # fmt: skip
    """How much of ``free`` units a holder gets, and how much it could have used.

    It has ``held`` units and a ``demand`` in units a second, of a ``total`` of all
    ``holders``; it last got some ``elapsed`` nanoseconds ago. While there is enough for
    everybody's next horizon it gets what it wants, up to its part of what may be out. When
    there is not, it gets its part, by demand, of what has come back meanwhile.

    These are doubles in the order of `bank.lua`, which computes the same.
    """
    share = demand / total if total > 0 else 1
    most = max(1, math.floor(terms.most * max(share, 0.25 / holders)) - held)
    useful = min(want, most)
    if free >= total * terms.horizon / SECOND:
        return min(useful, free), useful
    if terms.refills:
        back = min(elapsed, 4 * terms.horizon) / terms.interval
        part = share * (back + max(0, free - terms.horizon / terms.interval))
    else:
        part = share * free
    return min(useful, free, max(1, math.floor(part))), useful


def smoothed(terms: Terms, demand: int, offered: int, elapsed: int) -> int:
    """The demand in units a second, after ``offered`` more units in ``elapsed`` nanoseconds."""
    memory = max(MEMORY, terms.horizon)
    latest = offered * SECOND // max(elapsed, 1)
    return demand + (latest - demand) * min(elapsed, memory) // memory


def wanted(terms: Terms, demand: int, trip: int = 0) -> int:
    """How many units an instance likes to have: the demand of a horizon, and of the time in which
    more can be fetched."""
    return max(1, demand * (terms.horizon + trip) // SECOND)


def low(demand: int, available: int, trip: int) -> int:
    """With so many units in hand it is time to ask: a quarter, or what is spent meanwhile."""
    return max(available // 4, min(3 * available // 4, demand * 3 * trip // (2 * SECOND)))


def is_cold(terms: Terms, demand: int) -> bool:
    """So little that direct decisions are as good; well below what makes a key hot."""
    return 2 * demand * terms.horizon < HOT * SECOND
