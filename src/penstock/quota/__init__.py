"""Quotas that are money: accounts, plans and balances in a durable ledger.

Counters in a store may be lost; what was sold may not. A `Ledger` writes every change of a
balance down, in SQLite or PostgreSQL. May import everything up to the gates, and is imported by
what is above them.

The way of a call, such as ``ledger.hold("acme", 4000, meter="tokens")``::

    ledger.py, async_ledger.py   the verbs: one blocks, one is awaited
    verbs.py                     checks the arguments (values.py), makes an operation
    core.py, worker.py           hands it to the thread that writes, with those of other callers
    batch.py                     one transaction: load the accounts' rows, apply, save
    renewal.py                   first, what has become due: periods, expiry, plan_change.py
    operations.py                then the operation itself; holds are in hold_operations.py
    book.py                      moves amounts between balance, credits, holds and history
    databases/                   rows in SQLite or PostgreSQL

Requests do not wait for that. Rules take from a *stock* of units in a store::

    quota_store.py               the store of a gate: limits and quotas in one decision
    quota_counters.py            hit, write down what was taken, or ask the ledger for more
    stocks.py                    fills stocks, in the background if it can
    stock_row.py                 the stock in the store; what clients see is in stock_numbers.py
    journal.py, settling.py      what this process has spent, and its reports to the ledger
    stock_operations.py          the two operations of the ledger that all this needs

Plans are in `plans.py`, the calendar in `periods.py`. `reading.py`, `reconcile.py` and `export.py`
only read. `rows.py` is what is stored, `views.py` what callers see, `hold.py` what `hold` returns.
"""

from penstock.quota.async_ledger import AsyncLedger
from penstock.quota.errors import (
    AccountExists,
    InvalidQuota,
    LedgerUnavailable,
    LedgerVersion,
    QuotaError,
    QuotaExceeded,
    RefReused,
    UnknownAccount,
    UnknownHold,
    UnknownPlan,
)
from penstock.quota.hold import AsyncHold, Hold
from penstock.quota.ledger import Ledger
from penstock.quota.plans import Allowance, Plan
from penstock.quota.quota_store import QuotaStore
from penstock.quota.reading import OpenHold
from penstock.quota.reconcile import Difference, Reconciliation
from penstock.quota.views import (
    Account,
    Balance,
    Credit,
    Entry,
    MeterBalance,
    Period,
    Settlement,
    Stock,
    StockTotals,
)

__all__ = [
    "Account",
    "AccountExists",
    "Allowance",
    "AsyncHold",
    "AsyncLedger",
    "Balance",
    "Credit",
    "Difference",
    "Entry",
    "Hold",
    "InvalidQuota",
    "Ledger",
    "LedgerUnavailable",
    "LedgerVersion",
    "MeterBalance",
    "OpenHold",
    "Period",
    "Plan",
    "QuotaError",
    "QuotaExceeded",
    "QuotaStore",
    "Reconciliation",
    "RefReused",
    "Settlement",
    "Stock",
    "StockTotals",
    "UnknownAccount",
    "UnknownHold",
    "UnknownPlan",
]
