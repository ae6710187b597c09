"""Fixed window: count until the window ends, then start from nothing.

    state  = [end of the window, units used in it]
    allow    when used + cost <= amount
    retry    when the window ends

Exact within each window; two bursts may meet at an edge, so an interval of one
period that lies across it can see twice the amount. `sliding_window` cures that.

Windows are multiples of the period since 1970 (``epoch``), hours, days, weeks,
months or years of a time zone (``calendar``), or begin with a key's first hit
(``first_hit``). The first two need the wall clock, and the window around ``now``
is worked out once and kept until time leaves it.

Clock stepped back: the window that was counted in stays until it ends, so going
back and forth over an edge earns nothing; but its end is never further away than
the end of the next window, so that a large step back heals.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

from penstock.algorithms.base import Algorithm
from penstock.algorithms.calendar import calendar_window, epoch_window
from penstock.algorithms.words import ALLOWED, NO_MARK, REFUSED, Words
from penstock.decision import Decision
from penstock.limit_options import CALENDAR_UNITS, MOST_UNITS
from penstock.limits import Limit

MOST_USED = 4 * MOST_UNITS


class FixedWindow(Algorithm):
    def __init__(self, limit: Limit) -> None:
        Algorithm.__init__(self, limit)
        self.words = self.most_words = 2
        self.amount = limit.amount
        self.period = limit.period_ns
        self.from_first_hit = limit.align == "first_hit"
        self.wall = not self.from_first_hit
        self.zone = ZoneInfo(limit.tz) if limit.tz is not None else None
        self.end = 0
        self.next_end = 0
        if self.wall:
            self.valid_until = 0

    def refresh(self, now: int) -> None:
        if self.zone is not None:
            window = calendar_window(now, CALENDAR_UNITS[self.period], self.zone)
            self.valid_from, self.end, self.next_end = window
        elif now < 0:
            self.valid_from, self.end, self.next_end = epoch_window(now, self.period)
        else:
            # The same, in C: a replay comes here once for each second of a log.
            self.valid_from = now - now % self.period
            self.end = self.valid_from + self.period
            self.next_end = self.end + self.period
        self.valid_until = self.end

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        end = self.open_until(state, now)
        used = state[1] if state[0] > now else 0
        out._unit = 1
        out._delay = 0
        out._mark = end
        out._reset = end - now if used > 0 else 0
        if used + cost <= self.amount + extra:
            if take:
                used += cost
                state[0] = end
                state[1] = used
                out._reset = end - now
            out._allowed = True
            out._retry = 0
            out._room = self.amount - used
            return ALLOWED
        if take and state[0] > end:
            state[0] = end
        out._allowed = False
        out._retry = end - now
        out._room = self.amount - used
        return REFUSED

    def open_until(self, state: Words, now: int) -> int:
        """End of the window that this key is counted in at ``now``."""
        latest = now + self.period if self.from_first_hit else self.next_end
        if state[0] > now:
            return state[0] if state[0] < latest else latest
        return latest if self.from_first_hit else self.end

    def charge(self, state: Words, cost: int, now: int) -> int:
        used = state[1] if state[0] > now else 0
        state[0] = self.open_until(state, now)
        state[1] = used + cost if cost < MOST_USED - used else MOST_USED
        return ALLOWED

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        if state[0] <= now or (mark != NO_MARK and mark != state[0]):
            return
        state[1] = state[1] - cost if state[1] > cost else 0

    def sound(self, state: Words) -> bool:
        return 0 <= state[1] <= MOST_USED
