"""A token bucket that a key begins less than full: still one integer a key.

`TokenBucket` needs no row for a key whose bucket is full: it is as one that was never seen. Here
the two differ, so a row is kept for some time after the bucket is full again. The state is

    E = TAT + M               until when the key is remembered; M = B = burst * T

and TAT, B and T are those of `TokenBucket`:

    tat = now + (burst - initial) * T     when E <= now: the key is not known, or not any more
    tat = max(E - M, now)                 otherwise

From there on the formulas are the same. A key whose bucket has been full for as long as an empty
one takes to fill is forgotten, and begins with ``initial`` units again.

The first hit starts the refill, even if it is refused: else a bucket that begins empty would stay
so. A look starts nothing.
"""

from __future__ import annotations

from penstock.algorithms.token_bucket import TokenBucket
from penstock.algorithms.words import ALLOWED, NO_MARK, REFUSED, Words
from penstock.decision import Decision
from penstock.limits import Limit


class InitialBucket(TokenBucket):
    def __init__(self, limit: Limit) -> None:
        TokenBucket.__init__(self, limit)
        assert limit.initial is not None
        self.missing = (limit.burst - limit.initial) * self.interval
        self.memory = self.capacity

    def arrival(self, state: Words, now: int) -> int:
        """TAT: never before now, and never further ahead than the bucket can be overdrawn."""
        if state[0] <= now:
            return now + self.missing
        tat = state[0] - self.memory
        if tat < now:
            return now
        return tat if tat < now + self.ceiling else now + self.ceiling

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        interval = self.interval
        tat = self.arrival(state, now)
        room = self.capacity - (tat - now)
        need = (cost if self.debt == 0 else self.need(cost)) * interval
        out._unit = interval
        out._mark = tat
        out._delay = 0
        out._allowed = need <= room
        out._retry = 0 if out._allowed else need - room
        if out._allowed and take:
            room -= cost * interval
            tat += cost * interval
        if take:
            state[0] = tat + self.memory
        out._room = room
        out._reset = tat - now
        return ALLOWED if out._allowed else REFUSED

    def charge(self, state: Words, cost: int, now: int) -> int:
        tat = self.arrival(state, now)
        highest = now + self.ceiling
        # Not `cost * interval`: a cost may be so large that this overflows.
        tat = tat + cost * self.interval if cost <= (highest - tat) // self.interval else highest
        state[0] = tat + self.memory
        return ALLOWED

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        if state[0] <= now:
            return
        tat = self.arrival(state, now)
        # What has come back by itself since is not given a second time: see TokenBucket.refund.
        late = 0
        if mark != NO_MARK and now > mark and kept <= (now - mark) // self.interval:
            late = now - mark - kept * self.interval
        back = tat - now
        if cost <= (back + late) // self.interval:
            back = cost * self.interval - late
        if back > 0:
            state[0] = tat - back + self.memory

    def reserve(self, state: Words, cost: int, now: int, patience: int, out: Decision) -> int:
        answer = TokenBucket.reserve(self, state, cost, now, patience, out)
        if answer == REFUSED:
            self.charge(state, 0, now)  # it starts the refill, as a refused hit does
        return answer

    def full_at(self, state: Words) -> int:
        return state[0] - self.memory
