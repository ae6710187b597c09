"""What a ledger tells its callers: accounts, balances, credits, entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.quota.book import Book
from penstock.quota.rows import (
    LIVE,
    NEVER,
    PLAN,
    SCHEDULED,
    AccountRow,
    CreditRow,
    EntryRow,
    HoldRow,
    PeriodRow,
)
from penstock.quota.values import moment

DAY = 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Account:
    """An account. ``next_plan`` applies from ``next_plan_from``."""

    name: str
    plan: str | None
    tz: str
    anchor: int
    opened: datetime
    next_plan: str | None = None
    next_plan_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Credit:
    """Units that were granted. ``left`` is what is free of them."""

    ref: str
    meter: str
    kind: str
    amount: int
    used: int
    held: int
    left: int
    priority: int
    starts: datetime
    expires: datetime | None
    scheduled: bool
    note: str


@dataclass(frozen=True, slots=True)
class Period:
    """A period of a meter. ``uncovered`` was used although nothing was left."""

    starts: datetime
    ends: datetime
    plan: str
    amount: int
    used: int
    uncovered: int


@dataclass(frozen=True, slots=True)
class MeterBalance:
    """What an account has of one meter.

    ``available`` can be taken now. ``remaining`` is what has not been spent, with what is held:
    negative in the overdraft. ``runs_out`` is when nothing will be left at the pace of the
    running period, or None if that is not before its end.
    """

    meter: str
    available: int
    remaining: int
    held: int
    spent: int
    overdraft: int
    period: Period | None
    credits: tuple[Credit, ...]
    runs_out: datetime | None


@dataclass(frozen=True, slots=True)
class Balance:
    """The balances of an account, by meter: ``ledger.balance("acme")["tokens"].available``."""

    account: Account
    meters: Mapping[str, MeterBalance]
    at: datetime

    def __getitem__(self, meter: str) -> MeterBalance:
        return self.meters[meter]

    def __iter__(self) -> Iterator[str]:
        return iter(self.meters)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history. ``seq`` counts up without gaps, for the whole ledger.

    ``amount`` is the change of what the account has, ``held`` the change of what is held. An
    ``uncovered`` one changes nothing: its amount was used although nothing was left.
    """

    seq: int
    at: datetime
    account: str
    meter: str
    kind: str
    amount: int
    held: int
    source: str
    period: datetime | None
    who: str
    note: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is known of a source: its totals. ``uncovered`` is the part of ``settled`` that was
    used although nothing was left; ``held`` is what is still set aside for it."""

    source: str
    settled: int
    uncovered: int
    held: int


@dataclass(frozen=True, slots=True)
class Stock:
    """Units that are set aside, and the totals of their holder. ``held`` is what is left.

    ``open`` is False once it was closed: it is granted nothing more.
    """

    id: str
    account: str
    meter: str
    granted: int
    settled: int
    returned: int
    uncovered: int
    held: int
    open: bool


@dataclass(frozen=True, slots=True)
class StockTotals:
    """What the holder of a stock reports: see `Ledger.stock`."""

    account: str
    meter: str
    id: str
    granted: int
    settled: int = 0
    returned: int = 0


def stock_view(row: HoldRow) -> Stock:
    return Stock(
        row.id, row.account, row.meter, row.granted, row.settled, row.returned, row.uncovered,
        row.remaining, bool(row.open),
    )  # fmt: skip


def account_view(row: AccountRow) -> Account:
    scheduled = row.next_plan is not None
    return Account(
        row.id, row.plan, row.tz, row.anchor_day, moment(row.opened, row.tz), row.next_plan,
        moment(row.next_at, row.tz) if scheduled else None,
    )  # fmt: skip


def credit_view(row: CreditRow, tz: str) -> Credit:
    scheduled = row.state == SCHEDULED
    return Credit(
        row.ref, row.meter, row.kind, row.amount, row.used, row.held, row.free, row.priority,
        moment(row.starts, tz), moment(row.ends, tz) if row.ends < NEVER else None, scheduled,
        row.note,
    )  # fmt: skip


def period_view(row: PeriodRow, tz: str) -> Period:
    return Period(
        moment(row.starts, tz), moment(row.ends, tz), row.plan, row.amount, row.spent,
        row.uncovered,
    )  # fmt: skip


def entry_view(row: EntryRow, tz: str = "UTC") -> Entry:
    period = moment(row.period, tz) if row.period else None
    return Entry(
        row.seq, moment(row.at, tz), row.account, row.meter, row.kind, row.amount, row.held,
        row.source, period, row.who, row.note,
    )  # fmt: skip


def settlement_view(row: HoldRow) -> Settlement:
    return Settlement(row.id, row.settled, row.uncovered, row.remaining)


def balance_view(book: Book, now: int) -> Balance:
    row = book.account
    meters = {meter: _meter_view(book, meter, now) for meter in sorted(book.balances)}
    return Balance(account_view(row), meters, moment(now, row.tz))


def _meter_view(book: Book, meter: str, now: int) -> MeterBalance:
    balance, tz = book.balances[meter], book.account.tz
    credits = [c for c in book.credits.values() if c.meter == meter]
    credits = [
        c for c in credits if (c.state == LIVE and (c.free or c.held)) or c.state == SCHEDULED
    ]
    credits.sort(key=lambda credit: (credit.state == SCHEDULED, credit.burn_order))
    period, available = book.periods.get(meter), book.available(meter)
    return MeterBalance(
        meter,
        available,
        balance.granted - balance.spent,
        balance.held,
        balance.spent,
        balance.plan_overdraft,
        period_view(period, tz) if period is not None else None,
        tuple(credit_view(credit, tz) for credit in credits),
        moment(ends, tz) if (ends := runs_out(book, meter, now)) is not None else None,
    )


def runs_out(book: Book, meter: str, now: int) -> int | None:
    """When the available units end, at the pace of this period so far; None if not in it.

    The pace counts from the opening of the account, or from the plan's first units, if the period
    had begun before.
    """
    period = book.periods.get(meter)
    if period is None or not period.spent:
        return None
    granted = [
        credit.starts
        for credit in book.live(meter)
        if credit.kind == PLAN and credit.ends == period.ends
    ]
    began = max(period.starts, book.account.opened, min(granted, default=0))
    if now <= began:
        return None
    instant = now + book.available(meter) * (now - began) // period.spent
    return instant if instant < period.ends else None
