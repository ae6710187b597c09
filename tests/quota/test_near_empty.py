"""The event of a balance that becomes nearly empty: once for each time, and with a forecast."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.events import Event, QuotaNearEmpty
from penstock.quota import AsyncLedger, InvalidQuota, Ledger, QuotaExceeded
from penstock.quota.values import nanoseconds
from penstock.testing import FakeClock

DAY = 86_400


@pytest.fixture
def events(ledger: Ledger) -> list[Event]:
    seen: list[Event] = []
    ledger.subscribe(seen.append)
    ledger.open("acme", plan="free")  # 1000 requests a month
    return seen


def remaining(events: list[Event]) -> list[tuple[int, int]]:
    found = []
    for event in events:
        assert isinstance(event, QuotaNearEmpty)
        assert (event.account, event.meter) == ("acme", "requests")
        found.append((event.remaining, event.amount))
    events.clear()
    return found


def test_it_happens_once(ledger: Ledger, events: list[Event]) -> None:
    ledger.spend("acme", 899, meter="requests")
    assert remaining(events) == []
    ledger.spend("acme", 1, meter="requests", ref="the-last-of-nine-hundred")
    assert remaining(events) == [(100, 1000)]
    ledger.spend("acme", 1, meter="requests", ref="the-last-of-nine-hundred")  # repeated
    ledger.spend("acme", 50, meter="requests")
    with pytest.raises(QuotaExceeded):
        ledger.spend("acme", 51, meter="requests")
    assert remaining(events) == []
    ledger.grant("acme", 1000, meter="requests", ref="invoice")  # full again, and empty again
    assert remaining(events) == []
    ledger.settle("acme", 900, meter="requests", source="node")
    assert remaining(events) == [(150, 2000)]


def test_it_happens_in_every_period(ledger: Ledger, events: list[Event], clock: FakeClock) -> None:
    ledger.spend("acme", 950, meter="requests")
    assert remaining(events) == [(50, 1000)]
    clock.advance(20 * DAY)
    ledger.spend("acme", 920, meter="requests")  # the first one of February
    assert remaining(events) == [(80, 1000)]


def test_a_credit_that_ends_empties_a_balance_too(
    ledger: Ledger, events: list[Event], clock: FakeClock
) -> None:
    ledger.grant("acme", 5000, meter="requests", ref="promo", expires="3d", priority=200)
    ledger.spend("acme", 950, meter="requests")
    assert remaining(events) == []
    clock.advance(4 * DAY)
    ledger.spend("acme", 1, meter="requests")
    assert remaining(events) == [(49, 1000)]


def test_what_is_held_is_not_spent(ledger: Ledger, events: list[Event]) -> None:
    ledger.stock("acme", meter="requests", id="gate", granted=1000)
    ledger.stock("acme", meter="requests", id="gate", granted=1000, settled=899)
    assert remaining(events) == []
    ledger.stock("acme", meter="requests", id="gate", granted=1000, settled=901)
    assert remaining(events) == [(99, 1000)]


def test_it_has_a_forecast(ledger: Ledger, events: list[Event], clock: FakeClock) -> None:
    clock.advance(9 * DAY)
    ledger.spend("acme", 900, meter="requests")
    (event,) = events
    assert isinstance(event, QuotaNearEmpty)
    assert event.store == ledger.name
    assert event.runs_out == nanoseconds(datetime(2024, 1, 25, 12, tzinfo=UTC))


def test_a_hook_that_fails_breaks_nothing(ledger: Ledger, events: list[Event]) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError(event)

    ledger.subscribe(broken)
    ledger.spend("acme", 950, meter="requests")
    assert len(events) == 1
    ledger.unsubscribe(broken)
    ledger.unsubscribe(events.append)


def test_the_threshold_is_yours(sqlite_url: str) -> None:
    async def main() -> list[int]:
        seen: list[Any] = []
        plans = {"p": {"m": "100/month"}}
        async with AsyncLedger(sqlite_url, plans=plans, near_empty=0.5) as ledger:
            ledger.subscribe(seen.append)
            await ledger.open("acme", plan="p")
            for _ in range(60):
                await ledger.spend("acme", meter="m")
        return [event.remaining for event in seen]

    assert asyncio.run(main()) == [50]
    for share in (1, -0.1, "10%", True):
        with pytest.raises(InvalidQuota, match="near_empty"):
            Ledger(sqlite_url, near_empty=share)  # type: ignore[arg-type]


def test_balances_of_all_accounts_at_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.quota.reading.PAGE", 2)
    names = ["acme", "brick", "coal", "dune", "elm"]
    for name in reversed(names):
        ledger.open(name, plan="free")
    ledger.spend("coal", 7, meter="requests")
    balances = ledger.balances()
    assert balances == [ledger.balance(name) for name in names]
    assert balances[2]["requests"].available == 993
