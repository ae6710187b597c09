"""What a ledger promises, on both databases. Each test ends with `reconcile`: see conftest."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.quota import (
    AccountExists,
    InvalidQuota,
    Ledger,
    QuotaExceeded,
    RefReused,
    StockTotals,
    UnknownAccount,
    UnknownHold,
    UnknownPlan,
)
from penstock.quota.book import Book
from penstock.quota.rows import EntryRow
from penstock.quota.values import nanoseconds
from penstock.testing import FakeClock

DAY = 86_400


def available(ledger: Ledger, meter: str = "tokens", account: str = "acme") -> int:
    return ledger.balance(account)[meter].available


# Accounts ----------------------------------------------------------------------------------


def test_an_account_has_what_its_plan_grants(ledger: Ledger) -> None:
    account = ledger.open("acme", plan="pro", tz="Asia/Taipei", anchor=31)
    assert (account.name, account.plan, account.tz, account.anchor) == (
        "acme", "pro", "Asia/Taipei", 31,
    )  # fmt: skip
    balance = ledger.balance("acme")
    assert list(balance) == ["requests", "tokens"]
    assert balance["tokens"].available == balance["tokens"].remaining == 50_000
    period = balance["tokens"].period
    assert period is not None
    assert period.starts.isoformat() == "2023-12-31T00:00:00+08:00"
    assert period.ends.isoformat() == "2024-01-31T00:00:00+08:00"


def test_opening_it_again_changes_nothing(ledger: Ledger) -> None:
    first = ledger.open("acme", plan="free")
    ledger.spend("acme", 10, meter="requests")
    assert ledger.open("acme", plan="free") == first
    assert available(ledger, "requests") == 990
    with pytest.raises(AccountExists, match=r"use ledger\.change_plan"):
        ledger.open("acme", plan="pro")
    with pytest.raises(AccountExists):
        ledger.open("acme", plan="free", tz="Asia/Taipei")


def test_an_account_without_a_plan_has_what_it_is_granted(ledger: Ledger) -> None:
    ledger.open("acme")
    assert dict(ledger.balance("acme").meters) == {}
    with pytest.raises(QuotaExceeded) as refused:
        ledger.spend("acme", 1, meter="tokens")
    assert (refused.value.available, refused.value.renews) == (0, None)
    ledger.grant("acme", 5, meter="tokens", ref="a")
    ledger.spend("acme", 5, meter="tokens")
    assert available(ledger) == 0


def test_what_is_unknown_says_what_to_write(ledger: Ledger) -> None:
    with pytest.raises(UnknownAccount, match=r"open it with ledger\.open\('nobody'\)"):
        ledger.balance("nobody")
    for verb in (
        lambda: ledger.spend("nobody", meter="tokens"),
        lambda: ledger.grant("nobody", 1, meter="tokens", ref="r"),
        lambda: ledger.hold("nobody", 1, meter="tokens"),
        lambda: ledger.settle("nobody", 1, meter="tokens", source="s"),
        lambda: ledger.change_plan("nobody", "pro"),
        lambda: list(ledger.entries("nobody")),
        lambda: ledger.account("nobody"),
        lambda: ledger.periods("nobody", meter="tokens"),
    ):
        with pytest.raises(UnknownAccount):
            verb()
    with pytest.raises(UnknownPlan, match="there are: free, pro, team"):
        ledger.open("acme", plan="gold")
    with pytest.raises(UnknownAccount):  # and was not opened
        ledger.account("acme")
    ledger.open("acme", plan="pro")
    with pytest.raises(UnknownHold):
        ledger.settle_hold("acme", "nothing", 1)


def test_accounts_plans_and_settings_are_listed(ledger: Ledger) -> None:
    ledger.open("b", plan="free")
    ledger.open("a", plan="pro", tz="Europe/Berlin")
    assert [(account.name, account.plan) for account in ledger.accounts()] == [
        ("a", "pro"),
        ("b", "free"),
    ]
    assert ledger.account("a").tz == "Europe/Berlin"
    plans = ledger.define_plans({"gold": {"tokens": "1M/day"}})
    assert list(plans) == list(ledger.plans()) == ["free", "gold", "pro", "team"]
    assert str(plans["gold"].meters["tokens"]) == "1,000,000/day"


# Grants ------------------------------------------------------------------------------------


def test_a_grant_counts_once_by_its_ref(ledger: Ledger) -> None:
    ledger.open("acme")
    first = ledger.grant("acme", 100, meter="tokens", ref="invoice-17", expires="90d")
    again = ledger.grant("acme", 100, meter="tokens", ref="invoice-17", expires="90d")
    assert first == again
    assert available(ledger) == 100
    for amount, meter in ((200, "tokens"), (100, "requests")):
        with pytest.raises(RefReused, match="'invoice-17' was used before for 100 tokens"):
            ledger.grant("acme", amount, meter=meter, ref="invoice-17")
    ledger.open("other")
    ledger.grant("other", 7, meter="tokens", ref="invoice-17")  # its own refs
    assert available(ledger, account="other") == 7


def test_a_ref_is_known_after_its_credit_is_used_up_and_expired(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.open("acme")
    ledger.grant("acme", 100, meter="tokens", ref="i", expires="1d")
    ledger.spend("acme", 100, meter="tokens", ref="s")
    clock.advance(400 * DAY)
    ledger.grant("acme", 100, meter="tokens", ref="i", expires="1d")
    ledger.spend("acme", 100, meter="tokens", ref="s")
    assert available(ledger) == 0


def test_refs_of_callers_never_meet_those_of_the_ledger(ledger: Ledger) -> None:
    ledger.open("acme", plan="pro")
    for ref in ("plan:1", "plan:2", "carry:tokens:0", "credit:1", "adjust:1", "settle:a:1"):
        ledger.grant("acme", 1, meter="tokens", ref=ref)
        ledger.spend("acme", 1, meter="tokens", ref=ref)
        ledger.adjust("acme", 1, meter="tokens", ref=ref)
    assert available(ledger) == 50_006


def test_expiry_of_a_credit(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", tz="Asia/Taipei")
    moments = {
        "a": ("2h", "2024-01-15T14:00:00+00:00"),
        "b": (timedelta(days=1), "2024-01-16T12:00:00+00:00"),
        "c": (date(2024, 2, 1), "2024-01-31T16:00:00+00:00"),  # midnight in Taipei
        "d": ("2024-02-01", "2024-01-31T16:00:00+00:00"),
        "e": (datetime(2024, 2, 1, tzinfo=UTC), "2024-02-01T00:00:00+00:00"),
        "f": ("2024-02-01T00:00:00+09:00", "2024-01-31T15:00:00+00:00"),
    }
    for ref, (expires, moment) in moments.items():
        credit = ledger.grant("acme", 10, meter="tokens", ref=ref, expires=expires)  # type: ignore[arg-type]
        assert credit.expires == datetime.fromisoformat(moment), ref
    clock.advance(2 * 3600 - 1)
    assert available(ledger) == 60
    clock.advance(1)
    assert available(ledger) == 50  # exactly then, and without any operation
    ledger.spend("acme", 50, meter="tokens")
    clock.advance(400 * DAY)
    assert available(ledger) == 0
    kinds = [entry.kind for entry in ledger.entries("acme")]
    assert kinds.count("expire") == 1


def test_a_credit_that_begins_later(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme")
    credit = ledger.grant("acme", 10, meter="tokens", ref="next", starts="1d", expires="2d")
    assert credit.scheduled
    assert list(ledger.entries("acme")) == []
    with pytest.raises(QuotaExceeded):
        ledger.spend("acme", meter="tokens")
    clock.advance(DAY)
    assert available(ledger) == 10
    ledger.grant("acme", 10, meter="tokens", ref="next", starts="1d", expires="2d")
    assert available(ledger) == 10
    clock.advance(2 * DAY)
    assert available(ledger) == 0  # two days from its beginning


def test_credits_burn_by_priority_then_expiry_then_age(ledger: Ledger) -> None:
    ledger.open("acme")
    ledger.grant("acme", 10, meter="tokens", ref="late", expires="90d")
    ledger.grant("acme", 10, meter="tokens", ref="soon", expires="9d")
    ledger.grant("acme", 10, meter="tokens", ref="never")
    ledger.grant("acme", 10, meter="tokens", ref="never too")
    ledger.grant("acme", 10, meter="tokens", ref="last", expires="1d", priority=200)
    ledger.grant("acme", 10, meter="tokens", ref="first", kind="promo", priority=1)
    order = ["first", "soon", "late", "never", "never too", "last"]
    assert [credit.ref for credit in ledger.balance("acme")["tokens"].credits] == order
    for used in order:
        ledger.spend("acme", 10, meter="tokens")
        left = [credit.ref for credit in ledger.balance("acme")["tokens"].credits]
        assert used not in left
        assert left == order[order.index(used) + 1 :]


# Spending ----------------------------------------------------------------------------------


def test_spending_is_all_or_nothing(ledger: Ledger) -> None:
    ledger.open("acme", plan="free")
    entry = ledger.spend("acme", 999, meter="requests", ref="a", who="me", note="why")
    assert (entry.kind, entry.amount, entry.who, entry.note) == ("spend", -999, "me", "why")
    with pytest.raises(QuotaExceeded, match="has 1 requests left, and 2 were asked for") as refused:
        ledger.spend("acme", 2, meter="requests")
    assert refused.value.renews == int(datetime(2024, 2, 1, tzinfo=UTC).timestamp()) * 10**9
    assert available(ledger, "requests") == 1  # a refused call takes nothing
    assert ledger.spend("acme", 999, meter="requests", ref="a").seq == entry.seq
    with pytest.raises(RefReused):
        ledger.spend("acme", 998, meter="requests", ref="a")
    ledger.spend("acme", 1, meter="requests")


def test_an_overdraft_is_paid_by_the_next_grant(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="team")
    ledger.spend("acme", 20_300, meter="requests")
    balance = ledger.balance("acme")["requests"]
    assert (balance.available, balance.remaining, balance.overdraft) == (200, -300, 500)
    with pytest.raises(QuotaExceeded):
        ledger.spend("acme", 201, meter="requests")
    ledger.grant("acme", 100, meter="requests", ref="a")
    assert ledger.balance("acme")["requests"].remaining == -200
    clock.advance(31 * DAY)
    assert ledger.balance("acme")["requests"].remaining == 19_800
    ledger.spend("acme", 20_300, meter="requests")
    assert available(ledger, "requests") == 0


def test_corrections(ledger: Ledger) -> None:
    ledger.open("acme", plan="free")
    assert ledger.adjust("acme", -400, meter="requests", ref="a", note="abuse").amount == -400
    ledger.adjust("acme", -400, meter="requests", ref="a")
    assert available(ledger, "requests") == 600
    ledger.adjust("acme", 50, meter="requests", ref="b")
    ledger.adjust("acme", 50, meter="requests", ref="b")
    assert available(ledger, "requests") == 650
    with pytest.raises(QuotaExceeded):
        ledger.adjust("acme", -651, meter="requests", ref="c")
    with pytest.raises(RefReused):
        ledger.adjust("acme", 51, meter="requests", ref="b")
    assert ledger.balance("acme")["requests"].spent == 0
    assert [entry.kind for entry in ledger.entries("acme")] == ["grant", "adjust", "adjust"]


# Holds -------------------------------------------------------------------------------------


def test_a_hold_is_settled_for_what_was_used(ledger: Ledger) -> None:
    ledger.open("acme", plan="pro")
    with ledger.hold("acme", 4000, meter="tokens") as hold:
        balance = ledger.balance("acme")["tokens"]
        assert (balance.available, balance.held, balance.remaining) == (46_000, 4000, 50_000)
        settlement = hold.settle(3512)
    assert (settlement.settled, settlement.uncovered, settlement.held) == (3512, 0, 0)
    balance = ledger.balance("acme")["tokens"]
    assert (balance.available, balance.held) == (46_488, 0)
    assert hold.settle(3512) == settlement
    assert available(ledger) == 46_488
    assert [entry.kind for entry in ledger.entries("acme", meter="tokens")] == [
        "grant", "hold", "spend", "release",
    ]  # fmt: skip


def test_leaving_a_hold(ledger: Ledger) -> None:
    ledger.open("acme", plan="pro")
    with ledger.hold("acme", 100, meter="tokens"):
        pass
    assert available(ledger) == 49_900  # not settled: all of it counts
    with pytest.raises(ZeroDivisionError), ledger.hold("acme", 100, meter="tokens"):
        raise ZeroDivisionError
    assert available(ledger) == 49_900  # an error gives all back
    hold = ledger.hold("acme", 100, meter="tokens")
    hold.release()
    assert available(ledger) == 49_900


def test_more_than_was_held(ledger: Ledger) -> None:
    ledger.open("acme", plan="free")
    with ledger.hold("acme", 900, meter="requests") as hold:
        assert hold.settle(950).uncovered == 0
    assert available(ledger, "requests") == 50
    with ledger.hold("acme", 20, meter="requests") as hold:
        settlement = hold.settle(80)
    assert (settlement.settled, settlement.uncovered) == (80, 30)
    balance = ledger.balance("acme")["requests"]
    assert (balance.available, balance.remaining) == (0, 0)  # never below
    assert balance.period is not None
    assert (balance.period.used, balance.period.uncovered) == (1000, 30)
    assert list(ledger.entries("acme"))[-1].kind == "uncovered"


def test_holds_together_never_exceed_what_there_is(ledger: Ledger) -> None:
    ledger.open("acme", plan="free")
    held = [ledger.hold("acme", 400, meter="requests") for _ in range(2)]
    with pytest.raises(QuotaExceeded):
        ledger.hold("acme", 201, meter="requests")
    assert len(ledger.holds("acme")) == len(ledger.holds()) == 2
    for hold in held:
        hold.settle(0)
    ledger.hold("acme", 1000, meter="requests").settle(1000)
    assert ledger.holds() == []


def test_a_hold_is_settled_from_the_credits_it_was_taken_from(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.open("acme")
    ledger.grant("acme", 100, meter="tokens", ref="old", expires="1h")
    ledger.grant("acme", 100, meter="tokens", ref="new")
    hold = ledger.hold("acme", 100, meter="tokens", lasts="2h")
    clock.advance(3600)
    assert available(ledger) == 100
    hold.settle(60)  # of the old one, although it has ended
    assert available(ledger) == 100  # and its rest has expired
    assert [entry.kind for entry in ledger.entries("acme")][-3:] == ["spend", "release", "expire"]


def test_a_hold_of_the_last_period_counts_in_it(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    hold = ledger.hold("acme", 100, meter="requests", lasts="60d")
    clock.advance(20 * DAY)
    hold.settle(70)
    assert [
        (period.used, period.amount) for period in ledger.periods("acme", meter="requests")
    ] == [
        (70, 1000),
        (0, 1000),
    ]
    assert available(ledger, "requests") == 1000


def test_settling_after_the_hold_has_expired(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    hold = ledger.hold("acme", 900, meter="requests", lasts="15m")
    clock.advance(15 * 60)
    assert available(ledger, "requests") == 1000
    ledger.spend("acme", 950, meter="requests")
    settlement = hold.settle(80)  # it was used all the same
    assert (settlement.settled, settlement.uncovered) == (80, 30)
    assert available(ledger, "requests") == 0


# Sources and stocks ------------------------------------------------------------------------


def test_totals_of_sources_count_once_in_any_order(ledger: Ledger) -> None:
    ledger.open("acme", plan="pro")
    for source, total in (("a", 10), ("b", 5), ("a", 30), ("a", 20), ("a", 30), ("b", 5)):
        ledger.settle("acme", total, meter="tokens", source=source)
    assert ledger.balance("acme")["tokens"].spent == 35
    ledger.settle("acme", 7, meter="requests", source="a")  # another meter, another total
    assert ledger.balance("acme")["requests"].spent == 7
    assert ledger.settle("acme", 0, meter="tokens", source="c").settled == 0


def test_a_source_beyond_the_quota_is_written_down(ledger: Ledger) -> None:
    ledger.open("acme", plan="team")
    settlement = ledger.settle("acme", 21_000, meter="requests", source="a")
    assert (settlement.settled, settlement.uncovered) == (21_000, 500)
    assert ledger.balance("acme")["requests"].remaining == -500
    assert ledger.settle("acme", 21_001, meter="requests", source="a").uncovered == 501


def test_a_stock_has_totals(ledger: Ledger) -> None:
    ledger.open("acme", plan="free")

    def stock(granted: int, settled: int = 0, returned: int = 0) -> tuple[int, int]:
        row = ledger.stock(
            "acme", meter="requests", id="gate", granted=granted, settled=settled, returned=returned
        )
        return row.granted, row.held

    assert stock(300) == (300, 300)
    assert stock(300) == (300, 300)  # the answer was lost, perhaps
    assert stock(600, settled=250) == (600, 350)
    assert stock(500, settled=200) == (600, 350)  # an older message
    assert stock(600, settled=250, returned=100) == (600, 250)
    assert stock(5000, settled=250, returned=100) == (1100, 750)  # as much as there is
    assert available(ledger, "requests") == 0
    assert stock(6000, settled=900, returned=100) == (1100, 100)
    assert ledger.balance("acme")["requests"].spent == 900


@pytest.mark.parametrize(
    ("known", "granted", "settled", "returned", "expected"),
    [
        # What the ledger knows (granted, settled, returned), what the holder says, and what is
        # then granted, held, spent, and available of 1000.
        (None, 15, 8, 5, (15, 2, 8, 990)),  # a ledger that was restored without it
        (None, 2000, 8, 0, (1000, 992, 8, 0)),
        (None, 1300, 1200, 0, (1200, 0, 1000, 0)),  # 200 of them uncovered
        ((10, 0, 0), 20, 15, 0, (20, 5, 15, 980)),  # restored without the last grant
        ((10, 0, 0), 20, 8, 5, (20, 7, 8, 985)),
        ((10, 4, 0), 13, 8, 5, (13, 0, 8, 992)),
        ((20, 8, 5), 15, 6, 4, (20, 7, 8, 985)),  # an older message
    ],
)
def test_a_stock_is_believed_and_counts_once(
    ledger: Ledger,
    known: tuple[int, int, int] | None,
    granted: int,
    settled: int,
    returned: int,
    expected: tuple[int, int, int, int],
) -> None:
    ledger.open("acme", plan="free")

    def stock(granted: int, settled: int, returned: int) -> tuple[int, int, int, int]:
        row = ledger.stock(
            "acme", meter="requests", id="gate", granted=granted, settled=settled, returned=returned
        )
        assert row.granted == row.settled + row.returned + row.held
        balance = ledger.balance("acme")["requests"]
        assert balance.held == row.held
        return row.granted, row.held, balance.spent, balance.available

    if known is not None:
        stock(*known)
    assert stock(granted, settled, returned) == expected
    assert stock(granted, settled, returned) == expected


def test_many_stocks_in_one_transaction(ledger: Ledger) -> None:
    ledger.open("acme", plan="free")
    ledger.open("other", plan="free")
    reports = [
        StockTotals("acme", "requests", "gate", 900, settled=300),
        StockTotals("nobody", "requests", "gate", 10),
        StockTotals("other", "requests", "gate", 10),
        StockTotals("acme", "requests", "second", 900),
    ]
    for _ in range(2):  # the same reports again
        first, missing, other, second = ledger.stock_many(reports)
        assert isinstance(missing, UnknownAccount)
        assert [stock.granted for stock in (first, other, second)] == [900, 10, 100]
    assert ledger.balance("acme")["requests"].spent == 300
    assert ledger.stock_many([]) == []
    for wrong in (("acme", "requests"), StockTotals("acme", "requests", "gate", 1, settled=2)):
        with pytest.raises(InvalidQuota):
            ledger.stock_many([*reports, wrong])


def test_a_stock_cannot_have_spent_more_than_it_asks_for(ledger: Ledger) -> None:
    ledger.open("acme", plan="free")
    with pytest.raises(InvalidQuota, match=r"8 \+ 5 is more than 10"):
        ledger.stock("acme", meter="requests", id="gate", granted=10, settled=8, returned=5)
    assert available(ledger, "requests") == 1000


def test_a_stock_stays_held_until_it_is_settled(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    ledger.stock("acme", meter="requests", id="gate", granted=400, lasts="1h")
    clock.advance(3601)
    assert available(ledger, "requests") == 600  # it may have been spent
    stale = ledger.reconcile().stale
    assert [(hold.id, hold.held) for hold in stale] == [("gate", 400)]
    ledger.write_off("acme", "gate", spent=False, who="operator")
    assert available(ledger, "requests") == 1000
    ledger.stock("acme", meter="requests", id="other", granted=400, settled=0)
    ledger.write_off("acme", "other")
    assert available(ledger, "requests") == 600
    assert ledger.write_off("acme", "other").settled == 400
    with pytest.raises(UnknownHold):
        ledger.write_off("acme", "nothing")


def test_a_stock_that_reports_is_not_stale(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")

    def report(settled: int, lasts: str = "1h") -> datetime | None:
        ledger.stock("acme", meter="requests", id="gate", granted=400, settled=settled, lasts=lasts)
        (hold,) = ledger.holds("acme")
        return hold.expires

    def stale_after(seconds: int) -> bool:
        clock.advance(seconds)
        return bool(ledger.reconcile().stale)

    first = report(1)
    assert not stale_after(3000)
    second = report(2)
    assert not stale_after(300)
    assert report(3) == second != first  # nothing but numbers has changed
    assert not stale_after(3600)
    assert stale_after(450)  # within an eighth more
    report(4)
    assert not ledger.reconcile().stale
    report(5, lasts="1m")
    assert stale_after(68)


def test_a_stock_does_not_grow_into_the_next_period(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    ledger.stock("acme", meter="requests", id="january", granted=400)
    clock.advance(20 * DAY)
    row = ledger.stock("acme", meter="requests", id="january", granted=800, settled=390)
    assert (row.granted, row.held) == (400, 10)
    ledger.stock("acme", meter="requests", id="february", granted=800)
    assert [period.used for period in ledger.periods("acme", meter="requests")] == [390, 0]


def test_what_a_stock_uses_beyond_its_period_counts_in_the_next(
    ledger: Ledger, clock: FakeClock
) -> None:
    """It takes units of the running period: they are used there, and not twice."""
    ledger.open("acme", plan="free")
    ledger.stock("acme", meter="requests", id="january", granted=400)
    clock.advance(20 * DAY)
    row = ledger.stock("acme", meter="requests", id="january", granted=455, settled=455)
    assert (row.granted, row.held, row.uncovered) == (455, 0, 0)
    january, february = ledger.periods("acme", meter="requests")
    assert (january.used, february.used) == (400, 55)
    assert available(ledger, "requests") == 1000 - 55
    spends = [entry for entry in ledger.entries("acme") if entry.kind == "spend"]
    assert [(entry.amount, entry.held) for entry in spends] == [(-400, -400), (-55, 0)]
    ledger.stock("acme", meter="requests", id="january", granted=2000, settled=2000)
    january, february = ledger.periods("acme", meter="requests")
    assert (january.used, january.uncovered) == (400, 0)
    assert (february.used, february.uncovered) == (1000, 600)


def test_reconcile_sees_units_that_count_in_a_period_that_was_over(
    url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(url, plans={"free": {"requests": "1000/month"}}, clock=clock) as ledger:
        ledger.open("acme", plan="free")
        (january,) = ledger.periods("acme", meter="requests")
        ledger.stock("acme", meter="requests", id="january", granted=400)
        clock.advance(20 * DAY)
        spend = Book.spend

        def in_january(self: Book, *args: Any, **options: Any) -> EntryRow:
            return spend(self, *args, **{**options, "period": nanoseconds(january.starts)})

        monkeypatch.setattr(Book, "spend", in_january)
        ledger.stock("acme", meter="requests", id="january", granted=455, settled=455)
        (difference,) = ledger.reconcile().differences
        assert str(difference).endswith("after the next one had begun: 55 and 0")


# History -----------------------------------------------------------------------------------


def test_entries_are_read_from_a_cursor(ledger: Ledger) -> None:
    ledger.open("acme", plan="pro")
    ledger.open("other", plan="free")
    for number in range(5):
        ledger.spend("acme", number + 1, meter="tokens", ref=str(number))
    everything = list(ledger.entries())
    assert [entry.seq for entry in everything] == list(range(1, len(everything) + 1))
    own = list(ledger.entries("acme"))
    assert own == [entry for entry in everything if entry.account == "acme"]
    assert list(ledger.entries("acme", after=own[2].seq)) == own[3:]
    assert [entry.amount for entry in ledger.entries("acme", meter="tokens", after=3)] == [
        -1, -2, -3, -4, -5,
    ]  # fmt: skip


def test_entries_come_in_pages(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.quota.ledger.PAGE", 3)
    ledger.open("acme", plan="pro")
    for number in range(7):
        ledger.spend("acme", 1, meter="tokens", ref=str(number))
    assert len(list(ledger.entries())) == 9
    text = io.StringIO()
    assert ledger.export(text) == 9
    assert len(text.getvalue().splitlines()) == 9


def test_export_goes_on_where_it_ended(ledger: Ledger, tmp_path: Path) -> None:
    ledger.open("acme", plan="free")
    ledger.spend("acme", 3, meter="requests", ref="a", note='"quoted", and\nbroken')
    last = ledger.export(tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(line["seq"], line["kind"], line["amount"]) for line in lines] == [
        (1, "grant", 1000),
        (2, "spend", -3),
    ]
    assert lines[1]["at"] == "2024-01-15T12:00:00Z"
    ledger.spend("acme", 4, meter="requests", ref="b")
    text = io.StringIO()
    assert ledger.export(text, format="csv", after=last) == 3
    assert [row["amount"] for row in csv.DictReader(io.StringIO(text.getvalue()))] == ["-4"]
    assert ledger.export(io.StringIO(), after=3) == 3
    ledger.export(tmp_path / "a.csv", format="csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        assert [row["note"] for row in csv.DictReader(file)][1] == '"quoted", and\nbroken'
    with pytest.raises(InvalidQuota, match="'jsonl' or 'csv', not 'xml'"):
        ledger.export(text, format="xml")


def test_refs_are_in_the_history(ledger: Ledger) -> None:
    """An invoice, or a support case, is tied to the caller's own names."""
    ledger.open("acme", plan="free")
    ledger.grant("acme", 7, meter="requests", ref="invoice-1")
    ledger.adjust("acme", 7, meter="requests", ref="more")
    ledger.adjust("acme", -7, meter="requests", ref="less")
    ledger.spend("acme", 7, meter="requests", ref="job-1")
    ledger.spend("acme", 7, meter="requests")
    ledger.settle("acme", 7, meter="requests", source="job-1")  # another job-1
    sources = [(entry.kind, entry.source) for entry in ledger.entries("acme", after=1)]
    assert sources == [
        ("grant", "invoice-1"), ("adjust", "more"), ("adjust", "less"), ("spend", "job-1"),
        ("spend", ""), ("spend", "job-1/requests"),
    ]  # fmt: skip
    file = io.StringIO()
    ledger.export(file, format="csv", after=1)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [row["source"] for row in rows] == [source for _, source in sources]
    refs = [credit.ref for credit in ledger.balance("acme")["requests"].credits]
    assert refs == ["plan:1", "invoice-1", "more"]


