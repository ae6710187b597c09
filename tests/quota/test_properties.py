"""Any sequence of operations, on both databases: the same answers, and the laws of a ledger.

- A balance never goes below the overdraft, and nothing is granted twice.
- Entries, balances, credits, holds and periods agree at every moment.
- An operation that is repeated changes nothing.
- SQLite and PostgreSQL answer alike.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from typing import Any, NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.quota import Ledger, QuotaError
from penstock.testing import FakeClock
from quota.conftest import START
from quota.postgres_server import own_database, without_server

PLANS = {
    "small": {"a": "20/day", "b": "50/month", "rollover": 10},
    "large": {"a": "60/day", "b": "30/week", "rollover": 5, "overdraft": 15},
    "other": {"a": {"amount": "40/month", "overdraft": 7}},
}
DAY = 86_400
AMOUNTS = st.integers(1, 70)
METERS = st.sampled_from("ab")
REFS = st.sampled_from("rst")
LASTS = st.sampled_from(["1h", "1d", "3d", "40d"])

STEPS = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([60, 3600, DAY, 3 * DAY, 40 * DAY, -3600])),
    st.tuples(st.just("spend"), METERS, AMOUNTS, REFS | st.none()),
    st.tuples(st.just("grant"), METERS, AMOUNTS, REFS, LASTS | st.none(), st.integers(98, 101)),
    st.tuples(st.just("later"), METERS, AMOUNTS, REFS, LASTS),
    st.tuples(st.just("adjust"), METERS, st.integers(-40, 40).filter(bool), REFS),
    st.tuples(st.just("hold"), METERS, AMOUNTS, LASTS),
    st.tuples(st.just("settle"), st.integers(0, 5), st.integers(0, 90)),
    st.tuples(st.just("total"), METERS, st.integers(0, 90), REFS),
    st.tuples(
        st.just("stock"), METERS, st.integers(0, 90), st.integers(0, 60), st.integers(0, 60), REFS
    ),
    st.tuples(
        st.just("plan"),
        st.sampled_from(["small", "large", "other"]),
        st.sampled_from([None, "now", "next-period"]),
        st.booleans(),
    ),
    st.tuples(st.just("reset"), st.sampled_from(["small", "large", "other"])),
)


class Refusal(NamedTuple):
    kind: type[QuotaError]
    message: str


class Play:
    """The steps on one ledger; what each answered."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock(START)
        self.ledger = Ledger(url, plans=PLANS, clock=self.clock)
        self.ledger.open("acme", plan="small", tz="Europe/Berlin", anchor=31)
        self.holds: list[Any] = []

    def step(self, step: tuple[Any, ...]) -> object:
        try:
            return self.act(*step)
        except QuotaError as error:
            # The database itself is the last wall: nothing may get as far as that.
            if type(error) is QuotaError:
                raise
            return Refusal(type(error), str(error))

    def act(self, verb: str, *args: Any) -> object:
        ledger = self.ledger
        if verb == "pass":
            self.clock.advance(args[0])
            return None
        if verb == "spend":
            meter, amount, ref = args
            return ledger.spend("acme", amount, meter=meter, ref=ref).amount
        if verb == "grant":
            meter, amount, ref, expires, priority = args
            return ledger.grant(
                "acme", amount, meter=meter, ref=ref, expires=expires, priority=priority
            )
        if verb == "later":
            meter, amount, ref, starts = args
            return ledger.grant("acme", amount, meter=meter, ref=ref, starts=starts, expires="100d")
        if verb == "adjust":
            meter, amount, ref = args
            return ledger.adjust("acme", amount, meter=meter, ref=ref).amount
        if verb == "hold":
            meter, amount, lasts = args
            self.holds.append(ledger.hold("acme", amount, meter=meter, lasts=lasts))
            return len(self.holds)
        if verb == "settle":
            number, used = args
            if number >= len(self.holds):
                return None
            settlement = self.holds[number].settle(used)
            return settlement.settled, settlement.uncovered, settlement.held
        if verb == "total":
            meter, total, source = args
            settlement = ledger.settle("acme", total, meter=meter, source=source)
            return settlement.settled, settlement.uncovered
        if verb == "stock":
            meter, granted, settled, returned, name = args
            # Any totals: a ledger that was restored may know less than the holder.
            row = ledger.stock(
                "acme", meter=meter, id=f"{name}-{meter}", settled=settled, returned=returned,
                granted=max(granted, settled + returned),
            )  # fmt: skip
            assert row.granted == row.settled + row.returned + row.held
            return row.granted, row.settled, row.returned, row.held
        if verb == "plan":
            plan, when, prorate = args
            return asdict(ledger.change_plan("acme", plan, when=when, prorate=prorate))
        return asdict(ledger.change_plan("acme", args[0], reset=True))

    def check(self) -> None:
        ledger = self.ledger
        result = ledger.reconcile()
        assert result.differences == ()
        balance = ledger.balance("acme")
        for meter in balance.meters.values():
            assert meter.available >= 0
            assert meter.held >= 0
        totals: dict[str, int] = {}
        for entry in ledger.entries("acme"):
            if entry.kind != "uncovered":
                totals[entry.meter] = totals.get(entry.meter, 0) + entry.amount
            assert totals.get(entry.meter, 0) >= -15 - 7

    def repeatable(self, step: tuple[Any, ...]) -> bool:
        return step[0] in ("total", "settle", "stock", "grant", "later", "adjust") or (
            step[0] == "spend" and step[3] is not None
        )


def play(plays: list[Play], steps: list[tuple[Any, ...]]) -> None:
    for step in steps:
        answers = [one.step(step) for one in plays]
        assert all(answer == answers[0] for answer in answers), step
        for one in plays:
            if one.repeatable(step) and not isinstance(answers[0], Refusal):
                entries = len(list(one.ledger.entries()))
                one.step(step)
                assert len(list(one.ledger.entries())) == entries
    balances = [one.ledger.balance("acme") for one in plays]
    assert all(balance == balances[0] for balance in balances)
    for one in plays:
        one.check()


# Days, then the rest of a month that began where the first of the days did.
LONGER_PERIODS = [("reset", "large"), ("plan", "other", None, False), ("pass", 40 * DAY)]


@given(st.lists(STEPS, max_size=25))
@example([*LONGER_PERIODS, ("reset", "small")])
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_laws_of_a_ledger(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = Play(f"sqlite:///{folder}/quota.db")
        try:
            play([one], steps)
        finally:
            one.ledger.close()


def test_both_databases_answer_alike(postgres_server: str | None) -> None:
    if postgres_server is None:
        without_server()

    @given(st.lists(STEPS, max_size=25))
    @settings(
        max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "100")) // 10 or 1,
        suppress_health_check=[HealthCheck.too_slow],
    )
    def compare(steps: list[tuple[Any, ...]]) -> None:
        assert postgres_server is not None
        with tempfile.TemporaryDirectory() as folder, own_database(postgres_server) as url:
            plays = [Play(f"sqlite:///{folder}/quota.db"), Play(url)]
            try:
                play(plays, steps)
            finally:
                for one in plays:
                    one.ledger.close()

    compare()
