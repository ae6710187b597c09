"""The quotas of a worker: the ledger that ``--ledger`` names, over the store.

Every worker has its own connection to the ledger and its own journal, and settles what it has
spent. Stocks are in the store, which the workers share. A worker that is killed is replaced, and
the next one finds its journal. The service starts without the ledger, too: until it answers, units
that are in the store can be spent.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from penstock.admin.commands import Answer, done, failed
from penstock.errors import PenstockError
from penstock.events import Event, QuotaNearEmpty
from penstock.metrics import Snapshot, Webhook
from penstock.quota import LedgerUnavailable, QuotaStore, UnknownAccount
from penstock.quota.async_ledger import AsyncLedger
from penstock.quota.views import Balance, MeterBalance
from penstock.running.settings import Settings, SettingsError
from penstock.service.health import LEDGER, Health
from penstock.stores.base import Store

logger = logging.getLogger("penstock.server")

NO_LEDGER = "this service has no ledger: start it with --ledger"


class WorkerQuotas:
    """A ledger and the `QuotaStore` over it, from start to end of a worker."""

    def __init__(self, settings: Settings, store: Store, health: Health) -> None:
        try:
            self.ledger = AsyncLedger(settings.ledger)
            self.store = QuotaStore(
                self.ledger, store, settle=settings.settle, journal=settings.journal or None
            )
        except (ModuleNotFoundError, TypeError, ValueError, PenstockError) as error:
            raise SettingsError(f"ledger: {error}") from None
        self._health = health
        self._webhook = Webhook(settings.webhook) if settings.webhook else None
        self._near_empty = 0
        self.ledger.subscribe(self._on_event)
        self.store.stocks.on_ledger = self._on_ledger

    async def start(self) -> None:
        if self._webhook is not None:
            self._webhook.start()
        try:
            await asyncio.wait_for(self.ledger.connect(), 2)
        except (PenstockError, TimeoutError) as error:
            self._on_ledger(False, str(error) or "it did not answer in time")
            logger.warning("started without the ledger: %s", error)
        self.store.start()

    def _on_ledger(self, up: bool, reason: str) -> None:
        self._health.set(LEDGER, up, reason)

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, QuotaNearEmpty):
            return
        self._near_empty += 1
        logger.warning(
            "%s has %d of %d %s left", event.account, event.remaining, event.amount, event.meter
        )
        if self._webhook is not None:
            self._webhook(event)

    async def close(self) -> None:
        """What cannot be settled now stays in the journal."""
        await asyncio.to_thread(self.store.close)
        await self.ledger.close()
        if self._webhook is not None:
            await asyncio.to_thread(self._webhook.close)

    # For operators -------------------------------------------------------------------------------

    def collect(self, out: Snapshot) -> None:
        """Add its metrics. None of them has a label that grows with accounts."""
        stocks, settling = self.store.stocks, self.store.settling
        out.set("penstock_quota_stocks", (), settling.watched)
        out.set("penstock_quota_unsettled_units", (), self.store.unsettled)
        out.set("penstock_quota_degraded", (), int(not self.store.ledger_up))
        for meter, units in stocks.taken.copy().items():
            out.set("penstock_quota_spent_units_total", (meter,), units)
        for meter, units in stocks.returned.copy().items():
            out.set("penstock_quota_returned_units_total", (meter,), units)
        for outcome, count in settling.outcomes.items():
            out.set("penstock_quota_settlements_total", (outcome,), count)
        out.set("penstock_quota_near_empty_total", (), self._near_empty)

    async def balance(self, account: str) -> Answer:
        """For the admin API: what an account has, and when it runs out."""
        try:
            return done(view_of(await self.ledger.balance(account)))
        except UnknownAccount as error:
            return failed(404, str(error))
        except LedgerUnavailable as error:
            return failed(503, str(error))
        except PenstockError as error:
            return failed(400, str(error))


def view_of(balance: Balance) -> dict[str, Any]:
    """A balance as JSON. Times are in the account's zone."""
    account = balance.account
    return {
        "account": account.name,
        "plan": account.plan,
        "tz": account.tz,
        "meters": {name: _meter(balance[name]) for name in balance},
    }


def _meter(meter: MeterBalance) -> dict[str, Any]:
    period = meter.period
    return {
        "available": meter.available,
        "held": meter.held,
        "remaining": meter.remaining,
        "overdraft": meter.overdraft,
        "period": None
        if period is None
        else {
            "starts": period.starts.isoformat(),
            "ends": period.ends.isoformat(),
            "amount": period.amount,
            "used": period.used,
            "uncovered": period.uncovered,
        },
        "runs_out": None if meter.runs_out is None else meter.runs_out.isoformat(),
    }
