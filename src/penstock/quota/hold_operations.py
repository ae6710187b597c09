"""The operations on holds, stocks and sources: see `operations.py`.

Their numbers are totals since they exist, so a message that is lost, repeated or late does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.quota.book import Book
from penstock.quota.databases.base import Wanted
from penstock.quota.errors import RefReused, UnknownHold
from penstock.quota.operations import Books, Operation, check_enough, check_same
from penstock.quota.renewal import release
from penstock.quota.rows import HOLD, NEVER, RELEASE, RESERVATION, SOURCE, STOCK, HoldRow
from penstock.quota.values import When, instant_of
from penstock.quota.views import Settlement, Stock, settlement_view, stock_view


@dataclass(frozen=True, slots=True)
class TakeHold(Operation):
    """Set units aside: all or nothing for a reservation, as many as there are for a stock.

    ``granted`` is the total that the hold is to have been granted: asking again changes nothing.
    """

    meter: str
    hold: str
    granted: int
    kind: str = RESERVATION
    lasts: When | None = None
    least: int | None = None
    # Of a stock: its totals so far, settled and returned before more is granted.
    settled: int = 0
    returned: int = 0

    def want(self, wanted: Wanted) -> None:
        wanted.accounts.add(self.account)
        wanted.holds.add((self.account, self.hold))

    def change(self, book: Book, books: Books, now: int) -> Stock:
        hold = book.holds.get(self.hold)
        if hold is None:
            period = book.periods.get(self.meter)
            hold = HoldRow(self.account, self.hold, self.meter, self.kind)
            hold.created, hold.period = now, period.starts if period is not None else 0
            if self.lasts is not None:
                hold.expires = instant_of(self.lasts, now, book.account.tz, "lasts")
        else:
            check_same(self.hold, (hold.kind, hold.meter), (self.kind, self.meter))
            if self.kind == RESERVATION:
                return stock_view(hold)
        # First what has happened. If the ledger does not know of it, because it was restored from
        # a copy for example, it counts as granted: otherwise its units would be held again.
        if self.settled > hold.settled:
            settle(book, hold, self.settled, now)
        if self.returned > hold.returned:
            give_back(book, hold, self.returned, now)
        more = max(0, self.granted - hold.granted)
        if more and self.may_grow(book, hold):
            available = book.available(self.meter)
            least = more if self.least is None else min(self.least, more)
            check_enough(book, self.meter, least, available)
            more = min(more, available)
        else:
            more = 0
        book.holds[hold.id] = hold
        if more:
            hold.granted += more
            book.take(hold, more)
            book.record(
                now, HOLD, self.meter, 0,
                held=more, source=hold.id, period=hold.period,
            )  # fmt: skip
        if self.kind == STOCK and self.lasts is not None:
            self.extend(book, hold, now)
        elif hold.expires < NEVER:
            book.due_by(hold.expires)
        return stock_view(hold)

    def extend(self, book: Book, hold: HoldRow, now: int) -> None:
        """A stock that reports is not stale yet.

        By an eighth more than was asked for: so most reports change only the numbers, and not the
        column that is in an index.
        """
        assert self.lasts is not None
        expires = instant_of(self.lasts, now, book.account.tz, "lasts")
        slack = (expires - now) // 8
        if not expires <= hold.expires <= expires + slack:
            hold.expires = expires + slack

    def may_grow(self, book: Book, hold: HoldRow) -> bool:
        """Not after its period: what is spent then belongs to the next."""
        period = book.periods.get(self.meter)
        return bool(hold.open) and hold.period == (period.starts if period is not None else 0)


@dataclass(frozen=True, slots=True)
class Settle(Operation):
    """The total that a source has used so far. ``close`` gives back what its hold has left."""

    hold: str
    total: int
    close: bool = False
    # For a source that never held anything: it is created by its first settlement.
    meter: str | None = None

    def want(self, wanted: Wanted) -> None:
        wanted.accounts.add(self.account)
        wanted.holds.add((self.account, self.hold))

    def change(self, book: Book, books: Books, now: int) -> Settlement:
        hold = book.holds.get(self.hold)
        if hold is None:
            if self.meter is None:
                raise UnknownHold(f"account {self.account!r} has no hold {self.hold!r}")
            hold = HoldRow(self.account, self.hold, self.meter, SOURCE, created=now)
            book.holds[hold.id] = hold
        elif self.meter is not None and hold.meter != self.meter:
            raise RefReused(f"hold {self.hold!r} is of {hold.meter}, not of {self.meter}")
        if self.total > hold.settled:
            settle(book, hold, self.total, now)
        if self.close and hold.open:
            release(book, hold, now)
        return settlement_view(hold)


@dataclass(frozen=True, slots=True)
class WriteOff(Operation):
    """Settle or release what a stock has left, when its holder never comes back."""

    hold: str
    spent: bool
    who: str = ""
    note: str = ""

    def want(self, wanted: Wanted) -> None:
        wanted.accounts.add(self.account)
        wanted.holds.add((self.account, self.hold))

    def change(self, book: Book, books: Books, now: int) -> Settlement:
        hold = book.holds.get(self.hold)
        if hold is None:
            raise UnknownHold(f"account {self.account!r} has no hold {self.hold!r}")
        if hold.open:
            if self.spent and hold.remaining:
                settle(book, hold, hold.settled + hold.remaining, now, self.who, self.note)
            release(book, hold, now, self.who, self.note)
        return settlement_view(hold)


def settle(book: Book, hold: HoldRow, total: int, now: int, who: str = "", note: str = "") -> None:
    """Count what a source has used beyond its last total: from its hold, then from the rest.

    What was held counts in the period of the hold. The rest takes units of the running period, and
    counts there. What is used beyond the quota is written down as uncovered.
    """
    used = total - hold.settled
    held = min(used, hold.remaining)
    hold.settled = total
    if held:
        book.use(hold, held)
    more = min(used - held, book.available(hold.meter)) if used > held else 0
    if more:
        passing = HoldRow(hold.account, "", hold.meter, RESERVATION)
        book.take(passing, more)
        book.use(passing, more)
    running = book.periods.get(hold.meter)
    past = hold.kind != SOURCE and hold.period != (running.starts if running is not None else 0)
    if held and past:
        book.spend(
            now, hold.meter, held,
            held=held, source=hold.id, who=who, note=note, period=hold.period,
        )  # fmt: skip
        if more:
            book.spend(now, hold.meter, more, source=hold.id, who=who, note=note)
    elif held or more:
        book.spend(now, hold.meter, held + more, held=held, source=hold.id, who=who, note=note)
    uncovered = used - held - more
    if uncovered:
        hold.uncovered += uncovered
        book.uncovered(now, hold.meter, uncovered, hold.id)
    if hold.kind != SOURCE:
        hold.granted += used - held


def give_back(book: Book, hold: HoldRow, returned: int, now: int) -> None:
    """The total that a holder has given back."""
    amount = min(returned - hold.returned, hold.remaining)
    unknown = returned - hold.returned - amount
    hold.granted += unknown
    hold.returned = returned
    if amount > 0:
        book.record(
            now, RELEASE, hold.meter, 0,
            held=-amount, source=hold.id, period=hold.period,
        )  # fmt: skip
        book.put_back(hold, amount, now)
