"""Lockout: after a refusal, nothing for a while.

    state = [end of memory, locked until, the guarded algorithm's own words]

Whatever comes while the door is shut is refused and changes nothing, not even
the length of the lockout. When it opens, the guarded algorithm decides again, by
what it still remembers: usually nothing. A request that could never be allowed
(its cost is above the burst) is refused without shutting the door, and so is an
attempt: whoever waits for their turn violates nothing.
"""

from __future__ import annotations

from penstock.algorithms.around import Around
from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import HIT, NO_ROOM, REFUSED, Words
from penstock.decision import Decision

UNTIL, INNER = 1, 2


class Lockout(Around):
    def __init__(self, inner: Algorithm) -> None:
        Around.__init__(self, inner, INNER)
        self.length = inner.limit.lockout_ns

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        until = self.locked_until(state, now)
        if until == 0:
            answer = self.inner.decide(state + INNER, cost, now, extra, take, out)
            if answer == NO_ROOM:
                return answer
            if answer != REFUSED or take != HIT:
                if take:
                    self.remember(state, 0)
                return answer
            until = now + self.length
        if take:
            if state[UNTIL] > until:
                # The clock stepped back. Charging nothing brings the inner row up to now.
                self.inner.charge(state + INNER, 0, now)
            self.remember(state, until)
        # Would it be allowed when the door opens? Ask for then.
        if self.inner.decide(state + INNER, cost, until, extra, False, out) == REFUSED:
            out._retry += until - now
        else:
            out._retry = until - now
        # As good as new is what the guarded one will be by then, or some time after.
        out._reset += until - now
        out._allowed = False
        out._overrun = False
        out._delay = 0
        out._room = 0
        return REFUSED

    def locked_until(self, state: Words, now: int) -> int:
        """When the door opens, or 0 if it is open; a step back does not prolong it."""
        if state[0] <= now or state[UNTIL] <= now:
            return 0
        return state[UNTIL] if state[UNTIL] < now + self.length else now + self.length

    def remember(self, state: Words, until: int) -> None:
        state[UNTIL] = until
        state[0] = until if until > state[INNER] else state[INNER]

    def charge(self, state: Words, cost: int, now: int) -> int:
        if state[0] <= now:
            state[UNTIL] = 0
        answer = self.inner.charge(state + INNER, cost, now)
        if answer != NO_ROOM:
            self.remember(state, state[UNTIL])
        return answer

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        if state[0] > now:
            self.inner.refund(state + INNER, cost, now, mark, kept)
            self.remember(state, state[UNTIL])
