"""Stock: units that were put there, and are spent until none is left. Nothing comes back by itself.

    state  = [end, when it was opened, units put in so far, units spent so far]
    allow    when spent + cost <= put in, and the end has not come
    retry    no waiting helps: somebody has to put more in

A key that was never seen, and one whose end has come, has nothing: losing a row loses units,
and never invents any. The units of quotas are counted by it, in every store: they are taken from
a ledger, put in here, and spent by requests. It is not for limits that people write.

The verbs of counters are enough to keep a stock, so stores need to know nothing about it:

========================================= =====================================================
``charge(key, t)``                        open one, named by the time ``t``, microseconds since
                                          1970; nothing happens if there is one already
``refund(key, total, mark, -end)``        the total that was put in so far, and the new end, in
                                          microseconds since 1970; only of the stock that was
                                          opened at ``mark``. A total never sinks, so this can
                                          be repeated, and come late
``refund(key, cost, mark)``               give units back that a hit took
``peek(key, most)``                       a refusal's ``_retry`` tells the units that were
                                          spent, a microsecond for each; ``_mark`` when it was
                                          opened, ``_room`` what is left, ``_reset`` its end
========================================= =====================================================

Clock stepped back: a stock ends later by as much, and has no more units for that.
"""

from __future__ import annotations

from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import ALLOWED, NO_MARK, REFUSED, Words
from penstock.decision import Decision
from penstock.limit_options import MOST_UNITS
from penstock.limits import Limit

# How long a stock waits for its first units after it was opened, in nanoseconds.
UNFILLED = 60 * 1_000_000_000
MICROSECOND = 1_000
LATEST = 2**61 // MICROSECOND


class Stock(Algorithm):
    def __init__(self, limit: Limit) -> None:
        Algorithm.__init__(self, limit)
        self.words = self.most_words = 4
        self.wall = True

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        opened = now
        left = 0
        spent = 0
        out._unit = 1
        out._delay = 0
        out._reset = 0
        if state[0] > now:
            opened = state[1]
            spent = state[3]
            left = state[2] - spent
            out._reset = state[0] - now
        out._mark = opened
        if cost <= left:
            if take:
                left -= cost
                state[3] = spent + cost
            out._allowed = True
            out._retry = 0
            out._room = left
            return ALLOWED
        out._allowed = False
        out._retry = spent * MICROSECOND
        out._room = left
        return REFUSED

    def charge(self, state: Words, cost: int, now: int) -> int:
        if state[0] <= now:
            state[0] = now + UNFILLED
            state[1] = (cost if cost < LATEST else LATEST) * MICROSECOND
            state[2] = 0
            state[3] = 0
        return ALLOWED

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        if state[0] <= now or (mark != NO_MARK and mark != state[1]):
            return
        if kept < 0:
            state[0] = (-kept if -kept < LATEST else LATEST) * MICROSECOND
            if cost > MOST_UNITS:
                cost = MOST_UNITS
            if cost > state[2]:
                state[2] = cost
        else:
            state[3] = state[3] - cost if state[3] > cost else 0

    def sound(self, state: Words) -> bool:
        return 0 <= state[3] <= state[2] <= MOST_UNITS
