"""Plans: how they are written, renewed, carried over and changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.quota import Allowance, InvalidQuota, Ledger, Plan
from penstock.quota.plans import read_plans
from penstock.quota.values import nanoseconds
from penstock.testing import FakeClock

DAY = 86_400


def on(clock: FakeClock, day: str) -> None:
    clock.set(int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 10**9)


def numbers(ledger: Ledger, meter: str = "requests") -> tuple[int, int]:
    """What is available, and what was used in the period."""
    balance = ledger.balance("acme")[meter]
    return balance.available, balance.period.used if balance.period else -1


@pytest.mark.parametrize(
    ("definition", "allowance"),
    [
        ("10000/month", Allowance(10_000)),
        ("10_000 / day", Allowance(10_000, "day")),
        ("1,000,000/year", Allowance(1_000_000, "year")),
        ("5M/month", Allowance(5_000_000)),
        ("10k per week", Allowance(10_000, "week")),
        ("10/months", Allowance(10)),
        ("0/month", Allowance(0)),
        ({"amount": "5/hour", "rollover": 2}, Allowance(5, "hour", 2)),
        ({"amount": 5, "unit": "day", "overdraft": 1}, Allowance(5, "day", 0, 1)),
        (Allowance(7, "week"), Allowance(7, "week")),
    ],
)
def test_how_an_allowance_is_written(definition: Any, allowance: Allowance) -> None:
    assert read_plans({"p": {"m": definition}})["p"] == Plan("p", {"m": allowance})


def test_options_of_a_plan_are_for_all_its_meters() -> None:
    plan = read_plans(
        {
            "p": {
                "a": "1/day",
                "b": {"amount": "2/day", "rollover": 0},
                "rollover": 9,
                "overdraft": 3,
            }
        }
    )["p"]
    assert plan.meters == {"a": Allowance(1, "day", 9, 3), "b": Allowance(2, "day", 0, 3)}


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"m": "lots"}, "plan 'p': 'lots' is no allowance: write it like '10000/month'"),
        ({"m": 5}, "5 is no allowance"),
        ({"m": "5/fortnight"}, "'fortnight' is no period"),
        ({"m": "5/mnth"}, "did you mean 'month'?"),
        ({"m": "-5/month"}, "'-5/month' is no allowance"),
        ({"m": "1.5/month"}, "'1.5/month' is no allowance"),
        ({"m": "9999999999999999/month"}, "an allowance is from 0 to 1,000,000,000,000,000"),
        ({"m": {"amount": "5/day", "color": 1}}, "'color' is not one of amount, unit"),
        ({"m": {"rollover": 5}}, "amount is a whole number of units, not None"),
        ({"m": "5/day", "rollover": -1}, "rollover is from 0"),
        ({"m": "5/day", "overdraft": "much"}, "overdraft is a whole number of units, not 'much'"),
        ({}, "it grants nothing: add a meter"),
        ({"rollover": 5}, "it grants nothing"),
        ("pro", "plan 'p' is a mapping such as"),
        ({" m": "5/day"}, "a meter ' m' has control characters or outer spaces"),
        ({7: "5/day"}, "a meter is a str, not 7"),
    ],
)
def test_a_wrong_plan_says_what_is_wrong(definition: Any, message: str) -> None:
    with pytest.raises(InvalidQuota, match=re.escape(message)):
        read_plans({"p": definition})


# Renewal -----------------------------------------------------------------------------------


def test_a_period_ends_and_the_next_begins(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free", tz="Asia/Taipei", anchor=31)
    ledger.spend("acme", 600, meter="requests")
    on(clock, "2024-01-30T15:59:59")
    assert numbers(ledger) == (400, 600)
    on(clock, "2024-01-30T16:00:00")  # January 31 in Taipei
    assert numbers(ledger) == (1000, 0)
    on(clock, "2024-02-28T15:59:59")
    ledger.spend("acme", 1, meter="requests")
    assert numbers(ledger) == (999, 1)
    on(clock, "2024-02-28T16:00:00")
    assert numbers(ledger) == (1000, 0)


def test_unused_units_are_carried_over_once(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="pro")  # rollover 2000
    ledger.spend("acme", 9000, meter="requests")
    on(clock, "2024-02-01")
    assert numbers(ledger) == (11_000, 0)  # the 1000 that were left
    ledger.spend("acme", 500, meter="requests")  # of those that were carried, which end first
    on(clock, "2024-03-01")
    assert numbers(ledger) == (12_000, 0)  # 2000 of the plan's, none of the carried
    ledger.spend("acme", 12_000, meter="requests")
    on(clock, "2024-04-01")
    assert numbers(ledger) == (10_000, 0)


def test_top_ups_outlive_the_period_and_burn_after_the_plan(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.open("acme", plan="free")
    ledger.grant("acme", 500, meter="requests", ref="a", expires="90d")
    ledger.spend("acme", 1100, meter="requests")
    assert numbers(ledger) == (400, 1100)
    on(clock, "2024-02-01")
    assert numbers(ledger) == (1400, 0)


@pytest.mark.parametrize("unit", ["hour", "day", "week", "month", "year"])
def test_years_of_silence(
    unit: str, sqlite_url: str, ledger_at: Callable[[str], Ledger], clock: FakeClock
) -> None:
    ledger = ledger_at(sqlite_url)
    ledger.define_plans({"p": {"m": {"amount": f"100/{unit}", "rollover": 30}}})
    ledger.open("acme", plan="p", tz="Europe/Berlin")
    ledger.spend("acme", 90, meter="m")
    clock.advance(20 * 366 * DAY)
    assert numbers(ledger, "m") == (130, 0)
    ledger.spend("acme", 130, meter="m")
    assert len(list(ledger.entries("acme"))) < 20  # nothing happened in between


def test_silence_gives_the_same_as_asking_every_day(
    sqlite_url: str, tmp_path: Any, ledger_at: Callable[[str], Ledger], clock: FakeClock
) -> None:
    plans = {"p": {"m": {"amount": "10/day", "rollover": 4, "overdraft": 35}}}
    often, seldom = (ledger_at(f"sqlite:///{tmp_path}/{name}.db") for name in "ab")
    for ledger in (often, seldom):
        ledger.define_plans(plans)
        ledger.open("acme", plan="p")
        ledger.spend("acme", 45, meter="m")  # three days of debt and a half
    for _ in range(9):
        clock.advance(DAY)
        often.grant("acme", 1, meter="other", ref=str(clock.now()))
        assert numbers(often, "m") == numbers(seldom, "m")
    assert numbers(seldom, "m") == (14 + 35, 0)


def test_a_clock_that_steps_back_finds_things_as_they_are(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    on(clock, "2024-02-01")
    ledger.spend("acme", 10, meter="requests")
    on(clock, "2024-01-31T23:00")
    assert numbers(ledger) == (990, 10)
    ledger.spend("acme", 10, meter="requests")
    on(clock, "2024-02-02")
    assert numbers(ledger) == (980, 20)
    assert len(ledger.periods("acme", meter="requests")) == 2


# Changes of plan ---------------------------------------------------------------------------


def test_an_upgrade_applies_at_once_and_keeps_what_was_used(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.open("acme", plan="free")
    ledger.spend("acme", 700, meter="requests")
    account = ledger.change_plan("acme", "pro", who="sales", note="call of Monday")
    assert (account.plan, account.next_plan) == ("pro", None)
    assert numbers(ledger) == (9300, 700)
    assert numbers(ledger, "tokens") == (50_000, 0)  # a meter that is new
    ledger.change_plan("acme", "pro")
    assert numbers(ledger) == (9300, 700)  # asked again: nothing
    assert len(ledger.periods("acme", meter="requests")) == 1
    on(clock, "2024-02-01")
    assert numbers(ledger) == (12_000, 0)  # with the rollover of the new plan
    change = next(entry for entry in ledger.entries("acme") if entry.kind == "plan")
    assert (change.who, change.note) == ("sales", "pro from now: call of Monday")


def test_a_downgrade_waits_for_the_end_of_the_period(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="pro", tz="Asia/Taipei")
    ledger.spend("acme", 700, meter="requests")
    account = ledger.change_plan("acme", "free")
    assert (account.plan, account.next_plan) == ("pro", "free")
    assert account.next_plan_from is not None
    assert account.next_plan_from.isoformat() == "2024-02-01T00:00:00+08:00"
    assert ledger.change_plan("acme", "free") == account  # asked again: nothing
    assert numbers(ledger) == (9300, 700)
    on(clock, "2024-01-31T16:00")
    balance = ledger.balance("acme")
    assert balance.account.plan == "free"
    assert balance["requests"].available == 3000  # its own, and what the old plan carries over
    assert balance["tokens"].available == 0
    on(clock, "2024-03-01")
    assert numbers(ledger) == (1000, 0)


def test_a_scheduled_change_is_taken_back_by_choosing_the_plan_again(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.open("acme", plan="pro")
    ledger.change_plan("acme", "free")
    account = ledger.change_plan("acme", "pro")
    assert (account.plan, account.next_plan) == ("pro", None)
    on(clock, "2024-02-10")
    assert numbers(ledger) == (12_000, 0)


def test_a_downgrade_now_takes_only_what_is_free(ledger: Ledger) -> None:
    ledger.open("acme", plan="pro")
    ledger.spend("acme", 700, meter="requests")
    ledger.change_plan("acme", "free", when="now")
    assert numbers(ledger) == (300, 700)
    ledger.change_plan("acme", "pro")
    ledger.spend("acme", 2000, meter="requests")
    ledger.change_plan("acme", "free", when="now")
    assert numbers(ledger) == (0, 2700)  # used more than it grants: nothing is asked back
    assert ledger.balance("acme")["requests"].remaining == 0


def test_an_upgrade_may_wait(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    assert ledger.change_plan("acme", "pro", when="next-period").next_plan == "pro"
    assert numbers(ledger) == (1000, 0)
    on(clock, "2024-02-01")
    assert numbers(ledger) == (10_000, 0)


def test_prorated(ledger: Ledger, clock: FakeClock) -> None:
    on(clock, "2024-04-16")  # half of a month of 30 days
    ledger.open("acme", plan="free", prorate=True)
    assert numbers(ledger) == (500, 0)
    ledger.change_plan("acme", "pro", prorate=True)
    assert numbers(ledger) == (500 + 4500, 0)
    assert numbers(ledger, "tokens") == (25_000, 0)
    ledger.change_plan("acme", "free", when="now", prorate=True)
    assert numbers(ledger) == (500, 0)
    on(clock, "2024-05-01")
    assert ledger.balance("acme")["requests"].available == 1000


CHANGES = [
    # zone, anchor, opened with, changed when, to, with which options; and then: what is available,
    # when the period ends, and when a plan that is chosen for later begins.
    # At once, in the last minute of a month, or in the first of the next.
    ("UTC", 1, "free", "2024-01-31T23:59Z", "pro", {}, 10_000, "2024-02-01", None),
    ("UTC", 1, "free", "2024-02-01T00:00Z", "pro", {}, 10_000, "2024-03-01", None),
    # The same moment is in January in New York, and in February in Taipei.
    ("America/New_York", 1, "free", "2024-02-01T03:00Z", "pro", {}, 10_000, "2024-02-01", None),
    ("Asia/Taipei", 1, "free", "2024-01-31T20:00Z", "pro", {}, 10_000, "2024-03-01", None),
    # A downgrade waits for the end of the period: on the last day of a month, a leap day, ...
    ("UTC", 31, "pro", "2024-02-10T00:00Z", "free", {}, 12_000, "2024-02-29", "2024-02-29"),
    ("UTC", 31, "pro", "2025-02-10T00:00Z", "free", {}, 12_000, "2025-02-28", "2025-02-28"),
    ("UTC", 30, "pro", "2024-02-29T00:00Z", "free", {}, 12_000, "2024-03-30", "2024-03-30"),
    # ... and by a clock that has gone forward since.
    ("Europe/Berlin", 1, "pro", "2024-03-15T00:00Z", "free", {}, 12_000, "2024-04-01",
     "2024-04-01"),
    # Half of a month of 29 days, of 28, and of 31 with an hour less.
    ("UTC", 1, "free", "2024-02-15T12:00Z", "pro", {"prorate": True}, 5_500, "2024-03-01", None),
    ("UTC", 1, "free", "2025-02-15T00:00Z", "pro", {"prorate": True}, 5_500, "2025-03-01", None),
    ("Europe/Berlin", 1, "free", "2024-03-16T10:30Z", "pro", {"prorate": True}, 5_500, "2024-04-01",
     None),
    # A new period from this day on.
    ("UTC", 1, "free", "2024-01-31T08:00Z", "pro", {"reset": True}, 10_000, "2024-02-29", None),
    ("UTC", 1, "free", "2025-01-31T08:00Z", "pro", {"reset": True}, 10_000, "2025-02-28", None),
    # What was carried over stays until it would have ended.
    ("Asia/Taipei", 15, "pro", "2024-02-28T16:00Z", "free", {"reset": True}, 3_000, "2024-03-29",
     None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tz", "anchor", "plan", "when", "to", "options", "available", "ends", "begins"), CHANGES
)
def test_changes_of_plan_by_the_calendar(
    ledger: Ledger,
    clock: FakeClock,
    tz: str,
    anchor: int,
    plan: str,
    when: str,
    to: str,
    options: dict[str, bool],
    available: int,
    ends: str,
    begins: str | None,
) -> None:
    """Plan pro carries 2000 unused requests over; plan free none."""
    ledger.open("acme", plan=plan, tz=tz, anchor=anchor)
    clock.set(nanoseconds(datetime.fromisoformat(when)))
    account = ledger.change_plan("acme", to, **options)  # type: ignore[arg-type]
    balance = ledger.balance("acme")["requests"]
    assert balance.available == available
    assert balance.period is not None
    assert f"{balance.period.ends:%Y-%m-%d %H:%M}" == f"{ends} 00:00"
    starts = account.next_plan_from
    assert (str(starts.date()) if starts is not None else None) == begins
    if begins is not None:
        clock.set(nanoseconds(balance.period.ends))
        balance = ledger.balance("acme")["requests"]
        assert balance.period is not None
        assert (balance.period.plan, balance.available) == (to, 1_000 + 2_000)


def test_reset_begins_a_new_period_today(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    ledger.spend("acme", 700, meter="requests")
    ledger.change_plan("acme", "pro", reset=True)
    balance = ledger.balance("acme")["requests"]
    assert (balance.available, balance.spent) == (10_000, 700)
    assert balance.period is not None
    assert balance.period.used == 0
    assert balance.period.ends == datetime(2024, 2, 15, tzinfo=UTC)
    assert [period.used for period in ledger.periods("acme", meter="requests")] == [700, 0]
    on(clock, "2024-02-15")
    assert numbers(ledger) == (12_000, 0)
    with pytest.raises(InvalidQuota, match="leave prorate and when out"):
        ledger.change_plan("acme", "pro", reset=True, prorate=True)
    with pytest.raises(InvalidQuota, match="when is 'now', 'next-period' or None"):
        ledger.change_plan("acme", "pro", when="later")


def test_a_change_of_the_unit_keeps_what_was_used(ledger: Ledger, clock: FakeClock) -> None:
    ledger.define_plans({"yearly": {"requests": "240000/year"}})
    ledger.open("acme", plan="free")
    ledger.spend("acme", 1000, meter="requests")  # all of it
    ledger.change_plan("acme", "yearly")
    assert numbers(ledger)[0] == 239_000
    on(clock, "2025-01-01")
    assert numbers(ledger) == (240_000, 0)


def test_meters_of_different_units(ledger: Ledger, clock: FakeClock) -> None:
    ledger.define_plans(
        {
            "big": {"a": "100/day", "b": "1000/month", "c": "500/week"},
            "small": {"a": "10/day", "b": "100/month", "c": "50/week"},
        }
    )
    ledger.open("acme", plan="big")
    ledger.change_plan("acme", "small")
    on(clock, "2024-01-31")  # a Wednesday
    assert [numbers(ledger, meter)[0] for meter in "abc"] == [100, 1000, 500]
    on(clock, "2024-02-01")
    assert [numbers(ledger, meter)[0] for meter in "abc"] == [10, 100, 50]
    on(clock, "2024-02-05")
    assert [numbers(ledger, meter)[0] for meter in "abc"] == [10, 100, 50]


def test_less_overdraft_asks_nothing_back_at_once(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="team")
    ledger.spend("acme", 20_400, meter="requests")
    ledger.change_plan("acme", "free", when="now")
    balance = ledger.balance("acme")["requests"]
    assert (balance.available, balance.remaining) == (0, -400)
    ledger.grant("acme", 500, meter="requests", ref="a")
    assert ledger.balance("acme")["requests"].available == 100  # and no overdraft any more
    on(clock, "2024-02-01")
    assert numbers(ledger) == (1100, 0)


def test_a_redefined_plan_applies_from_the_next_period(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="free")
    ledger.open("other", plan="free")
    ledger.spend("acme", 100, meter="requests")
    ledger.define_plans({"free": {"requests": "2000/month"}})
    assert numbers(ledger) == (900, 100)
    ledger.change_plan("other", "free")  # or at once, if that is asked for
    assert ledger.balance("other")["requests"].available == 2000
    on(clock, "2024-02-01")
    assert numbers(ledger) == (2000, 0)


def test_a_meter_that_leaves_and_comes_back(ledger: Ledger) -> None:
    ledger.open("acme", plan="pro")
    ledger.spend("acme", 10, meter="tokens")
    for _ in range(3):
        ledger.change_plan("acme", "free", when="now")
        assert ledger.balance("acme")["tokens"].available == 0
        ledger.change_plan("acme", "pro", when="now")
        assert ledger.balance("acme")["tokens"].available == 50_000
    assert [period.used for period in ledger.periods("acme", meter="tokens")] == [10, 0, 0, 0]


def test_a_hold_lives_through_a_change_of_plan(ledger: Ledger, clock: FakeClock) -> None:
    ledger.open("acme", plan="pro")
    hold = ledger.hold("acme", 5000, meter="requests", lasts="60d")
    ledger.change_plan("acme", "free", when="now")
    assert ledger.balance("acme")["requests"].available == 0
    hold.settle(4000)
    assert ledger.balance("acme")["requests"].spent == 4000
    ledger.reconcile()
