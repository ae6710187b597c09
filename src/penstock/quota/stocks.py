"""Stocks: the units of a ledger that are in a store, for requests to spend.

::

    ledger ── FillStock ──> hold ── stock_row.put_in ──> row in the store ── hit ──> request
       ^                                                                        │
       └── SettlePart <── settling.py, every 10 s <── journal.py <──────────────┘

A stock that runs low is filled in the background. A request that finds too little waits until
more was asked for. The ledger sets units aside before they are put into the store, and the store
gives out each of them once, so an account never spends more than it has, whatever is killed when.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from penstock import flows
from penstock.errors import StoreError
from penstock.limit_options import MOST_UNITS
from penstock.limits import stock_limit
from penstock.quota import stock_row
from penstock.quota.core import WriteMany
from penstock.quota.errors import LedgerUnavailable, QuotaError, UnknownAccount, UnknownPlan
from penstock.quota.journal import Journal, StockKey, Totals
from penstock.quota.operations import Operation
from penstock.quota.rows import NEVER
from penstock.quota.stock_numbers import ASK_AGAIN, Known, StockNumbers
from penstock.quota.stock_operations import FillStock, SettlePart, StockReport, stock_id
from penstock.quota.verbs import LedgerFlows
from penstock.stores.base import Counters, Store

logger = logging.getLogger("penstock.quota")

_FILLERS = 2


class FillRequest(NamedTuple):
    """More units for an account: it needs ``cost``, or 0 to fill a stock that runs low."""

    account: str
    meter: str
    cost: int
    plan: str | None = None


@dataclass(slots=True)
class _Filling:
    """A stock that is being filled, for all that wait for it."""

    request: FillRequest
    room: Future[int] = field(default_factory=Future)  # what is in the stock then
    started: bool = False
    next: _Filling | None = None  # for those that came after it had started


class Stocks:
    """The stocks of one store, filled from one ledger by this process."""

    def __init__(
        self,
        ledger: LedgerFlows,
        store: Store,
        folder: Path,
        origin: str,
        settle: float,
    ) -> None:
        self.ledger = ledger
        self.store = store
        self.folder = folder
        self.origin = origin
        self.settle = settle  # seconds
        self.numbers = StockNumbers()
        self.ledger_up = True
        # Called from any thread when the ledger begins to answer or stops, with the reason.
        self.on_ledger: Callable[[bool, str], None] | None = None
        self.taken: dict[str, int] = {}  # units by meter, since the start
        self.returned: dict[str, int] = {}
        self._plans: dict[str, Any] = {}
        self._undefined = False
        self._lock = threading.Lock()
        self._journal: Journal | None = None
        self._pid = 0
        self._queue: SimpleQueue[_Filling | None] = SimpleQueue()
        self._filling: dict[tuple[str, str], _Filling] = {}
        self._closed = False

    def counters(self, meter: str) -> Counters:
        """Where the store counts a meter. While the store is away, it refuses."""
        return self.store.counters(stock_limit("closed"), meter)

    @property
    def journal(self) -> Journal:
        """This process's own. A process that was forked begins its own."""
        journal = self._journal
        if journal is None or self._pid != os.getpid():
            with self._lock:
                journal = self._journal
                if journal is None or self._pid != os.getpid():
                    journal = self._start()
        return journal

    def _start(self) -> Journal:
        if self._journal is not None:
            self._journal.close()  # of the process that forked this one; it keeps its lock
        self._queue, self._filling = SimpleQueue(), {}
        journal = self._journal = Journal.create(self.folder, self.origin)
        self._pid = os.getpid()
        for _ in range(_FILLERS):
            threading.Thread(
                target=self._fill_all, args=(self._queue,), name="penstock-quota-fill", daemon=True
            ).start()
        return journal

    def close(self) -> None:
        """The journal stays, for whoever comes next, unless nothing is left to report."""
        with self._lock:
            self._closed = True
            journal, self._journal = self._journal, None
        for _ in range(_FILLERS):
            self._queue.put(None)
        if journal is not None and self._pid == os.getpid():
            if len(journal):
                journal.close()
            else:
                journal.remove()

    # Spending ------------------------------------------------------------------------------

    def took(self, account: str, meter: str, opened: int, cost: int) -> None:
        """Written down before the caller is told that it may go ahead."""
        self.journal.add(StockKey(account, meter, opened), cost)
        self.taken[meter] = self.taken.get(meter, 0) + cost

    def gave_back(self, account: str, meter: str, opened: int, cost: int) -> None:
        self.journal.add(StockKey(account, meter, opened), 0, cost)
        self.returned[meter] = self.returned.get(meter, 0) + cost

    # The ledger ----------------------------------------------------------------------------

    def define_plans(self, plans: Mapping[str, Any]) -> None:
        """Plans to be written into the ledger, before anything else is."""
        with self._lock:
            if plans and plans != self._plans:
                self._plans, self._undefined = dict(plans), True

    def do(self, operations: Sequence[Operation]) -> list[Any]:
        """Have the ledger do them, in one transaction if it can; a result or an error for each."""
        try:
            self._define()
            outcomes: list[Any] = self.ledger._core.do(WriteMany(operations))
        except QuotaError as error:
            self._ledger_is(error)
            return [error] * len(operations)
        self._ledger_is(None)
        return outcomes

    def _define(self) -> None:
        do = self.ledger._core.do
        flows.run(self.ledger._define(), do)
        if self._undefined:
            plans = self._plans
            flows.run(self.ledger._define_plans(plans), do)
            with self._lock:
                self._undefined = self._plans is not plans

    def _ledger_is(self, error: Exception | None) -> None:
        up = not isinstance(error, LedgerUnavailable)
        if up != self.ledger_up:
            self.ledger_up = up
            if up:
                logger.warning("%s answers again", self.ledger.name)
            else:
                logger.warning("%s does not answer: %s", self.ledger.name, error)
            if self.on_ledger is not None:
                self.on_ledger(up, "" if up else str(error))

    # Filling -------------------------------------------------------------------------------

    def fill(self, request: FillRequest) -> Future[int]:
        """What is in the stock after it was filled, or may be: if that is enough, try again.

        The ledger is asked once for all requests that wait for the same stock.
        """
        _ = self.journal  # started, in this process
        key = request.meter, request.account
        with self._lock:
            current = self._filling.get(key)
            if current is None:
                current = self._filling[key] = _Filling(request)
                self._queue.put(current)
                return current.room
            if current.started:
                if not request.cost:
                    return current.room
                current.next = current.next or _Filling(request._replace(cost=0))
                current = current.next
            together = current.request.cost + request.cost
            current.request = request._replace(cost=min(together, MOST_UNITS))
            return current.room

    def _fill_all(self, queue: SimpleQueue[_Filling | None]) -> None:
        while True:
            filling = queue.get()
            if filling is None:
                return
            with self._lock:
                filling.started = True
            request, room, error = filling.request, 0, None
            try:
                room = self._fill(request)
            except Exception as problem:
                error = problem
                if not isinstance(problem, QuotaError | StoreError):
                    logger.exception("could not fill the stock of %r", request.account)
            with self._lock:
                key = request.meter, request.account
                if filling.next is not None:
                    self._filling[key] = filling.next
                    queue.put(filling.next)
                else:
                    del self._filling[key]
            if error is not None:
                filling.room.set_exception(error)
            else:
                filling.room.set_result(room)

    def _fill(self, request: FillRequest) -> int:
        account, meter, cost = request[:3]
        counters, known = self.counters(meter), self.numbers.of(meter, account)
        now = time.monotonic()
        state = stock_row.read(counters, account)
        report, opened, base = self._ask(counters, request, state, known, now)
        if report is None:
            return 0
        if not report.grows and state is not None:
            # Of a period that is over, or written off: units of this one need a stock of their own.
            counters.reset(account)
            state = None
            report, opened, base = self._ask(counters, request, None, known, now)
            if report is None:
                return 0
        known.report, known.low = report, (report.granted - base) // 4
        if report.granted > base:
            if state is None:
                stock_row.open_row(counters, account, opened)
            ends = report.ends if report.ends < NEVER else counters.now() + stock_row.LONGEST
            stock_row.put_in(counters, account, opened, report.granted, ends)
            state = stock_row.read(counters, account)
            if state is None or state.opened != opened:
                self._withdraw(
                    StockKey(account, meter, opened)
                )  # another process was faster: its stock counts
        room = state.granted - state.spent if state is not None else 0
        known.spent, known.at = (state.spent if state is not None else 0), now
        if room < cost and not report.available:
            known.refused, known.refused_until = room + 1, now + ASK_AGAIN
            return room
        return max(room, cost)  # if it is less, others were faster

    def _ask(
        self,
        counters: Counters,
        request: FillRequest,
        state: stock_row.RowState | None,
        known: Known,
        now: float,
    ) -> tuple[StockReport | None, int, int]:
        """What the ledger says; the name of the stock, and what it was given before."""
        opened = state.opened if state is not None else stock_row.new_name(counters.now())
        base, spent = (state.granted, state.spent) if state is not None else (0, 0)
        key = StockKey(request.account, request.meter, opened)
        # First here, then there: whoever finds this journal knows about every stock of this part.
        self.journal.add(key, 0)
        operation = FillStock(
            request.account, request.meter, stock_id(request.meter, opened), self.journal.part,
            base, max(0, request.cost - (base - spent)), known.pace(spent, 2 * self.settle, now),
            request.plan,
        )  # fmt: skip
        (outcome,) = self.do([operation])
        if isinstance(outcome, UnknownAccount | UnknownPlan):
            self.journal.drop(key, Totals(0, 0))
            known.report, known.unknown_until = None, now + ASK_AGAIN
            return None, opened, base
        if isinstance(outcome, Exception):
            raise outcome
        known.unknown_until = 0.0
        if state is None and not outcome.granted:
            self.journal.drop(key, Totals(0, 0))  # the ledger has nothing, so there is no stock
        return outcome, opened, base

    def _withdraw(self, key: StockKey) -> None:
        """Give back what was set aside for a stock that never came to be."""
        totals = self.journal.of(key)
        if totals != (0, 0):
            return
        operation = SettlePart(
            key.account, key.meter, stock_id(key.meter, key.opened), self.journal.part,
            0, 0, final=True, close=True,
        )  # fmt: skip
        (outcome,) = self.do([operation])
        if not isinstance(outcome, Exception):
            self.journal.drop(key, totals)
