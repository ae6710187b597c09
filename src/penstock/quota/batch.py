"""Operations in one transaction: load, apply, save.

Each operation succeeds or fails for itself. If the database refuses the whole, the operations
are tried again one by one, so that one cannot spoil the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.clock import Clock
from penstock.quota.book import Book
from penstock.quota.databases.base import Changes, Loaded, Snapshot, Transaction, Wanted
from penstock.quota.databases.tables import ACCOUNT, BALANCE, CREDIT, HOLD, PERIOD, Table
from penstock.quota.errors import QuotaError
from penstock.quota.near_empty import Watch
from penstock.quota.operations import DefinePlans, Operation
from penstock.quota.plans import Plan, read_plan
from penstock.quota.renewal import bring_up_to
from penstock.quota.rows import (
    CLOSED,
    NEVER,
    RESERVATION,
    AccountRow,
    CreditRow,
    EntryRow,
    HoldRow,
    PeriodRow,
)

Outcome = Any | Exception
# More accounts than this are not kept in memory.
_MOST_BOOKS = 20_000


class BookSet:
    """The books of the accounts of a transaction."""

    def __init__(self) -> None:
        self.plans: Mapping[str, Plan] = {}
        self._books: dict[str, Book] = {}
        self._touched: set[str] = set()
        self._entries: dict[tuple[str, str], EntryRow] = {}
        self._credits: dict[tuple[str, str], CreditRow] = {}

    def find(self, account: str) -> Book | None:
        return self._books.get(account)

    def open(self, account: AccountRow) -> Book:
        book = self._books[account.id] = Book(account)
        return book

    def credit(self, account: str, ref: str) -> CreditRow | None:
        return self._credits.get((account, ref))

    def entry(self, account: str, idem: str) -> EntryRow | None:
        return self._entries.get((account, idem))

    def remember(self, row: CreditRow | EntryRow) -> None:
        if isinstance(row, CreditRow):
            self._credits[row.account, row.ref] = row
        else:
            self._entries[row.account, row.idem] = row

    def __len__(self) -> int:
        return len(self._books)

    def touched(self) -> list[Book]:
        """The books of the accounts that this transaction is about."""
        books = self._books
        return [books[name] for name in self._touched if name in books]

    def load(
        self,
        snapshot: Snapshot,
        wanted: Wanted,
        now: int,
        needs_plans: bool,
        watch: Watch | None = None,
    ) -> None:
        """Load what is wanted and not here yet, and bring those accounts up to now."""
        books = self._books
        self._touched = set(wanted.accounts)
        missing = Wanted(
            {name for name in wanted.accounts if name not in books},
            {pair for pair in wanted.holds if not self._has_hold(*pair)},
            wanted.refs,
            wanted.idems,
        )
        if missing:
            self._add(snapshot.load(missing))
        due = sorted(
            name for name in self._touched if name in books and books[name].account.due <= now
        )
        if due or needs_plans:
            definitions = snapshot.plans()
            self.plans = {
                name: read_plan(name, json.loads(definitions[name])) for name in definitions
            }
        if watch is not None:
            watch.before(self.touched())
        if due:
            self._bring_up_to(snapshot, due, now)
            if watch is not None:
                watch.before(books[name] for name in due)

    def _has_hold(self, account: str, id: str) -> bool:
        book = self._books.get(account)
        return book is not None and id in book.holds

    def _add(self, loaded: Loaded) -> None:
        books = self._books
        for account in loaded.accounts:
            books[account.id] = Book(account)
            account.saved = ACCOUNT.as_tuple(account)
        for balance in loaded.balances:
            books[balance.account].balances[balance.meter] = balance
            balance.saved = BALANCE.as_tuple(balance)
        for credit in loaded.credits:
            books[credit.account].credits[credit.number] = credit
            credit.saved = CREDIT.as_tuple(credit)
        for period in loaded.periods:
            self._add_period(period)
        for hold in loaded.holds:
            self._add_hold(hold)
        for entry in loaded.entries:
            self.remember(entry)
        for credit in loaded.refs:
            self.remember(credit)

    def _bring_up_to(self, snapshot: Snapshot, due: Sequence[str], now: int) -> None:
        books = self._books
        expiring = snapshot.expiring(due, now)
        for period in expiring.periods:
            self._add_period(period)
        for hold in expiring.holds:
            self._add_hold(hold)
        for name in due:
            books[name].next_expiry = expiring.next.get(name, NEVER)
            bring_up_to(books[name], now, self.plans)

    def _add_hold(self, hold: HoldRow) -> None:
        book = self._books.get(hold.account)
        if book is not None and hold.id not in book.holds:
            book.holds[hold.id] = hold
            hold.saved = HOLD.as_tuple(hold)

    def _add_period(self, period: PeriodRow) -> None:
        book = self._books.get(period.account)
        if book is None:
            return
        if not period.ended:
            book.periods[period.meter] = period
        elif (period.meter, period.starts) in book.past_periods:
            return
        else:
            book.past_periods[period.meter, period.starts] = period
        period.saved = PERIOD.as_tuple(period)

    def changes(self) -> Changes:
        """What has to be saved."""
        changes = Changes()
        for name in self._touched:
            book = self._books.get(name)
            if book is None:
                continue
            _compare(changes, ACCOUNT, (book.account,))
            _compare(changes, BALANCE, book.balances.values())
            _compare(changes, CREDIT, book.credits.values())
            if book.past_periods:
                _compare(changes, PERIOD, book.past_periods.values())
            _compare(changes, PERIOD, book.periods.values())
            _compare(changes, HOLD, book.holds.values())
            changes.entries += book.entries
        return changes

    def forget(self) -> None:
        """After saving: keep what the next transaction will find unchanged, and no more.

        That is the account, its balances, the credits that are not closed, the running periods,
        and stocks and sources that count in them.
        """
        self._entries.clear()
        self._credits.clear()
        for name in self._touched:
            book = self._books.get(name)
            if book is None:
                continue
            book.entries = []
            book.next_expiry = NEVER
            for credit in [c for c in book.credits.values() if c.state == CLOSED]:
                del book.credits[credit.number]
            book.past_periods.clear()
            for hold in [h for h in book.holds.values() if not _is_kept(h, book)]:
                del book.holds[hold.id]


def _is_kept(hold: HoldRow, book: Book) -> bool:
    if not hold.open or hold.kind == RESERVATION:
        return False
    period = book.periods.get(hold.meter)
    return not hold.period or (period is not None and hold.period == period.starts)


def _compare(changes: Changes, table: Table[Any], rows: Iterable[Any]) -> None:
    key, (first, rest) = table.key, table.hot
    for row in rows:
        values = table.as_tuple(row)
        before = row.saved
        if before == values:
            continue
        if before is None:
            changes.inserts.setdefault(table.name, []).append(values)
        elif before[:first] == values[:first] and before[rest:] == values[rest:]:
            hot = values[first:rest] + values[:key]
            changes.hot_updates.setdefault(table.name, []).append(hot)
        else:
            changes.updates.setdefault(table.name, []).append(values[key:] + values[:key])
        row.saved = values  # if it is not saved, all of this is thrown away


class Cache:
    """The books that the last transactions have left, as long as nobody else has written."""

    def __init__(self) -> None:
        self._books: BookSet | None = None
        self._version: object = None

    def take(self, version: object) -> BookSet:
        """Books for a transaction. They come back with `put` if that succeeds."""
        books, self._books = self._books, None
        if books is None or version != self._version or len(books) > _MOST_BOOKS:
            books = BookSet()
        return books

    def put(self, books: BookSet, version: object) -> None:
        books.forget()
        self._books, self._version = books, version


def apply(
    transaction: Transaction,
    operations: Sequence[Operation],
    clock: Clock | None,
    cache: Cache,
    watch: Watch | None = None,
) -> tuple[list[Outcome], Callable[[], None]]:
    """Apply operations in their order, and save; what each returned or raised.

    Call the function when the transaction has been committed.
    """
    state = transaction.begin()
    now = clock.now() if clock is not None else state.now
    books, wanted, needs_plans = cache.take(state.version), Wanted(), False
    definitions: dict[str, str] = {}
    for operation in operations:
        if isinstance(operation, DefinePlans):
            definitions.update(operation.definitions)
        operation.want(wanted)
        needs_plans = needs_plans or operation.needs_plans
    if definitions:
        transaction.save(Changes(plans=definitions))
    if watch is not None:
        watch.begin()
    books.load(transaction, wanted, now, needs_plans, watch)
    outcomes: list[Outcome] = []
    for operation in operations:
        if isinstance(operation, DefinePlans):
            outcomes.append(None)
            continue
        try:
            outcomes.append(operation.apply(books, now))
        except QuotaError as error:  # any other undoes the transaction
            outcomes.append(error)
    changes = books.changes()
    version = transaction.save(changes) if changes else state.version
    events = watch.after(books.touched(), now) if watch is not None else ()

    def committed() -> None:
        cache.put(books, version)
        if watch is not None:
            watch.emit(events)

    return outcomes, committed
