"""An account: one limit at home, and what each region may be using of it. Twin of `home.lua`.

A share is a *rate lease*. Until it ends, the site's bucket may hold `burst` units more than its
floor, and fills faster by `rate`. The account keeps what is not lent::

    free      units that wait at home, in parts of 1 / span
    grows     by the lendable rate less all lent rates, up to the lendable burst less all lent

    a larger burst     may come with units that were free (`paid`), or empty
    a smaller burst    the site keeps what fits, and returns the rest once it has applied it
    a decrease         counts as the old numbers until the site has applied it, or the lease
                       that had them has ended

So all that sites have and the free units together never exceed the lendable burst, and never
grow faster than the lendable rate. docs/design/regions.md has the proof.

``now`` is in milliseconds, by the clock of the home.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.stores.regions.law import NEAR, Terms, Times, averaged, share

# What a request is about: more of a lease, or that a decrease has been applied.
REPORT, CONFIRM = range(2)


class Request(NamedTuple):
    """``number``, ``burst`` and ``rate`` are what the site has applied, for ``left`` ms more."""

    kind: int
    demand: int = 0  # units in a span
    number: int = 0
    burst: int = 0
    rate: int = 0
    left: int = 0
    returned: int = 0  # units that did not fit in any more


class Reply(NamedTuple):
    """The share of a region: ``number`` names it, and is the time of the grant."""

    burst: int
    rate: int
    paid: int
    number: int
    lent_rate: int  # to all regions
    lent_burst: int
    free: int
    holders: int


@dataclass(slots=True)
class Holder:
    """What one region was lent last, and what it may be using still (``old_``)."""

    name: str
    burst: int = 0
    rate: int = 0
    number: int = 0
    end: int = 0
    old_burst: int = 0
    old_rate: int = 0
    old_end: int = 0
    proven: int = 0
    demand: float = -1
    seen: int = 0

    @property
    def burst_out(self) -> int:
        return max(self.burst, self.old_burst)

    @property
    def rate_out(self) -> int:
        return max(self.rate, self.old_rate)


_NONE = Terms(1, 1, 1)


@dataclass(slots=True)
class Account:
    """New, it is full: nobody has been lent anything; unless the home is new, too, and may have
    forgotten what was. ``free`` is -1 until it is first used."""

    times: Times
    terms: Terms = _NONE
    rate: int = 0  # lendable
    burst: int = 0
    free: int = -1
    at: int = 0
    holders: dict[str, Holder] = field(default_factory=dict)

    def settle(
        self, region: str, request: Request, terms: Terms, floors: Mapping[str, int], now: int,
        opens: int = 0,
        empty: int = 0,
    ) -> Reply:  # fmt: skip
        """Do what a request asks for. What the reply lends is booked already.

        Until ``opens``, what is lent may be renewed, and nothing more be lent; nor is there
        anything free, as others may still be using what the home has forgotten. An account
        that was forgotten was ``empty`` until then; 0 if there was none.
        """
        self._refill(now, opens)
        self._change(terms, floors, now, empty)
        holder = self._claimed(self.holders.get(region), region, request, now)
        if holder is not None:
            self._prove(holder, request)
        if request.kind == REPORT:
            if holder is None:
                holder = self.holders[region] = Holder(region)
            holder.demand = averaged(
                holder.demand, request.demand, now - holder.seen, self.times.memory
            )
            holder.seen = now
            return self._lend(holder, floors, now, now < opens)
        return self._reply(holder or Holder(region), 0)

    # Time ---------------------------------------------------------------------------------

    def _refill(self, now: int, opens: int) -> None:
        if self.free < 0:
            return
        if now < self.at:  # the clock was set back: nothing lasts longer than a new lease
            for each in self.holders.values():
                each.end = min(each.end, now + self.times.whole)
                each.old_end = min(each.old_end, now + self.times.whole)
                each.seen = min(each.seen, now)
            self.at = now
        self.free += (self.rate - self._rate_out()) * (now - max(self.at, min(now, opens)))
        self.at = now
        self._cap()
        for each in list(self.holders.values()):  # after the refill: what they had counts till now
            if each.end <= now:
                del self.holders[each.name]
            elif each.old_end <= now:
                each.old_burst = each.old_rate = each.old_end = 0

    def _change(self, terms: Terms, floors: Mapping[str, int], now: int, empty: int) -> None:
        """Floors may have changed. What is out stays out until it is taken back.

        The terms are always the same: the limit is a part of the account's key.
        """
        rate, burst = terms.lendable(floors.values())
        if self.free < 0:
            self.free, self.at = min(burst * terms.span, max(0, now - empty) * rate), now
        self.terms, self.rate, self.burst = terms, rate, burst
        self._cap()

    def _cap(self) -> None:
        room = max(0, self.burst - self._burst_out()) * self.terms.span
        self.free = max(0, min(self.free, room))

    # What the site says -------------------------------------------------------------------

    def _claimed(
        self, holder: Holder | None, region: str, request: Request, now: int
    ) -> Holder | None:
        """Believe a share that the home has forgotten, in a fail-over."""
        if request.number == 0 or request.left <= 0 or request.burst + request.rate == 0:
            return holder
        if holder is not None and request.number <= holder.number:
            return holder
        if holder is None:
            holder = self.holders[region] = Holder(region)
        before = holder.burst_out
        self._keep_old(holder, request.burst, request.rate)
        holder.burst, holder.rate = request.burst, request.rate
        holder.number, holder.end = request.number, now + request.left + self.times.slack
        self.free = max(0, self.free - (holder.burst_out - before) * self.terms.span)
        self._cap()
        return holder

    def _prove(self, holder: Holder, request: Request) -> None:
        if request.number != holder.number or holder.proven >= holder.number:
            return
        holder.proven = holder.number
        holder.old_burst = holder.old_rate = holder.old_end = 0
        if request.kind == CONFIRM:
            self.free += request.returned * self.terms.span
            self._cap()

    # What it gets ---------------------------------------------------------------------------

    def _lend(self, holder: Holder, floors: Mapping[str, int], now: int, learning: bool) -> Reply:
        rate, burst = self._fair(holder, floors)
        if learning:
            rate, burst = min(rate, holder.rate), min(burst, holder.burst)
        rate = max(0, min(rate, self.rate - (self._rate_out() - holder.rate_out)))
        burst = max(0, min(burst, self.burst - (self._burst_out() - holder.burst_out)))
        if self._is_near(holder, rate, burst):
            rate, burst = holder.rate, holder.burst
        paid = max(0, min(burst - holder.burst, self.free // self.terms.span))
        self._keep_old(holder, burst, rate)
        self.free -= paid * self.terms.span
        holder.burst, holder.rate = burst, rate
        holder.number = max(holder.number + 1, now)
        holder.end = now + self.times.whole
        self._cap()
        return self._reply(holder, paid)

    def _fair(self, holder: Holder, floors: Mapping[str, int]) -> tuple[int, int]:
        """The rate and burst that a region should have."""
        total = own = 0.0
        for each in self.holders.values():
            reserved, _ = self.terms.part(floors.get(each.name, 0))
            excess = max(0.0, each.demand - reserved)
            total += excess
            if each is holder:
                own = excess
        part = share(self.rate, own, total, len(self.holders))
        rate = min(math.floor(part), self.rate)
        return rate, math.floor(self.burst * rate / max(1, self.rate))

    def _is_near(self, holder: Holder, rate: int, burst: int) -> bool:
        """Whether the numbers that a region has are as good, so that they need no change."""
        if self._rate_out() > self.rate or self._burst_out() > self.burst:
            return False
        near_rate = abs(rate - holder.rate) * NEAR <= self.rate
        return near_rate and abs(burst - holder.burst) * NEAR <= self.burst

    def _keep_old(self, holder: Holder, burst: int, rate: int) -> None:
        """A site may go on with what it has until it has applied the decrease."""
        if holder.burst > burst or holder.rate > rate:
            holder.old_burst = max(holder.old_burst, holder.burst)
            holder.old_rate = max(holder.old_rate, holder.rate)
            holder.old_end = max(holder.old_end, holder.end)

    # Sums -----------------------------------------------------------------------------------

    def _rate_out(self) -> int:
        return sum(each.rate_out for each in self.holders.values())

    def _burst_out(self) -> int:
        return sum(each.burst_out for each in self.holders.values())

    def _reply(self, holder: Holder, paid: int) -> Reply:
        return Reply(
            holder.burst, holder.rate, paid, holder.number, self._rate_out(), self._burst_out(),
            self.free, len(self.holders),
        )  # fmt: skip
