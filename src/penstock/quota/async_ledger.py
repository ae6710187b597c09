"""AsyncLedger: the verbs of `Ledger` as coroutines."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine, Generator, Iterable, Mapping
from datetime import date
from os import PathLike
from typing import Any, TextIO, TypeVar

from penstock import flows
from penstock.durations import Duration
from penstock.quota import export, reading
from penstock.quota.core import Step
from penstock.quota.errors import QuotaError
from penstock.quota.hold import AsyncHold
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


class AsyncLedger(LedgerFlows):
    """`Ledger` for coroutines: the same verbs, the same answers, the same databases.

    A cancelled task leaves no hold behind. A verb that was cancelled while it waited may have
    been done.
    """

    async def _run(self, flow: Generator[Step, Any, Result]) -> Result:
        return await flows.run_async(flow, self._core.do_async)

    async def connect(self) -> None:
        """See `Ledger.connect`."""
        await self._run(self._read(reading.plans))

    async def define_plans(self, plans: Mapping[str, Any]) -> dict[str, Plan]:
        """See `Ledger.define_plans`."""
        return await self._run(self._define_plans(plans))

    async def plans(self) -> dict[str, Plan]:
        """All plans, by name."""
        plans: dict[str, Plan] = await self._run(self._read(reading.plans))
        return plans

    async def open(
        self,
        account: str,
        plan: str | None = None,
        tz: str = "UTC",
        *,
        anchor: int | str | date = 1,
        prorate: bool = False,
    ) -> Account:
        """Open an account: see `Ledger.open`."""
        return await self._run(self._open(account, plan, tz, anchor, prorate))

    async def change_plan(
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
        """Change the plan: see `Ledger.change_plan`."""
        flow = self._change_plan(account, plan, when, prorate, reset, who, note)
        return await self._run(flow)

    async def grant(
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
        """Add units: see `Ledger.grant`."""
        flow = self._grant(account, amount, meter, ref, expires, starts, kind, priority, who, note)
        return await self._run(flow)

    async def adjust(
        self, account: str, amount: int, *, meter: str, ref: str, who: str = "", note: str = ""
    ) -> Entry:
        """Correct a balance: see `Ledger.adjust`."""
        return await self._run(self._adjust(account, amount, meter, ref, who, note))

    async def spend(
        self,
        account: str,
        amount: int = 1,
        *,
        meter: str,
        ref: str | None = None,
        who: str = "",
        note: str = "",
    ) -> Entry:
        """Use units at once, all or none: see `Ledger.spend`."""
        return await self._run(self._spend(account, amount, meter, ref, who, note))

    def hold(self, account: str, amount: int, *, meter: str, lasts: When = HOLD_LASTS) -> AsyncHold:
        """``async with ledger.hold("acme", 4000, meter="tokens") as hold``: see `Ledger.hold`."""
        id = uuid.uuid4().hex

        def take() -> Coroutine[Any, Any, Stock]:
            return self._run(self._hold(account, amount, meter, lasts, id))

        return AsyncHold(account, meter, amount, id, take, self.settle_hold)

    async def settle_hold(self, account: str, id: str, used: int) -> Settlement:
        """Settle a hold by its ``id``: see `Hold.settle`."""
        return await self._run(self._settle_hold(account, id, used))

    async def settle(self, account: str, total: int, *, meter: str, source: str) -> Settlement:
        """Count what was used already, as a total of a source: see `Ledger.settle`."""
        return await self._run(self._settle(account, total, meter, source))

    async def stock(
        self, account: str, *, meter: str, id: str, granted: int, settled: int = 0,
        returned: int = 0, lasts: When = "1h",
    ) -> Stock:  # fmt: skip
        """Set units aside for a holder that spends them by itself: see `Ledger.stock`."""
        totals = StockTotals(account, meter, id, granted, settled, returned)
        return await self._run(self._stock(totals, lasts))

    async def stock_many(
        self, totals: Iterable[StockTotals], *, lasts: When = "1h"
    ) -> list[Stock | QuotaError]:
        """The same for many stocks, in one transaction: see `Ledger.stock_many`."""
        return await self._run(self._stock_many(totals, lasts))

    async def write_off(
        self, account: str, id: str, *, spent: bool = True, who: str = "", note: str = ""
    ) -> Settlement:
        """Close a hold whose holder is lost: see `Ledger.write_off`."""
        return await self._run(self._write_off(account, id, spent, who, note))

    async def account(self, account: str) -> Account:
        """Its plan and settings."""
        found: Account = await self._run(self._read(reading.account(account)))
        return found

    async def accounts(self) -> list[Account]:
        """All accounts, by name."""
        found: list[Account] = await self._run(self._read(reading.accounts))
        return found

    async def balance(self, account: str) -> Balance:
        """What an account has now: see `Ledger.balance`."""
        return await self._run(self._balance(account))

    async def balances(self) -> list[Balance]:
        """What all accounts have now, by name."""
        return await self._run(self._balances())

    async def periods(self, account: str, *, meter: str) -> list[Period]:
        """What was used in each period, the oldest first."""
        found: list[Period] = await self._run(self._read(reading.periods(account, meter)))
        return found

    async def holds(self, account: str | None = None) -> list[OpenHold]:
        """Holds and stocks that are open."""
        found: list[OpenHold] = await self._run(self._read(reading.open_holds(account)))
        return found

    async def entries(
        self, account: str | None = None, *, meter: str | None = None, after: int = 0
    ) -> AsyncIterator[Entry]:
        """The history after an entry's ``seq``, of one account or of all."""
        while True:
            page = await self._run(self._entries(account, meter, after, PAGE))
            for entry in page:
                yield entry
            if len(page) < PAGE:
                return
            after = page[-1].seq

    async def export(
        self,
        to: str | PathLike[str] | TextIO,
        *,
        format: str = "jsonl",
        after: int = 0,
        account: str | None = None,
    ) -> int:
        """Write the history to a file: see `Ledger.export`. Only reading is awaited."""
        export.check_format(format)
        if not hasattr(to, "write"):
            with open(to, "w", encoding="utf-8", newline="") as file:
                return await self.export(file, format=format, after=after, account=account)
        to.write(export.header(format))
        while page := await self._run(self._entries(account, None, after, PAGE)):
            to.write(export.lines(page, format))
            after = page[-1].seq
        return after

    async def reconcile(self) -> Reconciliation:
        """Whether everything agrees: see `Ledger.reconcile`."""
        result: Reconciliation = await self._run(self._reconcile())
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

    async def close(self) -> None:
        """Finish what was begun, and end the threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._core.close)

    async def __aenter__(self) -> AsyncLedger:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
