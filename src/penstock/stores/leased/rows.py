"""The row of a key as the bank's model sees it: a bucket's TAT, or a window's end and count.

The same arithmetic as `TokenBucket` and `FixedWindow`, for limits without options.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

from penstock.algorithms.calendar import calendar_window, epoch_window
from penstock.limit_options import CALENDAR_UNITS
from penstock.limits import Limit


class BucketRow:
    def __init__(self, limit: Limit) -> None:
        self.unit = limit.interval_ns
        self.capacity = limit.burst * self.unit
        self.tat = 0

    def room(self, now: int) -> int:
        return self.capacity - (self.mark(now) - now)

    def can_owe(self, units: int, now: int) -> bool:
        """Whether so many units can be booked, fitting or not."""
        return units * self.unit <= self.room(now) + self.capacity

    def mark(self, now: int) -> int:
        return min(max(self.tat, now), now + 2 * self.capacity)

    def take(self, units: int, now: int) -> None:
        self.tat = min(self.mark(now) + units * self.unit, now + 2 * self.capacity)

    def give_back(self, units: int, now: int) -> None:
        if self.tat > now:
            self.tat -= units * self.unit


class WindowRow:
    unit = 1

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.zone = ZoneInfo(limit.tz) if limit.tz is not None else None
        self.end = 0
        self.used = 0

    def room(self, now: int) -> int:
        return self.limit.amount - (self.used if self.end > now else 0)

    def can_owe(self, units: int, now: int) -> bool:
        return units <= self.room(now) + self.limit.amount

    def mark(self, now: int) -> int:
        end, latest = self._ends(now)
        return min(self.end, latest) if self.end > now else end

    def take(self, units: int, now: int) -> None:
        used = self.used if self.end > now else 0
        self.end, self.used = self.mark(now), used + units

    def give_back(self, units: int, now: int) -> None:
        if self.end > now:
            self.used = max(0, self.used - units)

    def _ends(self, now: int) -> tuple[int, int]:
        """When a window that begins now ends, and the latest end that makes sense."""
        limit = self.limit
        if limit.align == "first_hit":
            return now + limit.period_ns, now + limit.period_ns
        if self.zone is None:
            return epoch_window(now, limit.period_ns)[1:]
        return calendar_window(now, CALENDAR_UNITS[limit.period_ns], self.zone)[1:]


def row_of(limit: Limit) -> BucketRow | WindowRow:
    return WindowRow(limit) if limit.algorithm == "fixed_window" else BucketRow(limit)
