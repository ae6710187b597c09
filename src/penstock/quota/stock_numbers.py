"""What this process knows about the quotas of accounts, from what the ledger last said.

It is used for what clients are told (limit, remaining, reset) and for when to ask for more. It
decides nothing: the stock in the store does.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

from penstock.decision import Decision, decided
from penstock.limit_options import MOST_UNITS
from penstock.limits import Limit
from penstock.quota.rows import NEVER
from penstock.quota.stock_operations import StockReport

# The accounts and meters that are remembered.
_MOST = 100_000
# After a refusal, how long the ledger is not asked for as much again, in seconds.
ASK_AGAIN = 1.0


@dataclass(slots=True)
class Known:
    """One meter of one account. Times are seconds of a monotonic clock."""

    report: StockReport | None = None
    low: int = 0  # with less than this in the stock, more is asked for
    spent: int = 0  # in the stock, when it was last filled, and when that was
    at: float = 0.0
    refused: int = 0  # so many units, or more, were not there
    refused_until: float = 0.0
    unknown_until: float = 0.0  # the ledger does not know the account

    def is_refused(self, cost: int, now: float) -> bool:
        return now < self.refused_until and cost >= self.refused

    def pace(self, spent: int, horizon: float, now: float) -> int:
        """Units that will be spent within ``horizon`` seconds, as since the last time."""
        elapsed = max(now - self.at, 0.001)
        return int(max(0, spent - self.spent) / elapsed * horizon) if self.at else 0


class StockNumbers:
    """The last reports, by meter and account."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, meter: str, account: str) -> Known:
        key = meter, account
        known = self._known.get(key)
        if known is None:
            with self._lock:
                known = self._known.setdefault(key, Known())
                if len(self._known) > _MOST:
                    self._known.popitem(last=False)
        return known

    def find(self, meter: str, account: str) -> Known | None:
        return self._known.get((meter, account))


def shown(decision: Decision, known: Known | None, now: int) -> Decision:
    """The decision on a stock as clients see it: the quota of the account, not of the stock.

    ``now`` is nanoseconds since 1970.
    """
    report = known.report if known is not None else None
    if report is None:
        left, until, limit = decision._room, 0, decision.limit
    else:
        # While a stock is filled, its units may be counted twice for a moment, here only.
        most = max(0, report.remaining + report.overdraft)
        left = min(max(0, decision._room) + report.available, most)
        until = max(0, report.ends - now) if report.ends < NEVER else 0
        limit = limit_of(max(report.amount, left), report.unit)
    retry = 0
    if not decision.allowed:
        # A look without hits is refused, too, when nothing is left: see `rules.deciding.results`.
        left = left or -1
        retry = decision._retry if decision.degraded else until or -1
    return decided(
        limit, decision.allowed, left, 1, retry, until, 0, False, decision._mark,
        decision.degraded,
    )  # fmt: skip


@lru_cache(4096)
def limit_of(amount: int, unit: str | None) -> Limit:
    """A quota as a limit, for answers. One without periods is shown for a year."""
    units = min(max(1, amount), MOST_UNITS)
    return Limit(units, unit or "year", algorithm="fixed_window", align="first_hit")
