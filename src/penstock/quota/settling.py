"""Settling: tells the ledger what was spent from stocks, every ``settle`` seconds.

Totals are reported, so a report can be repeated. While the ledger is away, they wait in the
journal, which needs no more room for it. What a process has left that was killed is reported by
the next one that finds its journal.

A stock can disappear: its period is over, the store was restarted or has evicted it. Then each
process that has spent from it reports its last totals. When all have, what is left of the hold is
free again. If one never comes back, and neither does its journal, the hold stays, `reconcile` lists
it after a day, and `Ledger.write_off` ends it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import StoreError
from penstock.limit_options import MOST_UNITS
from penstock.quota import stock_row
from penstock.quota.errors import UnknownAccount
from penstock.quota.journal import Journal, StockKey, Totals
from penstock.quota.stock_operations import SettlePart, StockReport, stock_id
from penstock.quota.stocks import Stocks
from penstock.stores.base import Counters

logger = logging.getLogger("penstock.quota")

# Looks into the store that are sent together.
_BATCH = 500
# A stock has to be missed in so many rounds before it is closed: by then, all processes that have
# spent from it are known to the ledger.
_ROUNDS = 2


@dataclass(slots=True)
class _Watched:
    """A stock in this process's journal."""

    reported: Totals | None = None
    missed: int = 0  # in how many rounds it was not in the store


class Settling:
    """Reports what a process has spent. `round` does it once; `start` again and again."""

    def __init__(self, stocks: Stocks) -> None:
        self._stocks = stocks
        self._watched: dict[StockKey, _Watched] = {}
        self._orphans: list[Journal] = []
        self._rounds = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.outcomes = {"done": 0, "failed": 0}  # of reports to the ledger
        self.unsettled = 0  # units that were spent and not yet reported, after the last round

    @property
    def watched(self) -> int:
        """How many stocks this process has spent from, and still reports about."""
        return len(self._watched)

    def start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._stop, self._rounds = threading.Event(), threading.Lock()
            self._thread = threading.Thread(
                target=self._run, args=(self._stop,), name="penstock-quota-settle", daemon=True
            )
            self._thread.start()

    def _run(self, stop: threading.Event) -> None:
        self._try_round()
        while not stop.wait(self._stocks.settle):
            self._try_round()

    def _try_round(self) -> None:
        try:
            self.round()
        except Exception:
            logger.exception("could not settle; it is tried again")

    def stop(self) -> None:
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._stocks.settle + 5)

    def round(self, gone: bool = False) -> None:
        """Report everything. With ``gone``, the store ends with this process."""
        with self._rounds:
            self._adopt()
            own = self._stocks.journal
            totals = dict(own.totals())
            for key in list(self._watched.keys() - totals.keys()):
                del self._watched[key]
            for key in totals:
                self._watched.setdefault(key, _Watched())
            self._look(totals, gone)
            self._report(own, totals, _ROUNDS if not gone else 1)

    # Journals of processes that have ended -------------------------------------------------

    def _adopt(self) -> None:
        stocks = self._stocks
        self._orphans += [
            journal
            for journal in Journal.orphans(stocks.folder)
            if journal.part != stocks.journal.part
        ]
        for journal in list(self._orphans):
            totals, gone = journal.totals(), False
            if journal.origin == stocks.origin:
                # From now on this process watches those stocks: some may still be in the store.
                for key in totals:
                    stocks.journal.add(key, 0)
            else:
                # The memory of a process, or a shared file: gone with the last that used it.
                dead = {orphan.part for orphan in self._orphans}
                gone = not Journal.lives(stocks.folder, journal.origin, dead)
            reports = [
                _settle(key, journal.part, each, final=True, close=gone)
                for key, each in totals.items()
            ]
            outcomes = stocks.do(reports)
            if all(_is_done(outcome) for outcome in outcomes):
                self._orphans.remove(journal)
                journal.remove()
                if totals:
                    logger.info("settled what a process has left that ended: %s", journal.part)
            self._tell([*totals], outcomes)

    # Own -------------------------------------------------------------------------------------

    def _look(self, totals: dict[StockKey, Totals], gone: bool) -> None:
        """Which stocks are still in the store."""
        for batch in _batches(list(totals)):
            looks: list[tuple[Counters, tuple[str, int]]] = [
                (self._stocks.counters(key.meter), (key.account, MOST_UNITS)) for key in batch
            ]
            try:
                decisions = self._stocks.store.call_each("peek", looks)
            except StoreError:
                return  # that says nothing about them
            for key, (counters, _), decision in zip(batch, looks, decisions, strict=True):
                try:
                    state = stock_row.state_of(decision, counters.now())
                except StoreError:
                    continue
                spent = totals[key].taken - totals[key].given_back
                there = state is not None and state.opened == key.opened
                if there and state is not None and (gone or state.spent < spent):
                    # A server that came back with an older state would give units out twice.
                    counters.reset(key.account)
                    there = False
                self._watched[key].missed = 0 if there else self._watched[key].missed + 1

    def _report(self, own: Journal, totals: dict[StockKey, Totals], rounds: int) -> None:
        keys = [
            key
            for key, watched in self._watched.items()
            if watched.missed or watched.reported != totals[key]
        ]
        outcomes = self._stocks.do([
            _settle(
                key, own.part, totals[key],
                final=self._watched[key].missed > 0, close=self._watched[key].missed >= rounds,
            )
            for key in keys
        ])  # fmt: skip
        self.unsettled = 0
        for key, outcome in zip(keys, outcomes, strict=True):
            watched = self._watched[key]
            if not _is_done(outcome):
                reported = watched.reported or Totals(0, 0)
                self.unsettled += max(0, totals[key].taken - reported.taken)
                continue
            watched.reported = totals[key]
            if watched.missed >= rounds and own.drop(key, totals[key]):
                del self._watched[key]
        self._tell(keys, outcomes)

    def _tell(self, keys: list[StockKey], outcomes: list[object]) -> None:
        stocks = self._stocks
        for outcome in outcomes:
            self.outcomes["done" if _is_done(outcome) else "failed"] += 1
        for key, outcome in zip(keys, outcomes, strict=True):
            if not isinstance(outcome, StockReport):
                if isinstance(outcome, Exception):
                    logger.warning("could not settle %s of %r: %s", key.meter, key.account, outcome)
                continue
            known = stocks.numbers.find(key.meter, key.account)
            if known is not None and known.report is not None:
                known.report = outcome


def _settle(
    key: StockKey, part: str, totals: Totals, final: bool = False, close: bool = False
) -> SettlePart:
    stock = stock_id(key.meter, key.opened)
    return SettlePart(
        key.account, key.meter, stock, part, totals.taken, totals.given_back, final, close
    )


def _is_done(outcome: object) -> bool:
    """Whether it need not be repeated. An account that was never opened has nothing to settle."""
    return isinstance(outcome, StockReport | UnknownAccount)


def _batches(keys: list[StockKey]) -> Iterator[list[StockKey]]:
    for start in range(0, len(keys), _BATCH):
        yield keys[start : start + _BATCH]
