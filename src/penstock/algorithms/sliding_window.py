"""Sliding window counter: a window that moves in cells instead of jumping.

The period is cut into n cells of width w, and n + 1 counters are kept: the n
newest, and the one that is sliding out. With e the time since the newest began:

    estimate = (sum of the n newest) + oldest * (w - e) / w
    allow      when estimate + cost <= amount

One cell is the well-known two-counter estimate: 3 now and 5 before, 30 % into
the window, is 3 + 5 * 0.7 = 6.5. The oldest counter is taken as spread evenly
over its cell, which is the only thing that is not exact: more cells, less of it.

Units are whole, so the estimate is rounded before it is compared: down, 6.5 is 6
and one more of 7 passes; up, it is 7 and one more waits until the estimate is 6.
With A the amount, in any time that is a whole period less w, and x of w:

    rounded down    at most A + ceil(A * x / w)
    rounded up      at most A + floor(A * x / w)

which is A for x = 0, and within a whole period at most 2 * A, or 2 * A - 1.

    state = [end of memory, sum of the n newest, index of the newest, n + 1 counters]

The cells of a key begin with its first hit, so the newest began at
end - (n + 1) * w, and no division is needed to find it. Weights are counted in
ticks of 2**shift nanoseconds, one wherever amount * w fits into 62 bits.

Clock stepped back before the newest cell: all cells are moved to begin now.
"""

from __future__ import annotations

from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import ALLOWED, NO_MARK, REFUSED, Words
from penstock.decision import Decision
from penstock.limits import Limit

SUM, NEWEST, FIRST = 1, 2, 3


class SlidingWindow(Algorithm):
    def __init__(self, limit: Limit) -> None:
        Algorithm.__init__(self, limit)
        self.amount = limit.amount
        self.cells = limit.cells
        self.words = self.most_words = FIRST + self.cells + 1
        overrun = limit.soft.overrun if limit.soft is not None else 0
        self.most_used = 4 * (limit.amount + overrun)
        width = -(-limit.period_ns // limit.cells)
        shift = max(0, (4 * (limit.amount + overrun) * width).bit_length() - 62)
        self.shift = shift
        self.ticks = -(-width >> shift)
        self.width = self.ticks << shift
        self.memory = (self.cells + 1) * self.width
        # What is left of the oldest cell is (its units * ticks left + round_by) // ticks.
        self.round_by = self.ticks - 1 if limit.rounding == "up" else 0

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        if take:
            self.roll(state, now)
        begin = self.begin(state, now)
        age = (now - begin) // self.width if now - begin >= self.width else 0
        full, oldest = state[SUM], state[self.place(state[NEWEST] + 1)]
        if state[0] <= now:
            full = oldest = 0
        else:
            for step in range(1, age + 1):
                oldest = state[self.place(state[NEWEST] + 1 + step)]
                full -= oldest
        left = self.ticks - ((now - begin - age * self.width) >> self.shift)
        used = full + (oldest * left + self.round_by) // self.ticks
        out._unit = 1
        out._delay = 0
        out._mark = now
        if used + cost <= self.amount + extra:
            if take:
                state[FIRST + state[NEWEST]] += cost
                state[SUM] += cost
                used += cost
            out._allowed = True
            out._retry = 0
            out._room = self.amount - used
            out._reset = self.reset(state, begin, now)
            return ALLOWED
        out._allowed = False
        out._room = self.amount - used
        out._reset = self.reset(state, begin, now)
        out._retry = self.retry(state, begin, age, full, oldest, cost, now, extra)
        return REFUSED

    def retry(
        self, state: Words, begin: int, age: int, full: int, oldest: int, cost: int, now: int,
        extra: int,
    ) -> int:  # fmt: skip
        """Slide forward, cell by cell, to the first tick at which ``cost`` fits."""
        spare = self.amount + extra - cost - full
        # The oldest may weigh `spare` at most: so many of its ticks may be left.
        left = self.ticks_left(spare, oldest)
        while left == 0 and age < self.cells:
            age += 1
            oldest = state[self.place(state[NEWEST] + 1 + age)]
            spare += oldest
            left = self.ticks_left(spare, oldest)
        return begin + age * self.width + ((self.ticks - left) << self.shift) - now

    def ticks_left(self, spare: int, oldest: int) -> int:
        if spare < 0:
            return 0
        if oldest <= spare:
            return self.ticks
        return (spare * self.ticks + self.ticks - 1 - self.round_by) // oldest

    def reset(self, state: Words, begin: int, now: int) -> int:
        """How long until the newest counter that is not zero has slid out."""
        if state[0] <= now:
            return 0
        end = begin + self.memory
        for age in range(self.cells + 1):
            if state[self.place(state[NEWEST] + self.cells + 1 - age)] > 0:
                break
            end -= self.width
        return end - now if end > now else 0

    def begin(self, state: Words, now: int) -> int:
        """When the newest cell began; a new key's begins now."""
        if state[0] <= now:
            return now
        begin = state[0] - self.memory
        return begin if begin < now else now

    def place(self, index: int) -> int:
        """Where the counter with this index lies; they are kept in a ring."""
        while index > self.cells:
            index -= self.cells + 1
        return FIRST + index

    def roll(self, state: Words, now: int) -> None:
        """Make the cell that holds ``now`` the newest one."""
        if state[0] <= now:
            for index in range(self.cells + 1):
                state[FIRST + index] = 0
            state[SUM] = 0
            state[NEWEST] = 0
            state[0] = now + self.memory
            return
        begin = state[0] - self.memory
        if now < begin:
            state[0] = now + self.memory
            return
        while now - begin >= self.width:
            begin += self.width
            state[NEWEST] = self.place(state[NEWEST] + 1) - FIRST
            state[FIRST + state[NEWEST]] = 0
            state[SUM] -= state[self.place(state[NEWEST] + 1)]
        state[0] = begin + self.memory

    def charge(self, state: Words, cost: int, now: int) -> int:
        """Where there is more than can be counted, the oldest is forgotten.

        That changes no decision: what is newer fills the limit until after the oldest
        would have left.
        """
        self.roll(state, now)
        if cost > self.most_used:
            cost = self.most_used
        over = state[SUM] + cost - self.most_used
        if over > 0:
            for age in range(self.cells - 1, -1, -1):
                cell = self.place(state[NEWEST] + self.cells + 1 - age)
                back = over if over < state[cell] else state[cell]
                state[cell] -= back
                state[SUM] -= back
                over -= back
        state[FIRST + state[NEWEST]] += cost
        state[SUM] += cost
        return ALLOWED

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        """From the cell that took it, or from the newest ones if that is not known."""
        if state[0] <= now:
            return
        self.roll(state, now)
        begin = state[0] - self.memory
        for age in range(self.cells + 1):
            if mark == NO_MARK or mark >= begin:
                cell = self.place(state[NEWEST] + self.cells + 1 - age)
                back = cost if cost < state[cell] else state[cell]
                state[cell] -= back
                cost -= back
                if age < self.cells:
                    state[SUM] -= back
                if mark != NO_MARK or cost == 0:
                    return
            begin -= self.width

    def sound(self, state: Words) -> bool:
        return 0 <= state[NEWEST] <= self.cells and 0 <= state[SUM] <= self.most_used
