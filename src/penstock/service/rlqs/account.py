"""An account: one limit, and what each Envoy may be using of it. Twin of `bank.lua`.

An assignment is a *rate lease*: Envoy may spend `burst` tokens at once, and `rate` from then on,
until it expires. The account keeps what nobody was assigned::

    free      tokens that can still be assigned as burst, in units of Terms.unit
    grows     by the limit's rate less all assigned rates, up to the burst less all assigned bursts

    first, after a denial, after expiry     Envoy's bucket begins full: its burst is paid in full
    a larger burst                          the difference is paid: Envoy keeps the fraction
    a decrease                              counts as the old numbers until it is proven
                                            to have arrived, or the old ones have expired

So the tokens of all Envoys and the free ones together never exceed the burst, and never grow
faster than the rate. docs/design/rlqs.md has the proof.

``now`` is in milliseconds, by the clock of the bank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.service.rlqs.shares import (
    REPORTS,
    SAME_NODE,
    SHORTEST_SAMPLE,
    SLACK,
    TTL,
    Terms,
    averaged,
    reach,
    share,
    total_of,
)

# What a request is about. A report is always answered; a look only if much has changed.
REPORT, LOOK, RELEASE, LEAVE, CONFIRM = range(5)
# How the bank answers: the numbers to send, nothing to send, or another Envoy has this name.
ASSIGNED, UNCHANGED, CONFLICT = range(3)


class Request(NamedTuple):
    """``sent`` is the last assignment on this stream, and ``proven`` the last that is known to
    have arrived; ``burst`` and ``rate`` are what ``sent`` contained, for a bank that forgot it.
    """

    kind: int
    holder: str  # the node, and the bucket if there are several to an account
    stream: str
    requests: int = 0
    sent: int = 0
    proven: int = 0
    burst: int = 0
    rate: int = 0
    provable: bool = True


class Reply(NamedTuple):
    """``number`` names the assignment, and is the time of the grant. ``wait``: ask again then."""

    status: int
    burst: int
    rate: int
    number: int
    wanted: int  # the rate that it should have
    wait: int
    nodes: int
    demand: float  # of this node, requests a second
    total: float  # of all nodes
    rate_out: int
    burst_out: int
    free: int


@dataclass(slots=True)
class Holder:
    """What one Envoy was assigned last, and what it may be using still (``old_``)."""

    name: str
    stream: str = ""
    burst: int = 0
    rate: int = 0
    number: int = 0
    end: int = 0
    old_burst: int = 0
    old_rate: int = 0
    old_end: int = 0
    arrived: int = 0  # the last assignment that is known to have arrived
    demand: float = -1
    requests: int = 0
    since: int = 0
    seen: int = 0
    provable: bool = True
    # The rate as it was sent, in tokens per `interval`: other rules may have another interval.
    told: int = 0
    interval: int = 0

    @property
    def burst_out(self) -> int:
        return max(self.burst, self.old_burst)

    @property
    def rate_out(self) -> int:
        return max(self.rate, self.old_rate)


@dataclass(slots=True)
class Account:
    """New, it is full: nobody has been assigned anything."""

    terms: Terms
    free: int = -1
    at: int = 0
    holders: dict[str, Holder] = field(default_factory=dict)

    def settle(self, request: Request, terms: Terms, now: int) -> Reply:
        """Do what a request asks for. What the reply assigns is reserved already."""
        self._refill(now)
        if terms != self.terms:
            self._change(terms)
        holder = self.holders.get(request.holder)
        if holder is not None and self._is_other(holder, request, now):
            return self._reply(CONFLICT, holder, now)
        holder = self._claimed(holder, request, now)
        if holder is not None:
            self._prove(holder, request, now)
            if holder.end <= now:
                del self.holders[holder.name]
                holder = None
        if request.kind == REPORT:
            if holder is None:
                holder = Holder(request.holder, since=now)
                self.holders[holder.name] = holder
            self._count(holder, request, now)
            return self._assign(holder, request, now)
        if holder is None:
            return self._reply(UNCHANGED, Holder(request.holder), now)
        if request.kind == LOOK:
            if now - holder.seen > 2 * REPORTS:  # it may be gone
                return self._reply(UNCHANGED, holder, now)
            return self._assign(holder, request, now)
        if request.kind == RELEASE:
            self._book(holder, 0, 0, now)
            holder.stream, holder.demand, holder.end = "", -1, holder.old_end
            if holder.end <= now:
                del self.holders[holder.name]
            return self._reply(ASSIGNED, holder, now)
        if request.kind == LEAVE:
            holder.stream = ""
        return self._reply(UNCHANGED, holder, now)

    def expiry(self) -> int:
        """When it will be as good as new, if nothing comes."""
        full = -(-self.terms.burst * self.terms.unit // max(1, self.terms.rate))
        return max([self.at, *(each.end for each in self.holders.values())]) + full

    # Time ---------------------------------------------------------------------------------

    def _refill(self, now: int) -> None:
        unit = self.terms.unit
        if self.free < 0:
            self.free, self.at = self.terms.burst * unit, now
        if now < self.at:  # the clock was set back: nothing lasts longer than a new assignment
            for each in self.holders.values():
                each.end = min(each.end, now + TTL + SLACK)
                each.old_end = min(each.old_end, now + TTL + SLACK)
                each.arrived, each.since = min(each.arrived, now), min(each.since, now)
                each.seen = min(each.seen, now)
            self.at = now
        self.free += (self.terms.rate - self._rate_out()) * (now - self.at)
        self.at = now
        self._cap()
        for each in list(self.holders.values()):  # after the refill: what they had counts till now
            if each.end <= now:
                del self.holders[each.name]
            elif each.old_end <= now:
                each.old_burst = each.old_rate = each.old_end = 0

    def _cap(self) -> None:
        room = max(0, self.terms.burst - self._burst_out()) * self.terms.unit
        self.free = max(0, min(self.free, room))

    def _change(self, terms: Terms) -> None:
        """Other rules are in force. What is out stays out until it is taken back."""
        new, old = terms.interval, self.terms.interval
        if new != old:
            self.free = self.free * new // old
            for each in self.holders.values():
                each.rate = -(-each.rate * new // old)
                each.old_rate = -(-each.old_rate * new // old)
        self.terms = terms
        self._cap()

    # What the stream says -------------------------------------------------------------------

    def _is_other(self, holder: Holder, request: Request, now: int) -> bool:
        """Whether another Envoy, which is there now, has the same name."""
        if holder.stream in ("", request.stream):
            return False
        return now - holder.seen < SAME_NODE or request.kind != REPORT

    def _claimed(self, holder: Holder | None, request: Request, now: int) -> Holder | None:
        """Believe an assignment that the bank has forgotten, in a fail-over."""
        sent = min(request.sent, now)
        end = sent + TTL + SLACK
        if request.sent == 0 or request.rate == 0 or end <= now:
            return holder
        if holder is not None and sent <= holder.number:
            return holder
        if holder is None:
            holder = self.holders[request.holder] = Holder(request.holder, since=now)
        before = holder.burst_out
        self._keep_old(holder, request.burst, request.rate)
        holder.burst, holder.rate = request.burst, request.rate
        holder.number, holder.end = sent, end
        self.free = max(0, self.free - (holder.burst_out - before) * self.terms.unit)
        self._cap()
        return holder

    def _prove(self, holder: Holder, request: Request, now: int) -> None:
        proven = min(request.proven, now)
        holder.arrived = max(holder.arrived, min(proven, holder.number))
        if request.provable and request.proven == holder.number > 0:
            holder.old_burst = holder.old_rate = holder.old_end = 0
            if request.kind == CONFIRM and holder.rate == 0 and not holder.stream:
                holder.end = now

    def _count(self, holder: Holder, request: Request, now: int) -> None:
        elapsed = now - holder.since
        holder.requests += request.requests
        if elapsed >= SHORTEST_SAMPLE:
            holder.demand = averaged(holder.demand, holder.requests, elapsed)
            holder.requests, holder.since = 0, now
        holder.stream, holder.seen, holder.provable = request.stream, now, request.provable

    # What it gets ---------------------------------------------------------------------------

    def _assign(self, holder: Holder, request: Request, now: int) -> Reply:
        terms, unit = self.terms, self.terms.unit
        rate, burst = self._fair(holder)
        others_rate = self._rate_out() - holder.rate_out
        is_fresh = holder.burst == 0 or (
            now + SLACK > max(holder.arrived, min(request.sent, now)) + TTL
        )
        most_rate = max(0, terms.rate - others_rate)
        if holder.demand < 0 and not holder.provable:
            # It could not give back quickly what it turns out not to need.
            most_rate //= 2
            burst = max(1, burst // 2)
        wanted, affordable = rate, self.free // unit
        rate = min(rate, most_rate)
        if is_fresh:
            # So much that a tenth of a second's requests fit; less would waste its rate.
            least = min(burst, max(1, rate // (10 * terms.interval)))
            burst = min(burst, affordable)
            paid = burst
        else:
            least = 1
            burst = min(burst, holder.burst + affordable)
            paid = max(0, burst - holder.burst)
        if burst < least or rate < 1:
            burst = rate = paid = 0
        elif holder.interval != terms.interval and (burst, rate) == (holder.burst, holder.told):
            rate = max(1, rate - 1)  # Envoy does not notice a change of the interval alone
        if not is_fresh and self._is_near(holder, rate, burst, request.kind):
            rate, burst, paid = holder.rate, holder.burst, 0
            if request.kind == LOOK:
                return self._reply(UNCHANGED, holder, now, wanted)
        elif request.kind == LOOK and burst == holder.burst and rate == holder.rate:
            return self._reply(UNCHANGED, holder, now, wanted, least)
        self.free -= paid * unit
        self._book(holder, burst, rate, now)
        return self._reply(ASSIGNED, holder, now, wanted, least)

    def _fair(self, holder: Holder) -> tuple[int, int]:
        """The rate and burst that a holder should have."""
        terms = self.terms
        demands = [max(0.0, each.demand) * terms.interval for each in self.holders.values()]
        bursts = [each.burst for each in self.holders.values()]
        provable = all(each.provable for each in self.holders.values())
        most = reach(terms, demands, bursts, self.free, provable)
        demand = max(0.0, holder.demand) * terms.interval
        rate = math.floor(share(most, demand, total_of(demands), len(demands)))
        rate = min(max(1, rate), terms.rate)
        return rate, max(1, math.floor(terms.burst * rate / terms.rate))

    def _is_near(self, holder: Holder, rate: int, burst: int, kind: int) -> bool:
        """Whether the numbers that a holder has are as good, so that they need no change.

        What comes with a report may be exact. A change by itself has to be worth a message.
        """
        terms = self.terms
        if self._rate_out() > terms.rate or self._burst_out() > terms.burst:
            return False
        part, least = (200, 20) if kind == REPORT else (50, 4)
        if not holder.provable:
            part = 10  # a decrease counts for nothing until the old numbers have expired
        near_rate = abs(rate - holder.rate) * part <= terms.rate
        return near_rate and abs(burst - holder.burst) * least <= max(holder.burst, least)

    def _book(self, holder: Holder, burst: int, rate: int, now: int) -> None:
        self._keep_old(holder, burst, rate)
        holder.burst, holder.rate = burst, rate
        holder.told, holder.interval = rate, self.terms.interval
        holder.number = max(holder.number + 1, now)
        holder.end = now + TTL + SLACK

    def _keep_old(self, holder: Holder, burst: int, rate: int) -> None:
        """Envoy may go on with what it has until the decrease has arrived."""
        if holder.burst > burst or holder.rate > rate:
            holder.old_burst = max(holder.old_burst, holder.burst)
            holder.old_rate = max(holder.old_rate, holder.rate)
            holder.old_end = max(holder.old_end, holder.end)

    def _rate_out(self) -> int:
        return sum([each.rate_out for each in self.holders.values()])

    def _burst_out(self) -> int:
        return sum([each.burst_out for each in self.holders.values()])

    def _reply(
        self, status: int, holder: Holder, now: int, wanted: int = 0, least: int = 0
    ) -> Reply:
        rate_out, wait = self._rate_out(), 0
        growth = self.terms.rate - rate_out
        if holder.burst == 0 and least > 0 and growth > 0:
            wait = -(-(least * self.terms.unit - self.free) // growth)
        return Reply(
            status, holder.burst, holder.rate, holder.number, wanted, max(0, wait),
            len(self.holders), max(0.0, holder.demand),
            total_of([max(0.0, each.demand) for each in self.holders.values()]),
            rate_out, self._burst_out(), self.free,
        )  # fmt: skip
