"""The bank: a limit's row, and the leases that were granted from it. Twin of `bank.lua`.

The row is the one that direct decisions use. A grant takes from it exactly as a hit does, and
a return gives back, so instances that know nothing of leases decide correctly beside those
that do. Beside the row is a record for each holder: how much it was granted, has spent and
has given back, its demand, and until when the bank vouches for the rest; and the sums of these.

A bucket refills while units are out, and must not become full before they are spent or dead:
then both the full bucket and the units could be spent at once. So with o units out, every
call leaves behind

    TAT >= end + o * T      for the end of every lease that is still live

where `end` is as late as the row allows by itself, and at least ``cover`` from now, for which
TAT is moved if necessary. docs/design/leases.md has the proof.

This model is what the tests check the Lua against, and what they check the law with.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.durations import MICROSECOND
from penstock.limits import Limit
from penstock.stores.leased import law
from penstock.stores.leased.messages import Message, Reply
from penstock.stores.leased.rows import BucketRow, row_of


@dataclass
class Record:
    """What the bank knows of one holder. Times are in microseconds since 1970."""

    granted: int = 0
    spent: int = 0
    returned: int = 0
    demand: int = 0
    end: int = 0
    last: int = 0  # when it last got something

    @property
    def out(self) -> int:
        return self.granted - self.spent - self.returned


class Bank:
    """The state of one key in a server, as the script sees it.

    The sums over all records are kept, so that a call needs only its own record. Records that
    have ended stay in the sums until the next sweep: too much seems to be out, never too little.
    """

    def __init__(self, limit: Limit, terms: law.Terms) -> None:
        self.terms = terms
        self.row = row_of(limit)
        self.records: dict[bytes, Record] = {}
        self.out = 0
        self.demand = 0
        self.swept = 0  # when the sums were last computed anew

    def hit(self, cost: int, now: int) -> bool:
        """A direct decision, by an instance that may know nothing of leases."""
        fits = cost * self.row.unit <= self.row.room(now)
        if fits:
            self.row.take(cost, now)
        return fits

    def call(self, message: Message, now: int, terms: law.Terms | None = None) -> Reply:
        """What `bank.lua` does for one key. ``terms`` may differ from one holder to the next."""
        terms, row, moment = terms or self.terms, self.row, now // MICROSECOND
        known = self._known(message.holder, moment, terms)
        vouched = known is not None and known.out > 0
        record = self._settled(message, known, terms, now)
        if record is None:
            return Reply(0, 0, 0, row.room(now), 0, len(self.records), row.mark(now), 0)
        free = row.room(now) // row.unit
        if isinstance(row, BucketRow):
            free = min(free, (row.capacity - terms.cover) // row.unit - self.out)
        free = max(0, free)
        got, useful = law.divide(
            terms, message.want, free, record.out, message.demand, self.demand, len(self.records),
            (moment - record.last) * MICROSECOND,
        )  # fmt: skip
        if got > 0:
            row.take(got, now)
            record.granted += got
            record.last = moment
            self.out += got
        self._vouch(record, vouched, terms, now)

        out, mark, wait, end = self.out, row.mark(now), 0, 0
        if isinstance(row, BucketRow):
            if got < useful:
                wait = terms.horizon
            mark -= out * row.unit
        else:
            end = mark - now
            if message.want > 0 and free - got < 1:
                wait = min(10 * terms.horizon, end)
        if message.want == 0 and record.out == 0:
            self._drop(message.holder)
        return Reply(
            granted=record.granted,
            life=(record.end - moment) * MICROSECOND if record.out > 0 else 0,
            wait=-(-wait // MICROSECOND) * MICROSECOND,
            room=row.room(now),
            out=out,
            holders=len(self.records),
            mark=mark,
            end=end,
        )

    def _known(self, holder: bytes, moment: int, terms: law.Terms) -> Record | None:
        """The record of the holder, if it is live. Every quarter of a ttl, all are looked at."""
        if not self.records:
            self.swept = moment
        if not 0 <= (moment - self.swept) * MICROSECOND < terms.ttl / 4:
            self.swept = moment
            # What they have not spent is dead, and is never credited.
            for name in [name for name, each in self.records.items() if each.end <= moment]:
                self._drop(name)
        record = self.records.get(holder)
        if record is not None and record.end <= moment:
            self._drop(holder)
            record = None
        return record

    def _drop(self, holder: bytes) -> None:
        record = self.records.pop(holder)
        self.out -= record.out
        self.demand -= record.demand

    def _settled(
        self, message: Message, known: Record | None, terms: law.Terms, now: int
    ) -> Record | None:
        """The record of the holder, with what it says to have done.

        None if it claims more than can be out, or be booked: then it has nothing.
        """
        if known is None:
            # New; or this server has forgotten it. Then believe what it has in hand.
            claim = message.granted - message.spent - message.returned
            start = now // MICROSECOND - terms.horizon // MICROSECOND
            record = Record(message.granted, message.spent, message.returned, last=start)
            before = 0
        else:
            claim = max(0, message.granted - known.granted)
            record, before = known, known.out
        if claim > 0:
            if self.out + claim > terms.burst or not self.row.can_owe(claim, now):
                if known is not None:
                    self._drop(message.holder)
                return None
            self.row.take(claim, now)
            record.granted = message.granted
        self.records[message.holder] = record
        back = max(0, message.returned - record.returned)
        record.returned += back
        record.spent = max(record.spent, message.spent)
        self.out += record.out - before
        self.demand += message.demand - record.demand
        record.demand = message.demand
        if back > 0:
            self.row.give_back(back, now)
        return record

    def _vouch(self, record: Record, vouched: bool, terms: law.Terms, now: int) -> None:
        """Set until when the holder may spend what it has; never earlier than it was told."""
        row, out = self.row, self.out
        end = (now + terms.ttl) // MICROSECOND
        if record.out > 0 and isinstance(row, BucketRow):
            row.tat = max(row.tat, now + terms.cover + out * row.unit)
            end = min(end, (row.tat - out * row.unit) // MICROSECOND)
        elif record.out > 0:
            end = min(end, row.mark(now) // MICROSECOND)
        record.end = max(end, record.end) if vouched else end
