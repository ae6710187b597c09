"""Token bucket and leaky bucket, kept as GCRA: one integer a key.

The state is the theoretical arrival time (TAT): the moment at which the bucket
will be full again. With T the time that one unit takes to come back and
B = burst * T the time that an empty bucket takes:

    tat   = max(TAT, now)                 an idle bucket does not overflow
    room  = B - (tat - now)               what is in the bucket, as time
    allow   when cost * T <= room         then TAT = tat + cost * T
    retry   when room has grown:          cost * T - room

In any interval t, no more than burst + t / T is admitted. T is rounded up to a
whole nanosecond, so the rate is never above the one asked for, and below it by
less than one part in T (a tenth of a percent at a million a second).

Regimes. *Debt*: a hit that finds at least one unit may take up to ``debt`` more
than there are; until refill has paid for it nothing else is admitted. *Charge*
(what was used is booked, fitting or not) can overdraw as well, by one full
bucket at most. *Clock stepped back*: TAT is never further ahead than those two
can bring it, so a bucket heals within that time. *Warm-up*: T falls from three
times its value to one over the ramp, in steps, and with it grow rate and burst
(there is always room for one).

*Reserve*: cost is booked at once and acted on when it fits:

    due   = max(now, tat + cost * T - B)  for a leaky bucket: tat
    TAT   = tat + cost * T                as if it had been taken already

So whoever comes later is due later, and all together stay within the envelope. A reservation
reaches as far as a charge: one full bucket ahead. *Cancel* undoes the last reservation. Others
behind it have been promised their times, which do not move. To give its units to somebody new
could bring two to the same moment, while the bucket overflows before that. So it gives back
nothing until all that was promised is due; then it is an ordinary refund.

A leaky bucket is the same arithmetic seen from below: TAT - now is the line, and
``delay`` is when this request's turn comes on an evenly paced line.
"""

from __future__ import annotations

from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import ALLOWED, LOOK, NO_MARK, REFUSED, Words
from penstock.decision import Decision
from penstock.limit_options import COLD, RAMP_STEPS
from penstock.limits import Limit


class TokenBucket(Algorithm):
    def __init__(self, limit: Limit) -> None:
        Algorithm.__init__(self, limit)
        self.interval = limit.interval_ns
        self.capacity = limit.burst * self.interval
        self.debt = limit.debt
        overrun = limit.soft.overrun if limit.soft is not None else 0
        weight = COLD if limit.warm_up_ns else 1
        self.ceiling = 2 * weight * (limit.burst + limit.debt + overrun) * limit.interval_ns
        self.paced = limit.algorithm == "leaky_bucket"
        self.most = limit.burst + limit.debt
        self.ramp_step = -(-limit.warm_up_ns // RAMP_STEPS)
        self.ramp_start = 0
        self.ramp_end = 0

    def start(self, now: int) -> None:
        if self.ramp_step:
            self.ramp_start = now
            self.ramp_end = now + self.ramp_step * RAMP_STEPS

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        interval, capacity = self.interval, self.capacity
        if now < self.ramp_end:
            interval = self.ramped(now)
            capacity = capacity if capacity > interval else interval
        tat = state[0]
        if tat < now:
            tat = now
        elif tat > now + self.ceiling:
            tat = now + self.ceiling
            if take:
                state[0] = tat
        room = capacity - (tat - now)
        need = (cost if self.debt == 0 else self.need(cost)) * interval
        out._unit = interval
        out._mark = tat
        if need <= room + extra * interval:
            if take:
                room -= cost * interval
                out._delay = tat - now if self.paced else 0
                tat += cost * interval
                state[0] = tat
            else:
                out._delay = tat - now if self.paced else 0
            out._allowed = True
            out._retry = 0
            out._room = room
            out._reset = tat - now
            return ALLOWED
        out._allowed = False
        out._delay = 0
        out._room = room
        out._reset = tat - now
        if now >= self.ramp_end:
            out._retry = need - room - extra * interval
        else:
            out._retry = self.ramped_retry(tat, cost, now, extra)
        return REFUSED

    def need(self, cost: int) -> int:
        """Units that must be there for a hit of ``cost``: fewer where it may borrow."""
        return cost - self.debt if cost > self.debt else 1

    def charge(self, state: Words, cost: int, now: int) -> int:
        interval = self.interval if now >= self.ramp_end else self.ramped(now)
        tat = state[0] if state[0] > now else now
        highest = now + self.ceiling
        # Not `cost * interval <= highest - tat`: a cost may be so large that this overflows. And
        # a TAT from a future that was taken back is above `highest`.
        if tat <= highest and cost <= (highest - tat) // interval:
            state[0] = tat + cost * interval
        else:
            state[0] = highest
        return ALLOWED

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        interval = self.interval if now >= self.ramp_end else self.ramped(now)
        tat = state[0]
        if tat <= now:
            return
        # Had the hit been for what is kept, the bucket would have been full some time
        # ago: what has come back since then is not given a second time.
        late = 0
        if mark != NO_MARK and now > mark and kept <= (now - mark) // interval:
            late = now - mark - kept * interval
        back = tat - now
        if cost <= (back + late) // interval:
            back = cost * interval - late
        if back > 0:
            state[0] = tat - back

    def reserve(self, state: Words, cost: int, now: int, patience: int, out: Decision) -> int:
        self.decide(state, cost, now, 0, LOOK, out)
        width = cost * out._unit
        # How long until it is due, and how much too early it asks.
        wait, early = out._mark - now, out._retry
        if not self.paced:
            wait, early = out._retry, out._mark - now + width - self.ceiling
        if 0 <= patience < wait - early:
            early = wait - patience
        out._allowed = early <= 0
        if early > 0:
            out._retry = early
            out._delay = 0
            return REFUSED
        self.charge(state, cost, now)
        out._retry = 0
        out._delay = wait
        out._room -= width
        out._reset += width
        return ALLOWED

    def cancel(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        interval, reach = self.interval, self.capacity
        if now < self.ramp_end:
            interval = self.ramped(now)
            reach = reach if reach > interval else interval
        tat = self.full_at(state)
        end = mark + (cost + kept) * interval
        due = end - reach
        if self.paced:
            due = mark
            reach = interval
        # Before it is due, a part of it cannot go: the rest would be due earlier.
        if kept > 0 and due > now:
            return
        if tat == end or tat - now <= reach:
            self.refund(state, cost, now, mark, kept)

    def full_at(self, state: Words) -> int:
        """TAT, as it was written."""
        return state[0]

    def ramped(self, now: int) -> int:
        """T at ``now`` while warming up: COLD * T falling to T."""
        step = (now - self.ramp_start) // self.ramp_step if now > self.ramp_start else 0
        share = RAMP_STEPS + (COLD - 1) * step
        return (self.interval * COLD * RAMP_STEPS + share - 1) // share

    def ramped_retry(self, tat: int, cost: int, now: int, extra: int) -> int:
        """Bisect for the first moment that allows it: T falls while time passes."""
        low = now
        high = self.ramp_end if self.ramp_end > tat else tat
        need = (cost if self.debt == 0 else self.need(cost)) - extra
        while high - low > 1:
            middle = low + (high - low) // 2
            interval = self.interval if middle >= self.ramp_end else self.ramped(middle)
            capacity = self.capacity if self.capacity > interval else interval
            behind = tat - middle if tat > middle else 0
            if need * interval <= capacity - behind:
                high = middle
            else:
                low = middle
        return high - now
