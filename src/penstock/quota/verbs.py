"""The verbs of a ledger as flows: arguments are checked, then a thread of the ledger is asked.

`Ledger` runs them blocking and `AsyncLedger` awaiting; see `flows.py`.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from penstock.clock import Clock
from penstock.durations import Duration
from penstock.events import Hook, Hooks
from penstock.quota import hold_operations as hold_op
from penstock.quota import operations as op
from penstock.quota import reading
from penstock.quota.core import Core, Read, Step, Write, WriteMany
from penstock.quota.databases.base import Snapshot
from penstock.quota.databases.url import database_from_url
from penstock.quota.errors import InvalidQuota, QuotaError
from penstock.quota.near_empty import NEAR_EMPTY, Watch, check_share
from penstock.quota.plan_change import NEXT_PERIOD, NOW, PRIORITY
from penstock.quota.plans import Plan, read_plans
from penstock.quota.reconcile import reconcile
from penstock.quota.rows import CREDIT_KINDS, RESERVATION, STOCK, TOP_UP, EntryRow
from penstock.quota.values import (
    When,
    check_amount,
    check_anchor,
    check_change,
    check_deadline,
    check_name,
    check_note,
    check_zone,
)
from penstock.quota.views import (
    Account,
    Balance,
    Credit,
    Entry,
    Settlement,
    Stock,
    StockTotals,
    entry_view,
)
from penstock.stores.base import check_clock

# How long a hold lasts that is never settled.
HOLD_LASTS = "15m"
# How many seconds it may take to read the whole ledger, whatever the deadline.
_READ_ALL_LASTS = 3600.0


class LedgerFlows:
    """What both ledgers share."""

    def __init__(
        self,
        url: str,
        *,
        plans: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        deadline: Duration = "10s",
        near_empty: float = NEAR_EMPTY,
    ) -> None:
        definitions = read_plans(plans) if plans is not None else {}
        seconds = check_deadline(deadline)
        database = database_from_url(url, seconds)
        self._hooks = Hooks()
        watch = Watch(self._hooks, check_share(near_empty), database.name)
        self._core = Core(database, check_clock(clock), seconds, watch)
        self._undefined: dict[str, str] = {
            name: json.dumps(plan.definition()) for name, plan in definitions.items()
        }

    @property
    def name(self) -> str:
        """Where the ledger is, without secrets."""
        return self._core.database.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with every event: `QuotaNearEmpty`, once for each time that it happens.

        It is called by the thread that writes, after the change is on the disk and before the
        verb returns, so it must be fast.
        """
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks.remove(hook)

    # Flows ---------------------------------------------------------------------------------

    def _write(self, operation: op.Operation) -> Generator[Step, Any, Any]:
        yield from self._define()
        return (yield Write(operation))

    def _read(
        self, function: Callable[[Snapshot], Any], lasts: float = 0.0
    ) -> Generator[Step, Any, Any]:
        yield from self._define()
        return (yield Read(function, lasts))

    def _define(self) -> Generator[Step, Any, None]:
        """The plans that the ledger was made with are written down before anything else."""
        if self._undefined:
            yield Write(op.DefinePlans("", self._undefined))
            self._undefined = {}

    def _define_plans(self, plans: Mapping[str, Any]) -> Generator[Step, Any, dict[str, Plan]]:
        checked = read_plans(plans)
        definitions = {name: json.dumps(plan.definition()) for name, plan in checked.items()}
        yield from self._write(op.DefinePlans("", definitions))
        result: dict[str, Plan] = yield Read(reading.plans)
        return result

    def _open(
        self, account: str, plan: str | None, tz: object, anchor: object, prorate: bool
    ) -> Generator[Step, Any, Account]:
        if plan is not None:
            check_name(plan, "plan")
        operation = op.Open(
            _account(account), plan, check_zone(tz), check_anchor(anchor), bool(prorate)
        )
        opened: Account = yield from self._write(operation)
        return opened

    def _change_plan(
        self, account: str, plan: str, when: str | None, prorate: bool, reset: bool, who: str,
        note: str,
    ) -> Generator[Step, Any, Account]:  # fmt: skip
        if when not in (None, NOW, NEXT_PERIOD):
            raise InvalidQuota(f"when is {NOW!r}, {NEXT_PERIOD!r} or None, not {when!r:.100}")
        if reset and (prorate or when == NEXT_PERIOD):
            raise InvalidQuota("reset begins a new, whole period now: leave prorate and when out")
        operation = op.ChangePlan(
            _account(account), check_name(plan, "plan"), when, bool(prorate), bool(reset),
            check_note(who, "who"), check_note(note),
        )  # fmt: skip
        opened: Account = yield from self._write(operation)
        return opened

    def _grant(
        self, account: str, amount: int, meter: str, ref: str, expires: When | None,
        starts: When | None, kind: str, priority: int, who: str, note: str,
    ) -> Generator[Step, Any, Credit]:  # fmt: skip
        if kind not in CREDIT_KINDS:
            raise InvalidQuota(f"kind is 'top-up' or 'promo', not {kind!r:.100}")
        if type(priority) is not int or not 0 <= priority <= 1_000_000:
            raise InvalidQuota(f"priority is a whole number from 0, not {priority!r:.100}")
        operation = op.Grant(
            _account(account), check_amount(amount), _meter(meter), check_name(ref, "ref"), kind,
            starts, expires, priority, check_note(who, "who"), check_note(note),
        )  # fmt: skip
        credit: Credit = yield from self._write(operation)
        return credit

    def _adjust(
        self, account: str, amount: int, meter: str, ref: str, who: str, note: str
    ) -> Generator[Step, Any, Entry]:
        operation = op.Adjust(
            _account(account), check_change(amount), _meter(meter), check_name(ref, "ref"),
            check_note(who, "who"), check_note(note),
        )  # fmt: skip
        return entry_view((yield from self._write(operation)))

    def _spend(
        self, account: str, amount: int, meter: str, ref: str | None, who: str, note: str
    ) -> Generator[Step, Any, Entry]:
        # With a name of its own, it can be repeated if the connection is lost.
        name = check_name(ref, "ref") if ref is not None else uuid.uuid4().hex
        operation = op.Spend(
            _account(account), check_amount(amount), _meter(meter), name, ref or "",
            check_note(who, "who"), check_note(note),
        )  # fmt: skip
        return entry_view((yield from self._write(operation)))

    def _hold(
        self, account: str, amount: int, meter: str, lasts: When, id: str
    ) -> Generator[Step, Any, Stock]:
        operation = hold_op.TakeHold(
            _account(account), _meter(meter), id, check_amount(amount), RESERVATION, lasts
        )
        try:
            stock: Stock = yield from self._write(operation)
        except Exception:
            raise
        except BaseException:
            # Cancelled or interrupted, and perhaps taken: give it back.
            with contextlib.suppress(QuotaError):
                yield Write(hold_op.Settle(account, id, 0, close=True))
            raise
        return stock

    def _settle_hold(self, account: str, id: str, used: int) -> Generator[Step, Any, Settlement]:
        total = check_amount(used, "used", 0)
        operation = hold_op.Settle(_account(account), check_name(id, "id"), total, close=True)
        settlement: Settlement = yield from self._write(operation)
        return settlement

    def _settle(
        self, account: str, total: int, meter: str, source: str
    ) -> Generator[Step, Any, Settlement]:
        checked = check_amount(total, "total", 0)
        name = f"{check_name(source, 'source')}/{_meter(meter)}"
        operation = hold_op.Settle(_account(account), name, checked, meter=meter)
        settlement: Settlement = yield from self._write(operation)
        return settlement

    def _stock(self, totals: StockTotals, lasts: When) -> Generator[Step, Any, Stock]:
        stock: Stock = yield from self._write(_stock_operation(totals, lasts))
        return stock

    def _stock_many(
        self, totals: Iterable[StockTotals], lasts: When
    ) -> Generator[Step, Any, list[Stock | QuotaError]]:
        operations = [_stock_operation(one, lasts) for one in totals]
        yield from self._define()
        stocks: list[Stock | QuotaError] = yield WriteMany(operations)
        return stocks

    def _write_off(
        self, account: str, id: str, spent: bool, who: str, note: str
    ) -> Generator[Step, Any, Settlement]:
        operation = hold_op.WriteOff(
            _account(account), check_name(id, "id"), bool(spent), check_note(who, "who"),
            check_note(note),
        )  # fmt: skip
        settlement: Settlement = yield from self._write(operation)
        return settlement

    def _balance(self, account: str) -> Generator[Step, Any, Balance]:
        function = reading.balance(_account(account), self._core.clock)
        balance: Balance = yield from self._read(function)
        return balance

    def _balances(self) -> Generator[Step, Any, list[Balance]]:
        function = reading.balances(self._core.clock)
        balances: list[Balance] = yield from self._read(function, _READ_ALL_LASTS)
        return balances

    def _entries(
        self, account: str | None, meter: str | None, after: int, limit: int
    ) -> Generator[Step, Any, list[Entry]]:
        if account is not None:
            _account(account)
        if type(after) is not int or after < 0:
            raise InvalidQuota(f"after is the seq of an entry, or 0, not {after!r:.100}")
        function = reading.entries(account, meter, after, limit)
        rows: list[EntryRow] = yield from self._read(function)
        return [entry_view(row) for row in rows]

    def _reconcile(self) -> Generator[Step, Any, Any]:
        return (yield from self._read(reconcile(self._core.clock), _READ_ALL_LASTS))


def _stock_operation(totals: StockTotals, lasts: When) -> hold_op.TakeHold:
    if not isinstance(totals, StockTotals):
        raise InvalidQuota(f"stock_many takes StockTotals(account, ...), not {totals!r:.100}")
    granted = check_amount(totals.granted, "granted", 0)
    settled = check_amount(totals.settled, "settled", 0)
    returned = check_amount(totals.returned, "returned", 0)
    if settled + returned > granted:
        raise InvalidQuota(
            f"settled and returned are parts of granted: {settled:,} + {returned:,} is more"
            f" than {granted:,}; a holder that has used more asks for at least their sum"
        )
    return hold_op.TakeHold(
        _account(totals.account), _meter(totals.meter), check_name(totals.id, "id"), granted,
        STOCK, lasts, 0, settled, returned,
    )  # fmt: skip


def _account(account: object) -> str:
    return check_name(account, "account")


def _meter(meter: object) -> str:
    return check_name(meter, "meter")


__all__ = ["HOLD_LASTS", "PRIORITY", "TOP_UP", "LedgerFlows"]
