"""The operations on a ledger, each a change of one account.

An operation says what it needs to have loaded, and is applied to the account's book when that is
there and has been brought up to now. It checks first and changes then: one that raises has
changed nothing. All can be repeated: an operation that was applied before returns what it
returned then, and changes nothing. What it returns is a copy: the next operation changes the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.quota.book import Book
from penstock.quota.databases.base import Wanted
from penstock.quota.errors import (
    AccountExists,
    InvalidQuota,
    QuotaExceeded,
    RefReused,
    UnknownAccount,
    UnknownPlan,
)
from penstock.quota.plan_change import PRIORITY, change, start_plan
from penstock.quota.plans import Plan
from penstock.quota.rows import (
    ADJUST,
    ADJUSTMENT,
    NEVER,
    RESERVATION,
    SCHEDULED,
    TOP_UP,
    AccountRow,
    CreditRow,
    EntryRow,
    HoldRow,
)
from penstock.quota.values import When, instant_of
from penstock.quota.views import (
    Account,
    Credit,
    account_view,
    credit_view,
)


class Books(Protocol):
    """What a transaction has loaded."""

    @property
    def plans(self) -> Mapping[str, Plan]: ...

    def find(self, account: str) -> Book | None: ...

    def open(self, account: AccountRow) -> Book: ...

    def credit(self, account: str, ref: str) -> CreditRow | None: ...

    def entry(self, account: str, idem: str) -> EntryRow | None: ...

    def remember(self, row: CreditRow | EntryRow) -> None: ...


@dataclass(frozen=True, slots=True)
class Operation:
    account: str
    needs_plans = False

    def want(self, wanted: Wanted) -> None:
        """Add what has to be loaded."""
        wanted.accounts.add(self.account)

    def apply(self, books: Books, now: int) -> Any:
        book = books.find(self.account)
        if book is None:
            raise UnknownAccount(self.account)
        return self.change(book, books, now)

    def change(self, book: Book, books: Books, now: int) -> Any:
        raise NotImplementedError


def plan_named(name: str, plans: Mapping[str, Plan]) -> Plan:
    if name not in plans:
        names = ", ".join(sorted(plans)) or "none yet: write Ledger(url, plans={...})"
        raise UnknownPlan(f"there is no plan {name!r}; there are: {names}")
    return plans[name]


@dataclass(frozen=True, slots=True)
class Open(Operation):
    plan: str | None
    tz: str
    anchor: tuple[int, int]
    prorate: bool
    needs_plans = True

    def apply(self, books: Books, now: int) -> Account:
        book = books.find(self.account)
        day, month = self.anchor
        if book is not None:
            row = book.account
            same = (self.plan, self.tz, day, month)
            if (row.plan, row.tz, row.anchor_day, row.anchor_month) == same:
                return account_view(row)
            raise AccountExists(
                f"account {self.account!r} exists, with plan {row.plan!r}, tz {row.tz!r} and"
                f" anchor {row.anchor_day}: to change its plan, use ledger.change_plan"
            )
        plan = plan_named(self.plan, books.plans) if self.plan is not None else None
        row = AccountRow(self.account, self.tz, day, month, self.plan, None, NEVER, 0, NEVER, now)
        book = books.open(row)
        if plan is not None:
            start_plan(book, plan, now, prorate=self.prorate)
        return account_view(row)


@dataclass(frozen=True, slots=True)
class ChangePlan(Operation):
    plan: str
    when: str | None
    prorate: bool
    reset: bool
    who: str
    note: str
    needs_plans = True

    def change(self, book: Book, books: Books, now: int) -> Account:
        plan = plan_named(self.plan, books.plans)
        row = book.account
        old = books.plans[row.plan] if row.plan is not None else None
        if row.next_plan == plan.name and self.when is None and not self.reset:
            return account_view(row)  # it is scheduled
        change(
            book, plan, old, now,
            when=self.when, prorate=self.prorate, reset=self.reset, who=self.who, note=self.note,
        )  # fmt: skip
        return account_view(row)


@dataclass(frozen=True, slots=True)
class Grant(Operation):
    amount: int
    meter: str
    ref: str
    kind: str = TOP_UP
    starts: When | None = None
    expires: When | None = None
    priority: int = PRIORITY
    who: str = ""
    note: str = ""

    def want(self, wanted: Wanted) -> None:
        wanted.accounts.add(self.account)
        wanted.refs.add((self.account, self.ref))

    def change(self, book: Book, books: Books, now: int) -> Credit:
        before = books.credit(self.account, self.ref)
        if before is not None:
            check_same(self.ref, (before.amount, before.meter), (self.amount, self.meter))
            return credit_view(before, book.account.tz)
        tz = book.account.tz
        starts = instant_of(self.starts, now, tz, "starts") if self.starts is not None else now
        ends = NEVER
        if self.expires is not None:
            ends = instant_of(self.expires, max(starts, now), tz, "expires")
        if ends <= max(starts, now):
            raise InvalidQuota(f"expires {self.expires!r:.100} is not after the credit begins")
        credit = CreditRow(
            self.account, book.new_number(), self.meter, self.kind, self.amount, 0, 0, 0, starts,
            ends, self.priority, 0, self.ref, SCHEDULED, self.note, self.who,
        )  # fmt: skip
        book.add_credit(credit, now)
        books.remember(credit)
        return credit_view(credit, book.account.tz)


@dataclass(frozen=True, slots=True)
class Adjust(Operation):
    amount: int
    meter: str
    ref: str
    who: str = ""
    note: str = ""

    def want(self, wanted: Wanted) -> None:
        wanted.accounts.add(self.account)
        wanted.idems.add((self.account, f"adjust:{self.ref}"))

    def change(self, book: Book, books: Books, now: int) -> EntryRow:
        idem = f"adjust:{self.ref}"
        before = books.entry(self.account, idem)
        if before is not None:
            check_same(self.ref, (before.amount, before.meter), (self.amount, self.meter))
            return before
        if self.amount < 0:
            # Takes credits away, never makes a debt.
            free = sum(credit.free for credit in book.live(self.meter))
            check_enough(book, self.meter, -self.amount, min(free, book.available(self.meter)))
            rest = -self.amount
            for credit in book.live(self.meter):
                part = min(credit.free, rest)
                book.remove(credit, part)
                rest -= part
        else:
            number = book.new_number()
            credit = CreditRow(
                self.account, number, self.meter, ADJUSTMENT, self.amount, 0, 0, 0, now, NEVER,
                PRIORITY, 0, self.ref, SCHEDULED, self.note, self.who,
            )  # fmt: skip
            book.add_credit(credit, now, ADJUST)
            entry = book.entries[-1]
            entry.idem = idem
            books.remember(entry)
            return entry
        entry = book.record(
            now, ADJUST, self.meter, self.amount, idem,
            source=self.ref, who=self.who, note=self.note,
        )  # fmt: skip
        books.remember(entry)
        return entry


@dataclass(frozen=True, slots=True)
class Spend(Operation):
    """``source`` is the ref if the caller has named it."""

    amount: int
    meter: str
    ref: str
    source: str = ""
    who: str = ""
    note: str = ""

    def want(self, wanted: Wanted) -> None:
        wanted.accounts.add(self.account)
        wanted.idems.add((self.account, f"spend:{self.ref}"))

    def change(self, book: Book, books: Books, now: int) -> EntryRow:
        idem = f"spend:{self.ref}"
        before = books.entry(self.account, idem)
        if before is not None:
            check_same(self.ref, (-before.amount, before.meter), (self.amount, self.meter))
            return before
        check_enough(book, self.meter, self.amount, book.available(self.meter))
        passing = HoldRow(self.account, "", self.meter, RESERVATION)
        book.take(passing, self.amount)
        book.use(passing, self.amount)
        entry = book.spend(
            now, self.meter, self.amount, idem, source=self.source, who=self.who, note=self.note
        )
        books.remember(entry)
        return entry


def check_enough(book: Book, meter: str, wanted: int, available: int) -> None:
    if wanted > available:
        period = book.periods.get(meter)
        renews = period.ends if period is not None else None
        raise QuotaExceeded(book.account.id, meter, wanted, available, renews)


def check_same(ref: str, before: tuple[Any, Any], now: tuple[Any, Any]) -> None:
    if before != now:
        raise RefReused(
            f"ref {ref!r} was used before for {before[0]} {before[1]}, and now for {now[0]}"
            f" {now[1]}: use a new ref for something else"
        )


@dataclass(frozen=True, slots=True)
class DefinePlans(Operation):
    """Write plans down. They apply to periods that begin later, and to changes of plan."""

    definitions: Mapping[str, str] = field(default_factory=dict)

    def want(self, wanted: Wanted) -> None:
        pass
