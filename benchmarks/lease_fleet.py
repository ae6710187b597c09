"""A fleet in virtual time: up to a thousand instances that lease one key from one bank.

The instances are `Lease`, the server is `Bank`, the twin of bank.lua. Here is only what lies
between them: requests that come at a rate, and messages that take half a round trip each way.
Requests between two events are counted together, which is what makes a thousand instances at
five million requests a second possible.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field

from penstock import Limit
from penstock.durations import MILLISECOND, SECOND
from penstock.stores.leased import law
from penstock.stores.leased.bank import Bank
from penstock.stores.leased.law import TAKEN
from penstock.stores.leased.lease import Lease
from penstock.stores.leased.messages import Message, Reply

START = 1_704_067_200 * SECOND
GATHER = MILLISECOND  # as in renewal.py


@dataclass
class Instance:
    rate: float  # requests a second
    lease: Lease
    until: int  # requests are counted up to then
    asking: bool = False
    offered: int = 0
    admitted: int = 0
    watched: int = 0  # the number of the event that watches it run low


@dataclass
class Result:
    """After the burst was spent, for so many seconds."""

    seconds: float
    offered: int = 0
    admitted: int = 0
    direct: int = 0
    messages: int = 0
    used: float = 0.0  # of what one bucket in one place would have admitted
    worst: float = 0.0  # the fullest interval, less rate x time, as a part of the burst
    ratios: list[float] = field(default_factory=list)  # admitted / offered, of each instance

    @property
    def local_share(self) -> float:
        return 1 - self.direct / self.offered

    @property
    def spread(self) -> float:
        """Between the tenth and the ninetieth percentile of the instances' ratios."""
        ordered = sorted(self.ratios)
        return ordered[len(ordered) * 9 // 10] - ordered[len(ordered) // 10]


class Fleet:
    def __init__(
        self, limit: Limit, rates: list[float], trip: int, horizon: int = law.HORIZON, seed: int = 1
    ) -> None:
        terms = law.terms_of(limit, horizon)
        assert terms is not None
        self.limit, self.terms, self.trip = limit, terms, trip
        self.bank = Bank(limit, terms)
        self.now = START
        self.chance = random.Random(seed)
        self.events: list[tuple[int, int, str, int, Message | None, Reply | None, int]] = []
        self.numbers = itertools.count()
        self.offers: dict[int, int] = {}  # by the millisecond
        self.admissions: dict[int, float] = {}
        self.messages = self.direct = 0
        self.instances = []
        for rate in rates:
            lease = Lease(None, "key", terms, START)
            lease.demand = int(rate)
            self.instances.append(Instance(rate, lease, START))
        for number, rate in enumerate(rates):
            if rate * terms.horizon >= law.HOT * SECOND:  # others stay direct
                self.put(START + self.chance.randrange(terms.horizon), "ask", number)

    def put(
        self, at: int, kind: str, number: int, message: Message | None = None,
        reply: Reply | None = None, sent: int = 0,
    ) -> int:  # fmt: skip
        event = next(self.numbers)
        heapq.heappush(self.events, (at, event, kind, number, message, reply, sent))
        return event

    # Requests ---------------------------------------------------------------------------

    def count(self, one: Instance, now: int) -> None:
        """The requests of an instance until ``now``; lease and bank do not change meanwhile."""
        lease = one.lease
        for edge in sorted((lease.deadline, lease.closed_until)):
            if one.until < edge < now:
                self._count(one, edge)
        self._count(one, now)

    def _count(self, one: Instance, now: int) -> None:
        lease, begin = one.lease, one.until
        mean = one.rate * (now - begin) / SECOND
        requests = max(0, int(mean + math.sqrt(mean) * self.chance.gauss() + self.chance.random()))
        one.until = now
        if requests == 0:
            return
        one.offered += requests
        here = min(requests, lease.available) if begin < lease.deadline else 0
        if here:
            assert lease.spend(here, begin) == TAKEN
            self.admit(one, begin, now, here, requests)
        rest = requests - here
        lease.offered += rest
        if rest and not (begin < lease.closed_until and lease.usual >= 1):
            self.direct += rest
            row = self.bank.row
            fits = min(rest, max(0, row.room(now) // row.unit))
            if fits:
                row.take(fits, now)
                self.admit(one, now - 1, now, fits, fits)

    def admit(self, one: Instance, begin: int, end: int, units: int, requests: int) -> None:
        """The first ``units`` of the requests between two moments."""
        one.admitted += units
        last = begin + (end - begin) * units // requests
        first_ms, last_ms = begin // MILLISECOND, last // MILLISECOND
        part = units / (last_ms - first_ms + 1)
        for at in range(first_ms, last_ms + 1):
            self.admissions[at] = self.admissions.get(at, 0.0) + part

    # Events -----------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * SECOND)
        while self.events and self.events[0][0] <= end:
            self.now, event, kind, number, message, reply, sent = heapq.heappop(self.events)
            one = self.instances[number]
            if kind == "low":
                if event == one.watched:
                    self.count(one, self.now)
                    self.watch(one, number)
            elif kind == "ask":
                if sent or (not one.asking and one.lease.due in (0, self.now)):
                    self.count(one, self.now)
                    self.ask(one, number)
            elif kind == "arrive":
                assert message is not None
                answer = self.bank.call(message, self.now)
                self.put(self.now + self.trip // 2, "answer", number, message, answer, sent)
            elif message is not None and reply is not None:
                self.count(one, self.now)
                one.lease.receive(message, reply, sent, self.now)
                one.asking = False
                wait = reply.wait or reply.life // 2 or self.terms.horizon
                one.lease.due = max(self.now, sent + wait)
                self.put(one.lease.due, "ask", number)
                self.watch(one, number)
        self.now = end
        for one in self.instances:
            self.count(one, end)

    def ask(self, one: Instance, number: int) -> None:
        lease, one.asking = one.lease, True
        lease.measure(self.now)
        name = b"%d.%d" % (number, next(self.numbers))
        message = lease.message(name, self.now, lease.wanted())
        self.messages += 1
        self.put(self.now + self.trip // 2, "arrive", number, message, None, self.now)

    def watch(self, one: Instance, number: int) -> None:
        """Ask if the lease runs low, or come back when it will."""
        lease = one.lease
        if one.asking:
            return
        if lease.closed_until:
            return  # a timer asks
        if lease.available <= lease.low:
            one.asking = True
            self.put(self.now + GATHER, "ask", number, sent=1)
        else:
            left = max(1, lease.available - lease.low)
            one.watched = self.put(self.now + max(1, int(left / one.rate * SECOND)), "low", number)


def play(
    limit: str, rates: list[float], trip: int, horizon: int = law.HORIZON, seconds: float = 5.0,
    settle: float = 3.0,
) -> Result:  # fmt: skip
    """Let the burst pass, and then look for some seconds."""
    parsed = Limit.parse(limit)
    fleet = Fleet(parsed, rates, trip, horizon)
    fleet.run(settle)
    before = (
        [(one.offered, one.admitted) for one in fleet.instances], fleet.messages, fleet.direct,
    )  # fmt: skip
    fleet.run(seconds)
    result = Result(seconds, messages=fleet.messages - before[1], direct=fleet.direct - before[2])
    for one, (offered, admitted) in zip(fleet.instances, before[0], strict=True):
        result.offered += one.offered - offered
        result.admitted += one.admitted - admitted
        result.ratios.append((one.admitted - admitted) / max(1, one.offered - offered))
    rate = parsed.amount * SECOND / parsed.period_ns
    result.used = result.admitted / min(result.offered, rate * seconds)
    result.worst = _fullest(fleet.admissions, rate) / parsed.burst
    return result


def _fullest(admissions: dict[int, float], rate: float) -> float:
    """The most that any interval has beyond rate x time, counted by milliseconds."""
    per_ms, level, worst = rate / 1000, 0.0, 0.0
    for at in range(min(admissions), max(admissions) + 1):
        level = max(0.0, level - per_ms) + admissions.get(at, 0.0)
        worst = max(worst, level - per_ms)
    return worst


def uneven(instances: int, total: float) -> list[float]:
    """Rates that differ by up to a factor of nine, as instances behind load balancers do."""
    weights = [0.2 + 1.6 * number / max(1, instances - 1) for number in range(instances)]
    return [total * weight / sum(weights) for weight in weights]
