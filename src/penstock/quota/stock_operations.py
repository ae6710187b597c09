"""The operations of stocks that several processes spend from: see `operations.py`.

A stock is a hold of the ledger whose units are in a store. Each process that spends from it is a
*part* of it, and reports two totals, of what it took and of what it gave back. Both only grow, so a
report that is lost, repeated or late does no harm. The stock has settled the sum of its parts.

Rows in the table of holds:

========================= ==================================================================
``<stock>``               the hold itself
``<stock>/parts``         a source that holds nothing: ``granted`` and ``returned`` are what all
                          parts took and gave back, ``uncovered`` how many may still spend
``<stock>/<part>``        the same of one part; it is open while the part may still spend
========================= ==================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.durations import DAY
from penstock.quota.book import Book
from penstock.quota.databases.base import Wanted
from penstock.quota.hold_operations import settle
from penstock.quota.operations import Adjust, Books, Open, Operation
from penstock.quota.renewal import release
from penstock.quota.rows import HOLD, NEVER, SOURCE, STOCK, BalanceRow, HoldRow
from penstock.quota.values import check_anchor

# A stock that nobody has reported about for so long is listed by `reconcile`.
LASTS = DAY
# Of what is left, the least and the most that a stock takes at once, if it needs no more.
_LEAST_PART, _MOST_PART = 100, 10
_LEAST_UNITS = 1000


def stock_id(meter: str, opened: int) -> str:
    return f"stock/{meter}/{opened}"


def chunk(short: int, pace: int, available: int) -> int:
    """How many units to put into a stock: it is ``short`` of some, and ``pace`` will be spent soon.

    A stock never takes more than a tenth of what is left, if it is not short of more, so that
    several stores can share the last units.
    """
    wanted = max(short, pace, min(available // _LEAST_PART, _LEAST_UNITS))
    return min(wanted, max(short, available // _MOST_PART))


@dataclass(frozen=True, slots=True)
class StockReport:
    """An account and a stock of it after an operation.

    ``available`` is what the ledger has beside all stocks. ``amount`` is what the plan grants in
    ``unit``, which ends at ``ends``.
    """

    granted: int
    grows: bool
    available: int
    remaining: int
    overdraft: int
    amount: int
    unit: str | None
    ends: int


@dataclass(frozen=True, slots=True)
class FillStock(Operation):
    """Set more units aside for a stock that has been given ``base`` units so far.

    An unknown account is opened if there is a ``plan``.
    """

    meter: str
    stock: str
    part: str
    base: int
    short: int
    pace: int
    plan: str | None = None

    @property
    def needs_plans(self) -> bool:  # type: ignore[override]  # only if it may open an account
        return self.plan is not None

    def want(self, wanted: Wanted) -> None:
        _want(wanted, self.account, self.stock, self.part)

    def apply(self, books: Books, now: int) -> StockReport:
        if books.find(self.account) is None and self.plan is not None:
            Open(self.account, self.plan, "UTC", check_anchor(1), False).apply(books, now)
        report: StockReport = Operation.apply(self, books, now)
        return report

    def change(self, book: Book, books: Books, now: int) -> StockReport:
        meter = self.meter
        hold = book.holds.get(self.stock) or _new_stock(book, self.stock, meter, now)
        grows = bool(hold.open) and hold.period == _period(book, meter)
        available = book.available(meter)
        target = self.base + chunk(self.short, self.pace, available)
        more = max(0, min(target - hold.granted, available)) if grows else 0
        if more or self.stock in book.holds:
            book.holds[hold.id] = hold
            _register(book, hold, self.part, now)
            hold.expires = now + LASTS
        if more:
            hold.granted += more
            book.take(hold, more)
            book.record(now, HOLD, meter, 0, held=more, source=hold.id, period=hold.period)
        return _report(book, hold, grows)


@dataclass(frozen=True, slots=True)
class SettlePart(Operation):
    """What a part has taken and given back so far.

    With ``final`` it will not spend any more, with ``close`` the stock is gone from its store:
    when all parts are final, what it has left is free again.
    """

    meter: str
    stock: str
    part: str
    taken: int
    given_back: int
    final: bool = False
    close: bool = False

    def want(self, wanted: Wanted) -> None:
        _want(wanted, self.account, self.stock, self.part)
        wanted.idems.add((self.account, f"adjust:{_correction(self.stock)}"))

    def change(self, book: Book, books: Books, now: int) -> StockReport:
        meter = self.meter
        hold = book.holds.get(self.stock)
        if hold is None:
            hold = _new_stock(book, self.stock, meter, now)
            if not self.taken:
                return _report(book, hold, True)  # nothing was ever set aside for it
            # Its units were, in a database that has been restored from a backup since.
            book.holds[hold.id] = hold
        parts, part = _register(book, hold, self.part, now)
        taken = max(part.granted, self.taken)
        given_back = max(part.returned, self.given_back)
        parts.granted += taken - part.granted
        parts.returned += given_back - part.returned
        part.granted, part.returned = taken, given_back
        if bool(part.open) is self.final:
            part.open = int(not self.final)
            parts.uncovered += 1 if part.open else -1
        used = parts.granted - parts.returned
        if used > hold.settled:
            settle(book, hold, used, now)
        hold.expires = now + LASTS
        if self.close and hold.open and not parts.uncovered:
            self._close(book, books, hold, used, now)
            parts.open = 0
        return _report(book, hold, bool(hold.open))

    def _close(self, book: Book, books: Books, hold: HoldRow, used: int, now: int) -> None:
        release(book, hold, now)
        if hold.settled > used:
            # Given back after it was settled.
            Adjust(
                self.account, hold.settled - used, self.meter, _correction(hold.id),
                note="given back after it was settled",
            ).change(book, books, now)  # fmt: skip


def _correction(stock: str) -> str:
    return f"{stock}/given-back"


def _want(wanted: Wanted, account: str, stock: str, part: str) -> None:
    wanted.accounts.add(account)
    for id in (stock, f"{stock}/parts", f"{stock}/{part}"):
        wanted.holds.add((account, id))


def _period(book: Book, meter: str) -> int:
    period = book.periods.get(meter)
    return period.starts if period is not None else 0


def _new_stock(book: Book, id: str, meter: str, now: int) -> HoldRow:
    return HoldRow(
        book.account.id, id, meter, STOCK,
        created=now, period=_period(book, meter), expires=now + LASTS,
    )  # fmt: skip


def _register(book: Book, hold: HoldRow, name: str, now: int) -> tuple[HoldRow, HoldRow]:
    """The rows of all parts and of one, which are created if they are new."""
    rows: list[HoldRow] = []
    for id in (f"{hold.id}/parts", f"{hold.id}/{name}"):
        row = book.holds.get(id)
        if row is None:
            row = HoldRow(hold.account, id, hold.meter, SOURCE, created=now, period=hold.period)
            book.holds[id] = row
            if rows:
                rows[0].uncovered += 1
        rows.append(row)
    return rows[0], rows[1]


def _balance(book: Book, meter: str) -> BalanceRow:
    """To look at: a meter that the account does not have stays without a row."""
    return book.balances.get(meter) or BalanceRow(book.account.id, meter)


def _report(book: Book, hold: HoldRow, grows: bool) -> StockReport:
    balance, period = _balance(book, hold.meter), book.periods.get(hold.meter)
    return StockReport(
        hold.granted,
        grows,
        book.available(hold.meter),
        balance.granted - balance.spent,
        balance.overdraft,
        period.amount if period is not None else balance.granted,
        period.unit if period is not None else None,
        period.ends if period is not None else NEVER,
    )
