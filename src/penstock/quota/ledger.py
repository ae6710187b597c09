"""Ledger: quotas that are kept for good.

>>> from penstock.quota import Ledger
>>> ledger = Ledger("sqlite:///quota.db", plans={"pro": {"tokens": "5000000/month"}})
>>> ledger.open("acme", plan="pro", tz="Asia/Taipei")
>>> with ledger.hold("acme", 4000, meter="tokens") as hold:
...     hold.settle(3512)
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import date
from os import PathLike
from typing import Any, TextIO, TypeVar

from penstock import flows
from penstock.durations import Duration
from penstock.quota import export, reading
from penstock.quota.core import Step
from penstock.quota.errors import QuotaError
from penstock.quota.hold import Hold
from penstock.quota.plans import Plan
from penstock.quota.quota_store import QuotaStore
from penstock.quota.reading import PAGE, OpenHold
from penstock.quota.reconcile import Reconciliation
from penstock.quota.values import When
from penstock.quota.verbs import HOLD_LASTS, PRIORITY, TOP_UP, LedgerFlows
from penstock.quota.views import (
    Account,
    Balance,
    Credit,
    Entry,
    Period,
    Settlement,
    Stock,
    StockTotals,
)
from penstock.stores.base import Store

Result = TypeVar("Result")


class Ledger(LedgerFlows):
    """Accounts, what they were granted and what they have used, in SQLite or PostgreSQL.

    ``plans`` are written into the database, where all processes find them. What a verb has
    returned is on the disk. Every verb may be repeated: with the same ``ref``, ``id`` or total,
    nothing is counted twice. `AsyncLedger` is the same for coroutines. Close it when done.

    It connects when it is first used. A database that does not answer for ``deadline`` is
    `LedgerUnavailable`; a call may have to wait for the one before it, too. `subscribe` to be
    told when no more than the share ``near_empty`` of a balance is left. ``clock`` is for tests:
    the time is the database's.
    """

    def _run(self, flow: Generator[Step, Any, Result]) -> Result:
        return flows.run(flow, self._core.do)

    def connect(self) -> None:
        """Connect, create or migrate the tables, and write the plans down: raises early."""
        self._run(self._read(reading.plans))

    def define_plans(self, plans: Mapping[str, Any]) -> dict[str, Plan]:
        """Add or replace plans; returns all.

        A changed plan applies to each account from its next period on. To apply it now, call
        `change_plan` with the plan that the account has.
        """
        return self._run(self._define_plans(plans))

    def plans(self) -> dict[str, Plan]:
        """All plans, by name."""
        plans: dict[str, Plan] = self._run(self._read(reading.plans))
        return plans

    def open(
        self,
        account: str,
        plan: str | None = None,
        tz: str = "UTC",
        *,
        anchor: int | str | date = 1,
        prorate: bool = False,
    ) -> Account:
        """Open an account. Its periods follow the calendar of ``tz``.

        ``anchor`` is the day of the month on which they begin, 31 for the last, or a date whose
        day and month they begin on. ``prorate`` grants the share of the first period that is
        left. An account without a plan has what it is granted. If it exists with the same
        settings, nothing happens.
        """
        return self._run(self._open(account, plan, tz, anchor, prorate))

    def change_plan(
        self,
        account: str,
        plan: str,
        *,
        when: str | None = None,
        prorate: bool = False,
        reset: bool = False,
        who: str = "",
        note: str = "",
    ) -> Account:
        """Change the plan. An upgrade applies at once, a downgrade when the period ends.

        ``when`` is ``"now"`` or ``"next-period"`` to say so. At once, what was used in the period
        stays used; ``prorate`` counts the difference for the rest of the period only, and
        ``reset`` begins a new period today, with nothing used.
        """
        return self._run(self._change_plan(account, plan, when, prorate, reset, who, note))

    def grant(
        self,
        account: str,
        amount: int,
        *,
        meter: str,
        ref: str,
        expires: When | None = None,
        starts: When | None = None,
        kind: str = TOP_UP,
        priority: int = PRIORITY,
        who: str = "",
        note: str = "",
    ) -> Credit:
        """Add units that were bought (``"top-up"``) or given (``"promo"``).

        ``ref`` names the grant, an invoice for example: the same one again changes nothing.
        ``expires`` and ``starts`` are a duration from now, a datetime or a date. Credits are
        used by ``priority`` (low first), then those that end first, then the oldest.
        """
        flow = self._grant(account, amount, meter, ref, expires, starts, kind, priority, who, note)
        return self._run(flow)

    def adjust(
        self, account: str, amount: int, *, meter: str, ref: str, who: str = "", note: str = ""
    ) -> Entry:
        """Correct a balance, up or down. The history shows it as a correction."""
        return self._run(self._adjust(account, amount, meter, ref, who, note))

    def spend(
        self,
        account: str,
        amount: int = 1,
        *,
        meter: str,
        ref: str | None = None,
        who: str = "",
        note: str = "",
    ) -> Entry:
        """Use units at once, all or none: `QuotaExceeded`. Idempotent with a ``ref``."""
        return self._run(self._spend(account, amount, meter, ref, who, note))

    def hold(self, account: str, amount: int, *, meter: str, lasts: When = HOLD_LASTS) -> Hold:
        """Set units aside before it is known how many will be used: then ``hold.settle(used)``.

        `QuotaExceeded` if there are not enough. A hold that is never settled is given back after
        ``lasts``.
        """
        row = self._run(self._hold(account, amount, meter, lasts, uuid.uuid4().hex))
        return Hold(row, amount, self.settle_hold)

    def settle_hold(self, account: str, id: str, used: int) -> Settlement:
        """Settle a hold by its ``id``, from any process: see `Hold.settle`."""
        return self._run(self._settle_hold(account, id, used))

    def settle(self, account: str, total: int, *, meter: str, source: str) -> Settlement:
        """Count what was used already: the total of a ``source`` since it exists.

        A source is whatever counts up from 0, such as one run of one process. Totals may be
        sent again, late, or in another order: the largest counts. What goes beyond the quota is
        written down as ``uncovered``.
        """
        return self._run(self._settle(account, total, meter, source))

    def stock(
        self, account: str, *, meter: str, id: str, granted: int, settled: int = 0,
        returned: int = 0, lasts: When = "1h",
    ) -> Stock:  # fmt: skip
        """Set units aside for a holder that spends them by itself, for a gate or a region.

        All numbers are totals since the stock ``id`` exists: what it is to have been granted, has
        spent, has given back. The answer says what it has been granted, perhaps less. It stays
        held until it is settled, also after ``lasts``, which only says when to look after it.
        """
        totals = StockTotals(account, meter, id, granted, settled, returned)
        return self._run(self._stock(totals, lasts))

    def stock_many(
        self, totals: Iterable[StockTotals], *, lasts: When = "1h"
    ) -> list[Stock | QuotaError]:
        """The same for many stocks, in one transaction: what a holder reports every few seconds.

        The answers come in their order. One that cannot be done, for an account that is not
        there for example, is its error, and the others are done.
        """
        return self._run(self._stock_many(totals, lasts))

    def write_off(
        self, account: str, id: str, *, spent: bool = True, who: str = "", note: str = ""
    ) -> Settlement:
        """Close a hold whose holder is lost: what it has left was spent, or is given back."""
        return self._run(self._write_off(account, id, spent, who, note))

    def account(self, account: str) -> Account:
        """Its plan and settings."""
        found: Account = self._run(self._read(reading.account(account)))
        return found

    def accounts(self) -> list[Account]:
        """All accounts, by name."""
        found: list[Account] = self._run(self._read(reading.accounts))
        return found

    def balance(self, account: str) -> Balance:
        """What an account has now: ``ledger.balance("acme")["tokens"].available``."""
        return self._run(self._balance(account))

    def balances(self) -> list[Balance]:
        """What all accounts have now, by name."""
        return self._run(self._balances())

    def periods(self, account: str, *, meter: str) -> list[Period]:
        """What was used in each period, the oldest first: what an invoice needs."""
        found: list[Period] = self._run(self._read(reading.periods(account, meter)))
        return found

    def holds(self, account: str | None = None) -> list[OpenHold]:
        """Holds and stocks that are open."""
        found: list[OpenHold] = self._run(self._read(reading.open_holds(account)))
        return found

    def entries(
        self, account: str | None = None, *, meter: str | None = None, after: int = 0
    ) -> Iterator[Entry]:
        """The history after an entry's ``seq``, of one account or of all."""
        while True:
            page = self._run(self._entries(account, meter, after, PAGE))
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].seq

    def export(
        self,
        to: str | PathLike[str] | TextIO,
        *,
        format: str = "jsonl",
        after: int = 0,
        account: str | None = None,
    ) -> int:
        """Write the history to a file, as JSON lines or CSV; returns the last ``seq``.

        Hand that over as ``after`` the next time, and only new entries are written.
        """
        export.check_format(format)
        if not hasattr(to, "write"):
            with open(to, "w", encoding="utf-8", newline="") as file:
                return self.export(file, format=format, after=after, account=account)
        to.write(export.header(format))
        while page := self._run(self._entries(account, None, after, PAGE)):
            to.write(export.lines(page, format))
            after = page[-1].seq
        return after

    def reconcile(self) -> Reconciliation:
        """Add up the history and compare it with balances, credits, holds and periods."""
        result: Reconciliation = self._run(self._reconcile())
        return result

    def quota_store(
        self,
        store: Store | str | None = None,
        *,
        settle: Duration = "10s",
        journal: str | PathLike[str] | None = None,
        deadline: Duration = "2s",
    ) -> QuotaStore:
        """The same store with the quotas of this ledger, for rules: see `QuotaStore`."""
        return QuotaStore(self, store, settle=settle, journal=journal, deadline=deadline)

    def close(self) -> None:
        """Finish what was begun, and end the threads."""
        self._core.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
