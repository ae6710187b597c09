"""Failures that budgets and quotas of other systems are known for, none of which may happen.

The numbers are those of LiteLLM's issues, where most of them can be read about; each test says
what went wrong there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from penstock.quota import AsyncLedger, Ledger, QuotaExceeded
from penstock.quota.databases.base import Interrupted
from penstock.testing import FakeClock

DAY = 86_400


def available(ledger: Ledger, meter: str = "requests") -> int:
    return ledger.balance("acme")[meter].available


def at_once(workers: int, task: Callable[[int], object]) -> list[object]:
    """Run a task in several threads, which begin together."""
    begin = threading.Barrier(workers)

    def work(number: int) -> object:
        begin.wait(30)
        try:
            return task(number)
        except QuotaExceeded as refused:
            return refused

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(workers)))


def test_1_a_caller_that_dies_leaks_no_reservation(ledger: Ledger, clock: FakeClock) -> None:
    """#27639: reservations of requests that failed stayed reserved for ever."""
    ledger.open("acme", plan="free")
    for _ in range(10):
        ledger.hold("acme", 100, meter="requests", lasts="5m")  # and never again heard of
    with pytest.raises(QuotaExceeded):
        ledger.spend("acme", meter="requests")
    clock.advance(5 * 60)
    assert available(ledger) == 1000
    assert ledger.spend("acme", 1000, meter="requests")


def test_1b_a_cancelled_task_leaks_no_reservation(url: str) -> None:
    async def main() -> int:
        async with AsyncLedger(url, plans={"p": {"m": "100/month"}}) as ledger:
            await ledger.open("acme", plan="p")

            async def call() -> None:
                async with ledger.hold("acme", 10, meter="m"):
                    await asyncio.sleep(60)

            for passes in range(30):  # cancelled wherever it is
                task = asyncio.create_task(call())
                for _ in range(passes):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            task = asyncio.create_task(call())
            while not (await ledger.balance("acme"))["m"].held:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await ledger.reconcile()
            return (await ledger.balance("acme"))["m"].available

    assert asyncio.run(main()) == 100


def test_2_every_instance_that_starts_does_not_grant_again(
    url: str, ledger_at: Callable[[str], Ledger], clock: FakeClock
) -> None:
    """#28247: every pod that found no counter in Redis added the whole budget with INCR."""
    ledgers = [ledger_at(url) for _ in range(6)]
    at_once(6, lambda number: ledgers[number].open("acme", plan="free"))
    assert available(ledgers[0]) == 1000
    clock.advance(31 * DAY)
    at_once(6, lambda number: ledgers[number].spend("acme", 10, meter="requests"))
    assert available(ledgers[0]) == 940
    at_once(6, lambda n: ledgers[n].grant("acme", 500, meter="requests", ref="invoice-1"))
    assert available(ledgers[0]) == 1440


def test_3_a_reset_loses_no_use_and_counts_none_twice(
    url: str, ledger_at: Callable[[str], Ledger], clock: FakeClock
) -> None:
    """#34733: a reset that raced with requests wiped out what they had just spent."""
    ledgers = [ledger_at(url) for _ in range(4)]
    ledgers[0].open("acme", plan="free")

    def work(number: int) -> int:
        for step in range(12):
            ledgers[number].spend("acme", 1, meter="requests", ref=f"{number}:{step}")
            if number == 0 and step == 6:
                clock.advance(20 * DAY)  # the month ends under way
        return 12

    at_once(4, work)
    periods = ledgers[0].periods("acme", meter="requests")
    assert len(periods) == 2
    assert sum(period.used for period in periods) == 48
    assert available(ledgers[0]) == 1000 - periods[1].used


def test_4_what_is_decided_by_does_not_drift_from_the_history(
    url: str, ledger_at: Callable[[str], Ledger]
) -> None:
    """#30460: the counter in the cache and the spend in the database went apart."""
    ledgers = [ledger_at(url) for _ in range(3)]
    ledgers[0].open("acme", plan="pro")

    def work(number: int) -> None:
        ledger = ledgers[number]
        for step in range(8):
            with ledger.hold("acme", 20, meter="tokens") as hold:
                hold.settle(step * 5)
            ledger.settle("acme", step * 3, meter="tokens", source=f"node-{number}")
            ledger.grant("acme", 5, meter="tokens", ref=f"{number}:{step}", expires="1h")

    at_once(3, work)
    assert ledgers[0].reconcile().differences == ()
    balance = ledgers[0].balance("acme")["tokens"]
    assert balance.spent == 3 * (sum(range(8)) * 5 + 7 * 3)
    assert balance.available == 50_000 + 3 * 8 * 5 - balance.spent


