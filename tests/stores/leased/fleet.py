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

    def admit(self, units: int) -> None:
        self.admitted += units
        row = self.bank.row
        if isinstance(row, BucketRow):
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
            self.admit(cost)
        return outcome

    def hit_directly(self, cost: int) -> bool:
        fits = self.bank.hit(cost, self.now)
        if fits:
            self.booked += cost
            self.admit(cost)
        return fits

    def undo(self, instance: Instance, cost: int) -> None:
        """Take back hits of a moment ago."""
        if instance.lease.put_back(cost, instance.now(self.now)):
            self.admitted -= cost
            if isinstance(self.bank.row, BucketRow):
                self.virtual -= cost * self.bank.row.unit
            else:
                self.windows[self.bank.row.mark(self.now)] -= cost

    # The network ------------------------------------------------------------------------

    def ask(self, instance: Instance, want: int | None = None) -> Request:
        here = instance.now(self.now)
        instance.lease.measure(here)
        if want is None:
            want = instance.lease.wanted()
        instance.restarts += 1
        holder = f"{instance.name}.{instance.restarts}".encode()
        request = Request(instance, instance.lease.message(holder, here, want), here)
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
        request.reply = self.bank.call(message, self.now)
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
