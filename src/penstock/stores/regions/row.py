"""The row of a key at a site: a token bucket whose rate and burst change. Twin of the Lua.

The site's bucket has its floor, and until ``finish`` a share of the home's limit::

    rate   floor + share      burst   floor + share      interval T = span / rate, rounded up

It is kept as GCRA, so what is used is TAT - now, in time. When the rate changes, what is used
stays the same number of units: TAT - now is multiplied by the new T and divided by the old, and
rounded up. When the burst grows, what is new is empty, except for units that the home paid. When it
shrinks, the bucket keeps what fits. When the share ends, the row does both by itself, whenever it
is next looked at.

Instances may have leased units of the row (`stores/leased`). A burst is never cut below what they
hold, and TAT stays behind the end of their leases, as their bank demands.

This model is what the tests check the Lua against (regional_bucket.lua and site.lua), and what they
check the law with. Times are in nanoseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.durations import MILLISECOND, SECOND
from penstock.stores.regions.law import Terms

LOOKED, APPLIED, BUSY = range(3)


class Share(NamedTuple):
    """What the home lends to a site; ``finish`` is by the site's clock."""

    burst: int
    rate: int
    paid: int
    finish: int
    number: int


class Applied(NamedTuple):
    """What a site has now, after a share was applied or looked at."""

    status: int
    burst: int
    rate: int
    number: int
    left: int  # milliseconds
    returned: int
    level: int  # whole units in the bucket
    demand: int  # units a second that instances lease


@dataclass(slots=True)
class SiteRow:
    terms: Terms
    floor_rate: int
    floor_burst: int
    tat: int = 0
    interval: int = 0
    burst: int = 0
    rate: int = 0
    finish: int = 0
    number: int = 0
    written: int = 0  # the second in which it was

    def hit(self, cost: int, now: int) -> bool:
        row = self.at(now)
        used = max(0, row.tat - now)
        if cost * row.interval > row.capacity - used:
            return False
        row.tat = now + used + cost * row.interval
        self._write(row, now)
        return True

    def apply(self, share: Share | None, now: int, leased: int = 0, last: int = 0) -> Applied:
        """Give the row another share, unless it has a later one; None only looks.

        Instances hold ``leased`` units, until ``last`` at most.
        """
        row = self.at(now)
        status = returned = 0
        if share is not None and share.number > row.number and share.finish > now:
            cut = row.burst - share.burst
            too_much = cut > 0 and leased > row.floor_burst + share.burst
            if leased > 0 and (too_much or last > share.finish):
                status = BUSY
            else:
                status, returned = APPLIED, row._apply(share, cut, now, leased, last)
                self._write(row, now)
        left = max(0, row.finish - now) // MILLISECOND
        level = max(0, row.capacity - max(0, row.tat - now)) // row.interval
        return Applied(status, row.burst, row.rate, row.number, left, returned, level, 0)

    def _apply(self, share: Share, cut: int, now: int, leased: int, last: int) -> int:
        self.burst, self.rate, _, self.finish, self.number = share
        self._convert(now)
        used, returned = max(0, self.tat - now), 0
        left = used
        if cut < 0:
            left = max(0, used + (-cut - share.paid) * self.interval)
        elif cut > 0:
            left = max(0, used - cut * self.interval)
            returned = (cut * self.interval - (used - left)) // self.interval
        if leased > 0 and left < last - now + leased * self.interval:
            left, returned = last - now + leased * self.interval, 0
        self.tat = now + left
        return returned

    def at(self, now: int) -> SiteRow:
        """The row at ``now``: its share may have ended. Only a change is written."""
        row = replace(self)
        if row.finish <= now and (row.burst or row.rate):
            cut, row.burst, row.rate = row.burst, 0, 0
            row._convert(row.finish)
            row.tat = max(row.tat - cut * row.interval, min(row.tat, row.finish))
        else:  # another floor; if it is lower, it may have been so since the row was written
            slower = row._interval() > row.interval
            row._convert(row.written if slower else now)
        return row

    def _write(self, row: SiteRow, now: int) -> None:
        self.written = now // SECOND * SECOND
        self.tat, self.interval, self.burst, self.rate = row.tat, row.interval, row.burst, row.rate
        self.finish, self.number = row.finish, row.number

    def _convert(self, moment: int) -> None:
        interval = self._interval()
        if interval != self.interval and self.interval and self.tat > moment:
            used = float(self.tat - moment) * interval / self.interval
            self.tat = moment + math.ceil(used) + 1
        self.interval = interval

    def _interval(self) -> int:
        return -(-self.terms.span * MILLISECOND // (self.floor_rate + self.rate))

    @property
    def capacity(self) -> int:
        return (self.floor_burst + self.burst) * self.interval