def test_5_never_above_the_quota_with_many_at_once(
    url: str, ledger_at: Callable[[str], Ledger]
) -> None:
    """#26672: calls that were checked at the same time all passed, and overshot the budget."""
    ledgers = [ledger_at(url) for _ in range(4)]
    ledgers[0].open("acme", plan="free")
    outcomes = at_once(16, lambda n: ledgers[n % 4].hold("acme", 90, meter="requests"))
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert len(refused) == 16 - 1000 // 90
    assert available(ledgers[0]) == 1000 - 11 * 90


def test_6_a_refused_call_takes_nothing(ledger: Ledger) -> None:
    """Envoy's ratelimit #185: refused calls had eaten the monthly quota."""
    ledger.open("acme", plan="free")
    entries = len(list(ledger.entries()))
    for _ in range(20):
        with pytest.raises(QuotaExceeded):
            ledger.spend("acme", 1001, meter="requests")
        with pytest.raises(QuotaExceeded):
            ledger.hold("acme", 1001, meter="requests")
    assert available(ledger) == 1000
    assert len(list(ledger.entries())) == entries


def test_7_a_raised_quota_counts_at_once_for_who_has_used_it_up(ledger: Ledger) -> None:
    """The same issue: a customer pays for more, and is still refused until the month ends."""
    ledger.open("acme", plan="free")
    ledger.spend("acme", 1000, meter="requests")
    ledger.grant("acme", 200, meter="requests", ref="invoice")
    ledger.spend("acme", 200, meter="requests")
    ledger.change_plan("acme", "pro")
    assert available(ledger) == 9000


def test_8_a_message_that_comes_again_months_later(ledger: Ledger, clock: FakeClock) -> None:
    """Identifiers that are remembered for a day let the replay of an old queue count again."""
    ledger.open("acme", plan="free")
    for total in (10, 20, 30):
        ledger.settle("acme", total, meter="requests", source="node-1")
    ledger.spend("acme", 5, meter="requests", ref="job-1")
    ledger.grant("acme", 7, meter="requests", ref="invoice-1")
    clock.advance(400 * DAY)
    before = ledger.balance("acme")["requests"].spent
    for total in (10, 20, 30):
        ledger.settle("acme", total, meter="requests", source="node-1")
    ledger.spend("acme", 5, meter="requests", ref="job-1")
    ledger.grant("acme", 7, meter="requests", ref="invoice-1")
    assert ledger.balance("acme")["requests"].spent == before


def test_9_a_call_that_costs_more_than_estimated_is_not_lost(ledger: Ledger) -> None:
    """Cost that is known after the answer only was cut off at the reservation, or at zero."""
    ledger.open("acme", plan="free")
    ledger.spend("acme", 900, meter="requests")
    with ledger.hold("acme", 50, meter="requests") as hold:
        assert hold.settle(180).uncovered == 80
    (period,) = ledger.periods("acme", meter="requests")
    assert period.used + period.uncovered == 1080


def test_10_an_answer_that_is_lost_does_not_count_twice(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time-out after the commit, a retry by the client: budgets counted the call twice."""
    ledger.open("acme", plan="pro")
    database = ledger._core.database
    writing = type(database).writing
    lost = []

    @contextmanager
    def losing(self: object, until: float):  # type: ignore[no-untyped-def]
        with writing(self, until) as transaction:  # type: ignore[arg-type]
            yield transaction
        if len(lost) % 2 == 0:  # committed, and then the connection breaks
            lost.append(True)
            raise Interrupted("connection lost")
        lost.append(False)

    monkeypatch.setattr(type(database), "writing", losing)
    ledger.spend("acme", 10, meter="tokens")  # without a ref, and repeated all the same
    ledger.grant("acme", 5, meter="tokens", ref="a")
    ledger.adjust("acme", -3, meter="tokens", ref="a")
    hold = ledger.hold("acme", 100, meter="tokens")
    hold.settle(40)
    ledger.settle("acme", 7, meter="tokens", source="s")
    ledger.stock("acme", meter="tokens", id="stock", granted=1000)
    ledger.stock("acme", meter="tokens", id="stock", granted=1500, settled=600, returned=100)
    ledger.change_plan("acme", "team", prorate=True)
    monkeypatch.undo()
    assert (len(lost), lost.count(True)) == (18, 9)
    balance = ledger.balance("acme")["tokens"]
    assert balance.spent == 10 + 40 + 7 + 600
    assert balance.held == 800