def test_the_pace_counts_from_the_opening(ledger: Ledger, clock: FakeClock) -> None:
    """Opened at noon on January 15: 500 of 1000 in two days last two days more."""
    ledger.open("acme", plan="free")
    ledger.open("later")
    clock.advance(2 * DAY)
    ledger.spend("acme", 500, meter="requests")
    runs_out = ledger.balance("acme")["requests"].runs_out
    assert runs_out == datetime(2024, 1, 19, 12, tzinfo=UTC)
    ledger.change_plan("later", "free")  # its units begin on the 17th
    clock.advance(DAY)
    ledger.spend("later", 250, meter="requests")
    runs_out = ledger.balance("later")["requests"].runs_out
    assert runs_out == datetime(2024, 1, 21, 12, tzinfo=UTC)


def test_when_it_runs_out(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    assert ledger.balance("acme")["requests"].runs_out is None
    clock.advance(2 * DAY)
    ledger.spend("acme", 900, meter="requests")
    runs_out = ledger.balance("acme")["requests"].runs_out
    assert runs_out is not None
    assert runs_out.date() == date(2024, 1, 17)
    clock.advance(12 * DAY)
    assert ledger.balance("acme")["requests"].runs_out is not None
    clock.advance(3 * DAY)
    assert ledger.balance("acme")["requests"].runs_out is None  # not before it is renewed


def test_everything_is_there_after_reopening(url: str, ledger_at: Callable[[str], Ledger]) -> None:
    first = ledger_at(url)
    first.open("acme", plan="pro", tz="Europe/Berlin", anchor=15)
    first.spend("acme", 5, meter="tokens", ref="a")
    balance, entries = first.balance("acme"), list(first.entries())
    first.close()
    again = ledger_at(url)
    assert again.balance("acme") == balance
    assert list(again.entries()) == entries
    again.spend("acme", 5, meter="tokens", ref="a")
    assert again.balance("acme") == balance


def test_a_closed_ledger_says_so(ledger_at: Callable[[str], Ledger], sqlite_url: str) -> None:
    from penstock.quota import LedgerUnavailable

    ledger_at(sqlite_url).connect()
    ledger = Ledger(sqlite_url)
    ledger.connect()
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        ledger.balance("acme")
    with pytest.raises(LedgerUnavailable, match="closed"):
        Ledger.spend(ledger, "acme", meter="tokens")
