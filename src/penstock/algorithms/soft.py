"""Soft limit: a stated overrun is let through for a stated time, and flagged.

    state = [end of memory, grace ends, grace may begin anew, the algorithm's own words]

The first hit above the limit starts the grace time. Until it ends, ``overrun``
units more than the limit are let through, marked ``Decision.overrun``. After
that the limit is hard. A new grace time is to be had once the key has asked for
nothing above its limit for as long as a grace time lasts.
"""

from __future__ import annotations

from penstock.algorithms.around import Around
from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import ALLOWED, HIT, NO_ROOM, REFUSED, Words
from penstock.decision import Decision

ENDS, ANEW, INNER = 1, 2, 3


class Soft(Around):
    def __init__(self, inner: Algorithm) -> None:
        Around.__init__(self, inner, INNER)
        soft = inner.limit.soft
        assert soft is not None
        self.overrun = soft.overrun
        self.grace = soft.grace_ns
        self.most = inner.most + soft.overrun

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        anew = self.anew(state, now)
        ends = self.ends(state, anew)
        hard_wait = -1
        if cost <= self.inner.most:
            answer = self.inner.decide(state + INNER, cost, now, extra, take, out)
            if answer == NO_ROOM:
                return answer
            if answer == ALLOWED:
                if take:
                    self.remember(state, ends, anew)
                self.keep_reset(out, anew - now)
                return answer
            hard_wait = out._retry
        if anew == 0 or now < ends:
            answer = self.inner.decide(state + INNER, cost, now, extra + self.overrun, take, out)
            if answer == NO_ROOM:
                return answer
            if answer == ALLOWED:
                out._overrun = True
                if take:
                    if anew == 0:
                        ends = now + self.grace
                        anew = ends + self.grace
                    self.remember(state, ends, anew)
                self.keep_reset(out, anew - now)
                return answer
            soft_wait = out._retry
            # In a grace time that runs out first, the hard limit is what counts.
            if anew == 0 or now + soft_wait < ends:
                hard_wait = soft_wait
            elif hard_wait < 0 or now + hard_wait > anew:
                hard_wait = soft_wait if now + soft_wait > anew else anew - now
        else:
            if take == HIT:
                anew = now + self.grace if now + self.grace > anew else anew
            self.inner.decide(state + INNER, cost, now, extra + self.overrun, False, out)
            soft_wait = out._retry if out._retry > anew - now else anew - now
            if hard_wait < 0 or soft_wait < hard_wait:
                hard_wait = soft_wait
        if take:
            self.remember(state, ends, anew)
        out._allowed = False
        out._delay = 0
        out._retry = hard_wait
        self.keep_reset(out, anew - now)
        return REFUSED

    def anew(self, state: Words, now: int) -> int:
        """When a grace time may begin anew, or 0; after a step back, counted from now."""
        if state[ANEW] <= now or state[0] <= now:
            return 0
        latest = now + 2 * self.grace
        return state[ANEW] if state[ANEW] < latest else latest

    def ends(self, state: Words, anew: int) -> int:
        """When the grace time ends that belongs to it."""
        return 0 if anew == 0 else state[ENDS] - (state[ANEW] - anew)

    def keep_reset(self, out: Decision, memory: int) -> None:
        """A spent grace time is remembered longer than the units."""
        if memory > out._reset:
            out._reset = memory

    def remember(self, state: Words, ends: int, anew: int) -> None:
        state[ENDS] = ends
        state[ANEW] = anew
        state[0] = anew if anew > state[INNER] else state[INNER]

    def charge(self, state: Words, cost: int, now: int) -> int:
        anew = self.anew(state, now)
        ends = self.ends(state, anew)
        answer = self.inner.charge(state + INNER, cost, now)
        if answer != NO_ROOM:
            self.remember(state, ends, anew)
        return answer

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        if state[0] > now:
            self.inner.refund(state + INNER, cost, now, mark, kept)
            self.remember(state, state[ENDS], state[ANEW])
