"""Questions to a ledger: balances, entries, holds, plans. They change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from penstock.clock import Clock
from penstock.quota.batch import BookSet
from penstock.quota.databases.base import Snapshot, Wanted
from penstock.quota.databases.tables import ACCOUNT, ENTRY, HOLD, PERIOD
from penstock.quota.errors import UnknownAccount
from penstock.quota.plans import Plan, read_plan
from penstock.quota.rows import NEVER, EntryRow
from penstock.quota.values import moment
from penstock.quota.views import (
    Account,
    Balance,
    Entry,
    Period,
    account_view,
    balance_view,
    entry_view,
    period_view,
)

PAGE = 1000


@dataclass(frozen=True, slots=True)
class OpenHold:
    """Units that are set aside. ``expires`` is None for one that never does."""

    id: str
    account: str
    meter: str
    kind: str
    held: int
    settled: int
    created: datetime
    expires: datetime | None


def balance(account: str, clock: Clock | None) -> Callable[[Snapshot], Balance]:
    def read(snapshot: Snapshot) -> Balance:
        """As it is now: what has become due since the last operation is counted."""
        now = clock.now() if clock is not None else snapshot.now()
        books = BookSet()
        books.load(snapshot, Wanted({account}), now, needs_plans=False)
        book = books.find(account)
        if book is None:
            raise UnknownAccount(account)
        return balance_view(book, now)

    return read


def balances(clock: Clock | None) -> Callable[[Snapshot], list[Balance]]:
    def read(snapshot: Snapshot) -> list[Balance]:
        """Of all accounts, some at a time."""
        now = clock.now() if clock is not None else snapshot.now()
        names = [row[0] for row in snapshot.query("SELECT id FROM penstock_account ORDER BY id")]
        found = []
        for start in range(0, len(names), PAGE):
            page = names[start : start + PAGE]
            books = BookSet()
            books.load(snapshot, Wanted(set(page)), now, needs_plans=False)
            found += [balance_view(book, now) for name in page if (book := books.find(name))]
        return found

    return read


def entries(
    account: str | None, meter: str | None, after: int, limit: int
) -> Callable[[Snapshot], list[EntryRow]]:
    def read(snapshot: Snapshot) -> list[EntryRow]:
        where, parameters = ["t.seq > ?"], [after]
        for column, value in (("account", account), ("meter", meter)):
            if value is not None:
                where.append(f"t.{column} = ?")
                parameters.append(value)  # type: ignore[arg-type]  # of any type
        if account is not None:
            _check_known(snapshot, account)
        sql = (
            f"SELECT {ENTRY.select} FROM {ENTRY.name} AS t WHERE {' AND '.join(where)}"
            f" ORDER BY t.seq LIMIT {limit}"
        )
        return [ENTRY.from_tuple(row) for row in snapshot.query(sql, *parameters)]

    return read


def accounts(snapshot: Snapshot) -> list[Account]:
    sql = f"SELECT {ACCOUNT.select} FROM {ACCOUNT.name} AS t ORDER BY t.id"
    return [account_view(ACCOUNT.from_tuple(row)) for row in snapshot.query(sql)]


def account(name: str) -> Callable[[Snapshot], Account]:
    def read(snapshot: Snapshot) -> Account:
        loaded = snapshot.load(Wanted({name}))
        if not loaded.accounts:
            raise UnknownAccount(name)
        return account_view(loaded.accounts[0])

    return read


def periods(account: str, meter: str) -> Callable[[Snapshot], list[Period]]:
    def read(snapshot: Snapshot) -> list[Period]:
        _check_known(snapshot, account)
        tz = next(iter(snapshot.query("SELECT tz FROM penstock_account WHERE id = ?", account)))[0]
        sql = (
            f"SELECT {PERIOD.select} FROM {PERIOD.name} AS t"
            " WHERE t.account = ? AND t.meter = ? ORDER BY t.starts"
        )
        rows = snapshot.query(sql, account, meter)
        return [period_view(PERIOD.from_tuple(row), tz) for row in rows]

    return read


def open_holds(account: str | None) -> Callable[[Snapshot], list[OpenHold]]:
    def read(snapshot: Snapshot) -> list[OpenHold]:
        where = "t.open = 1 AND t.kind <> 'source'" + (" AND t.account = ?" if account else "")
        sql = f"SELECT {HOLD.select} FROM {HOLD.name} AS t WHERE {where} ORDER BY t.created, t.id"
        rows = snapshot.query(sql, *([account] if account else []))
        return [
            OpenHold(
                hold.id, hold.account, hold.meter, hold.kind, hold.remaining, hold.settled,
                moment(hold.created), moment(hold.expires) if hold.expires < NEVER else None,
            )
            for hold in map(HOLD.from_tuple, rows)
        ]  # fmt: skip

    return read


def plans(snapshot: Snapshot) -> dict[str, Plan]:
    definitions = snapshot.plans()
    return {name: read_plan(name, json.loads(definitions[name])) for name in sorted(definitions)}


def views(rows: list[EntryRow]) -> list[Entry]:
    return [entry_view(row) for row in rows]


def _check_known(snapshot: Snapshot, account: str) -> None:
    sql = "SELECT id FROM penstock_account WHERE id = ?"
    if not list(snapshot.query(sql, account)):
        raise UnknownAccount(account)
