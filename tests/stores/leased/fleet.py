"""A fleet in virtual time: instances with leases, a bank, and a network that does as it likes.

`Fleet` checks every admission: no interval may see more than burst + rate x time, or, of a
window, more than its amount. A fail-over that forgets grants may add what it forgot, once.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from penstock import Limit
from penstock.durations import MICROSECOND, SECOND
from penstock.stores.leased import law
from penstock.stores.leased.bank import Bank
from penstock.stores.leased.law import TAKEN
from penstock.stores.leased.lease import Lease
from penstock.stores.leased.messages import Message, Reply
from penstock.stores.leased.rows import BucketRow

START = 1_704_067_200 * SECOND


class Overrun(AssertionError):
    """More was admitted than the limit allows."""


@dataclass
class Instance:
    """A process: its clock may be anywhere, and runs up to 1 % too fast or too slow."""

    name: str
    lease: Lease
    ahead: int
    speed: int  # of a thousand
    restarts: int = 0

    def now(self, true: int) -> int:
        return self.ahead + (true - START) * self.speed // 1000


@dataclass
class Request:
    instance: Instance
    message: Message
    terms: law.Terms
    sent: int
    reply: Reply | None = None


@dataclass
class Fleet:
    limit: Limit
    now: int = START
    instances: list[Instance] = field(default_factory=list)
    flying: list[Request] = field(default_factory=list)
    admitted: int = 0

    def __post_init__(self) -> None:
        terms = law.terms_of(self.limit)
        assert terms is not None, self.limit
        self.terms = terms
        self.bank = Bank(self.limit, terms)
        self.virtual = 0  # the TAT of a bucket that saw the admissions and nothing else
        # Those since it was last full: when, how many, and by whom.
        self.recent: list[tuple[int, int, Instance | None]] = []
        self.windows: dict[int, int] = {}
        self.booked = 0
        self.saved: tuple[Bank, int] | None = None
        self.forgotten = 0

    def add(self, ahead: int = 0, speed: int = 1000) -> Instance:
        name = f"i{len(self.instances)}"
        made = Instance(name, Lease(None, "k", self.terms, ahead), ahead, speed)
        self.instances.append(made)
        return made

    def pass_time(self, nanoseconds: int) -> None:
        self.now += nanoseconds // MICROSECOND * MICROSECOND

    # Admissions -------------------------------------------------------------------------

    def admit(self, units: int, instance: Instance | None = None) -> None:
        self.admitted += units
        row = self.bank.row
        if isinstance(row, BucketRow):
            if self.virtual <= self.now:
                self.recent.clear()
            self.recent.append((self.now, units, instance))
            self.virtual = max(self.virtual, self.now) + units * row.unit
            over = self.virtual - self.now - row.capacity - self.forgotten * row.unit
            if over > 0:
                raise Overrun(f"by {over / row.unit} units at {self.now - START}")
            return
        end = row.mark(self.now)
        self.windows[end] = self.windows.get(end, 0) + units
        if self.windows[end] > self.limit.amount + self.forgotten:
            raise Overrun(f"{self.windows[end]} in one window")

    def hit(self, instance: Instance, cost: int) -> int:
        """A hit that the instance decides here, or else not at all."""
        outcome = instance.lease.spend(cost, instance.now(self.now))
        if outcome == TAKEN:
            self.admit(cost, instance)
        return outcome

    def hit_directly(self, cost: int) -> bool:
        fits = self.bank.hit(cost, self.now)
        if fits:
            self.booked += cost
            self.admit(cost)
        return fits

    def undo(self, instance: Instance, cost: int) -> bool:
        """Take back hits of a moment ago, if the lease can: as if they had never been."""
        done = instance.lease.put_back(cost, instance.now(self.now))
        if done:
            self.admitted -= cost
            row = self.bank.row
            if isinstance(row, BucketRow):
                self._forget_latest(instance, cost, row.unit)
            else:
                # Only what was admitted in this window can come back to it.
                end = row.mark(self.now)
                assert self.windows.get(end, 0) >= cost, "it was another window's"
                self.windows[end] -= cost
        return done

    def _forget_latest(self, instance: Instance, cost: int, unit: int) -> None:
        """Its latest admissions; then what the bucket would be without them.

        Those from before the bucket was last full make no difference any more.
        """
        for at in reversed(range(len(self.recent))):
            moment, units, who = self.recent[at]
            if who is instance and cost > 0:
                taken = min(units, cost)
                cost -= taken
                self.recent[at] = moment, units - taken, who
        self.virtual = 0
        for moment, units, _ in self.recent:
            if units:
                self.virtual = max(self.virtual, moment) + units * unit

    def stretch(self, instance: Instance, factor: int, share: float = law.SHARE) -> None:
        """The instance asks on other terms from now on, as far as the limit allows."""
        terms = law.stretched(self.limit, law.HORIZON, None, factor, share)
        assert terms is not None
        instance.lease.terms = terms

    # The network ------------------------------------------------------------------------

    def ask(self, instance: Instance, want: int | None = None) -> Request:
        here = instance.now(self.now)
        instance.lease.measure(here)
        if want is None:
            want = instance.lease.wanted()
        instance.restarts += 1
        holder = f"{instance.name}.{instance.restarts}".encode()
        lease = instance.lease
        request = Request(instance, lease.message(holder, here, want), lease.terms, here)
        self.flying.append(request)
        return request

    def arrive(self, request: Request) -> None:
        """At the bank; may be done again."""
        message = request.message
        known = self.bank.records.get(message.holder)
        if known is None or known.end <= self.now // MICROSECOND:
            before = message.spent + message.returned
        else:
            before = known.granted
        request.reply = self.bank.call(message, self.now, request.terms)
        self.booked += request.reply.granted - before
        self._check_cover()

    def answer(self, request: Request) -> None:
        """At the instance; may be done again."""
        if request.reply is not None:
            request.instance.lease.receive(request.message, request.reply, request.sent)

    def crash(self, instance: Instance) -> None:
        """Everything in memory is gone, and another process takes its place."""
        instance.name += "'"
        instance.lease = Lease(None, "k", self.terms, instance.now(self.now))

    def save(self) -> None:
        """A replica has everything up to now."""
        self.saved = copy.deepcopy(self.bank), self.booked

    def fail_over(self) -> None:
        """To the replica; what was booked since is forgotten."""
        if self.saved is not None:
            self.bank, booked = copy.deepcopy(self.saved[0]), self.saved[1]
            self.forgotten += self.booked - booked
            self.saved = copy.deepcopy(self.bank), self.booked

    def _check_cover(self) -> None:
        """The invariant of bank.py."""
        row = self.bank.row
        records = [each for each in self.bank.records.values() if each.out > 0]
        if isinstance(row, BucketRow):
            out = sum(record.out for record in records)
            for record in records:
                assert row.tat >= record.end * MICROSECOND + out * row.unit
