"""Sliding window log: every admitted hit is remembered until it is a period old.

    allow   when (units in the last period) + cost <= amount
    retry   when enough of the oldest hits have left the period

Exact in every interval, and the dearest: two words for each hit that is still in
the period (hits at one instant share them).

    state = [when the newest leaves, length of the row, index of the oldest,
             number of hits, their units, then (time, units) in a ring]

The row grows as it is needed, up to ``amount`` hits. With ``count_rejected``
refused hits are remembered, too, so that hammering keeps the door shut; the
newest ``amount`` units then decide, and older ones are dropped.

Clock stepped back before the newest hit: all hits are moved back by as much.
"""

from __future__ import annotations

from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import ALLOWED, HIT, NO_MARK, NO_ROOM, REFUSED, Words
from penstock.decision import Decision
from penstock.limits import Limit

LENGTH, OLDEST, COUNT, UNITS, FIRST = 1, 2, 3, 4, 5
SMALLEST_ROW = FIRST + 2 * 4


class SlidingLog(Algorithm):
    def __init__(self, limit: Limit) -> None:
        Algorithm.__init__(self, limit)
        self.amount = limit.amount
        self.period = limit.period_ns
        self.count_rejected = limit.count_rejected
        overrun = limit.soft.overrun if limit.soft is not None else 0
        # One hit more than fits: what `charge` books beyond the limit.
        self.most_words = FIRST + 2 * (limit.amount + overrun + 1)
        self.words = min(SMALLEST_ROW, self.most_words)
        self.most_used = 4 * (limit.amount + overrun)
        self.length_at = LENGTH

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        if take:
            self.drop(state, now)
        skip = gone = behind = 0
        units = 0
        if state[0] > now:
            units = state[UNITS]
            # Only without `take` is there anything left to step over.
            behind = self.behind(state, now)
            while skip < state[COUNT] and self.time(state, skip) - behind + self.period <= now:
                gone += state[self.place(state, skip) + 1]
                skip += 1
        units -= gone
        out._unit = 1
        out._delay = 0
        out._mark = now
        if units + cost <= self.amount + extra:
            if take:
                if not self.append(state, cost, now):
                    return NO_ROOM
                units += cost
            out._allowed = True
            out._retry = 0
            out._room = self.amount - units
            out._reset = state[0] - behind - now if state[0] - behind > now else 0
            return ALLOWED
        if take == HIT and self.count_rejected:
            self.trim(state, self.amount)  # frees the room that `append` needs
            if not self.append(state, cost, now):
                return NO_ROOM
            self.trim(state, self.amount)
            units = state[UNITS]
        out._allowed = False
        out._room = self.amount - units
        out._reset = state[0] - behind - now if state[0] - behind > now else 0
        # Wait for the oldest to leave until `cost` fits.
        over = units + cost - self.amount - extra
        while skip < state[COUNT] - 1:
            over -= state[self.place(state, skip) + 1]
            if over <= 0:
                break
            skip += 1
        out._retry = self.time(state, skip) - behind + self.period - now
        return REFUSED

    def place(self, state: Words, index: int) -> int:
        """Where the hit with this index lies, the oldest being 0."""
        slots = (state[LENGTH] - FIRST) // 2
        index += state[OLDEST]
        return FIRST + 2 * (index if index < slots else index - slots)

    def time(self, state: Words, index: int) -> int:
        return state[self.place(state, index)]

    def behind(self, state: Words, now: int) -> int:
        """How far the clock has stepped back before the newest hit."""
        newest = state[0] - self.period
        return newest - now if newest > now else 0

    def drop(self, state: Words, now: int) -> None:
        """Forget hits that have left the period, after undoing a step back."""
        if state[0] <= now:
            state[OLDEST] = state[COUNT] = state[UNITS] = 0
            return
        behind = self.behind(state, now)
        if behind > 0:
            for index in range(state[COUNT]):
                state[self.place(state, index)] -= behind
            state[0] -= behind
        while state[COUNT] > 0 and self.time(state, 0) + self.period <= now:
            self.forget_oldest(state)

    def forget_oldest(self, state: Words) -> None:
        state[UNITS] -= state[self.place(state, 0) + 1]
        state[OLDEST] = (self.place(state, 1) - FIRST) // 2
        state[COUNT] -= 1

    def append(self, state: Words, cost: int, now: int) -> bool:
        if state[COUNT] > 0 and self.time(state, state[COUNT] - 1) == now:
            state[self.place(state, state[COUNT] - 1) + 1] += cost
        else:
            if FIRST + 2 * (state[COUNT] + 1) > state[LENGTH]:
                return False
            place = self.place(state, state[COUNT])
            state[place] = now
            state[place + 1] = cost
            state[COUNT] += 1
        state[UNITS] += cost
        state[0] = now + self.period
        return True

    def trim(self, state: Words, most: int) -> None:
        """Keep the newest ``most`` units."""
        while state[UNITS] > most and state[COUNT] > 0:
            place = self.place(state, 0) + 1
            over = state[UNITS] - most
            if state[place] > over:
                state[place] -= over
                state[UNITS] -= over
            else:
                self.forget_oldest(state)

    def charge(self, state: Words, cost: int, now: int) -> int:
        """Where there is more than can be kept, the oldest is forgotten.

        That changes no decision: what is newer fills the limit until after the oldest
        would have left.
        """
        self.drop(state, now)
        if cost == 0:
            return ALLOWED
        if cost > self.most_used:
            cost = self.most_used
        self.trim(state, self.most_used - cost)
        if self.append(state, cost, now):
            return ALLOWED
        if state[LENGTH] < self.most_words:
            return NO_ROOM
        self.forget_oldest(state)
        self.append(state, cost, now)
        return ALLOWED

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        """From the hit that took it, or from the newest ones if that is not known."""
        if state[0] <= now:
            return
        self.drop(state, now)
        for index in range(state[COUNT] - 1, -1, -1):
            if mark == NO_MARK or mark == self.time(state, index):
                place = self.place(state, index) + 1
                back = cost if cost < state[place] else state[place]
                state[place] -= back
                state[UNITS] -= back
                cost -= back
                if state[place] == 0:
                    self.delete(state, index)
                if cost == 0 or mark != NO_MARK:
                    return

    def delete(self, state: Words, index: int) -> None:
        """Take one hit out of the ring; the newer ones move up."""
        state[COUNT] -= 1
        while index < state[COUNT]:
            to, start = self.place(state, index), self.place(state, index + 1)
            state[to] = state[start]
            state[to + 1] = state[start + 1]
            index += 1
        state[0] = self.time(state, state[COUNT] - 1) + self.period if state[COUNT] > 0 else 0

    def carry(self, old: Words, new: Words) -> None:
        new[0] = old[0]
        new[COUNT] = old[COUNT]
        new[UNITS] = old[UNITS]
        for index in range(old[COUNT]):
            place = self.place(old, index)
            new[FIRST + 2 * index] = old[place]
            new[FIRST + 2 * index + 1] = old[place + 1]

    def sound(self, state: Words) -> bool:
        slots = (self.most_words - FIRST) // 2
        if state[LENGTH] != self.most_words or not 0 <= state[OLDEST] < slots:
            return False
        if state[COUNT] == 0:
            return state[UNITS] == 0
        # No hit is for less than one unit.
        return 0 < state[COUNT] <= slots and state[COUNT] <= state[UNITS] <= self.most_used

    def extent(self, state: Words) -> int:
        used = FIRST + 2 * (state[OLDEST] + state[COUNT] + 1)
        return used if used < self.most_words else self.most_words
