"""AsyncLedger has the verbs of Ledger, and answers alike."""

from __future__ import annotations

import asyncio
import inspect
import io

import pytest

from penstock.quota import AsyncHold, AsyncLedger, Hold, Ledger, QuotaError, QuotaExceeded
from penstock.testing import FakeClock

PLANS = {"p": {"m": "1000/month"}}


def verbs(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


def test_both_have_the_same_verbs() -> None:
    assert verbs(Ledger) == verbs(AsyncLedger)
    assert verbs(Hold) == verbs(AsyncHold)


async def test_every_verb(url: str, clock: FakeClock) -> None:
    async with AsyncLedger(url, plans=PLANS, clock=clock) as ledger:
        account = await ledger.open("acme", plan="p", tz="Asia/Taipei")
        assert account == await ledger.account("acme") == (await ledger.accounts())[0]
        await ledger.grant("acme", 100, meter="m", ref="a")
        await ledger.adjust("acme", -50, meter="m", ref="a")
        entry = await ledger.spend("acme", 10, meter="m", ref="a")
        assert (await ledger.spend("acme", 10, meter="m", ref="a")).seq == entry.seq
        async with ledger.hold("acme", 40, meter="m") as hold:
            assert (await ledger.holds("acme"))[0].held == 40
            await hold.settle(30)
        with pytest.raises(ZeroDivisionError):
            async with ledger.hold("acme", 40, meter="m"):
                raise ZeroDivisionError
        held = await ledger.hold("acme", 40, meter="m")
        await ledger.settle_hold("acme", held.id, 5)
        unmade = ledger.hold("acme", 40, meter="m")
        with pytest.raises(QuotaError, match="has not been made yet"):
            await unmade.settle(5)
        await ledger.settle("acme", 7, meter="m", source="s")
        stock = await ledger.stock("acme", meter="m", id="x", granted=100, settled=0)
        assert stock.held == 100
        await ledger.write_off("acme", "x", spent=False)
        await ledger.define_plans({"q": {"m": "2000/month"}})
        await ledger.change_plan("acme", "q")
        assert list(await ledger.plans()) == ["p", "q"]
        with pytest.raises(QuotaExceeded):
            await ledger.hold("acme", 10_000, meter="m")
        balance = (await ledger.balance("acme"))["m"]
        assert (balance.spent, balance.available) == (52, 2000 + 100 - 50 - 52)
        assert [period.used for period in await ledger.periods("acme", meter="m")] == [52]
        entries = [entry async for entry in ledger.entries("acme")]
        text = io.StringIO()
        assert await ledger.export(text) == entries[-1].seq == len(entries)
        assert len(text.getvalue().splitlines()) == len(entries)
        assert await ledger.reconcile()


async def test_tasks_share_transactions(url: str) -> None:
    async with AsyncLedger(url, plans=PLANS) as ledger:
        await ledger.open("acme", plan="p")
        results = await asyncio.gather(
            *[ledger.spend("acme", 30, meter="m") for _ in range(40)], return_exceptions=True
        )
        assert sum(isinstance(result, QuotaExceeded) for result in results) == 40 - 1000 // 30
        assert (await ledger.balance("acme"))["m"].available == 10
        assert await ledger.reconcile()


async def test_what_is_returned_does_not_change_afterwards(url: str) -> None:
    async with AsyncLedger(url, plans=PLANS) as ledger:
        await ledger.open("acme", plan="p")
        totals = await asyncio.gather(
            *[ledger.settle("acme", total, meter="m", source="s") for total in range(1, 30)]
        )
        assert [settlement.settled for settlement in totals] == list(range(1, 30))
