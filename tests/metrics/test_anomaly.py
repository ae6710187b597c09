"""The anomaly watch: tables of windows, and simulated traffic with the noise of chance."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.clock import SECOND
from penstock.events import Event
from penstock.metrics import AnomalyWatch, RefusalsJumped, RefusalsSettled
from penstock.metrics.anomaly import ALL, LONGEST, SPAN, WARM_UP, WINDOW, Baseline, Series
from penstock.testing import FakeClock

DAY = 24 * 3600 // WINDOW  # in windows


def poisson(chance: random.Random, mean: float) -> int:
    if mean > 40:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    bound, count, product = math.exp(-mean), 0, chance.random()
    while product > bound:
        count += 1
        product *= chance.random()
    return count


class Simulation:
    """Refusals of one rule, window by window."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.watch = AnomalyWatch(clock=self.clock, **options)
        self.events: list[Event] = []
        self.watch.subscribe(self.events.append)
        self.total = 0
        self.watch.look({"rule": 0})

    def window(self, count: int, seconds: float = WINDOW) -> None:
        self.total += count
        self.clock.advance(seconds)
        self.watch.look({"rule": self.total})

    def windows(self, counts: Iterable[int]) -> Simulation:
        for count in counts:
            self.window(count)
        return self

    @property
    def told(self) -> list[str]:
        """Of the rule; all together go the same way, as there is one rule."""
        words = {RefusalsJumped: "jumped", RefusalsSettled: "settled"}
        return [words[type(event)] for event in self.events if event.rule == "rule"]  # type: ignore[attr-defined,index]  # these two


CALM = [100] * WARM_UP


# Tables: after CALM, sigma is 10: raised above 160, cleared below 120.
@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([], []),
        ([500], []),
        ([500, 500], ["jumped"]),
        ([500, 100, 500, 100, 500], []),
        ([150, 150, 150, 150], []),
        ([500] * 20, ["jumped"]),
        ([500, 500, 100, 100], ["jumped"]),
        ([500, 500, 100, 100, 100], ["jumped", "settled"]),
        ([500, 500, 100, 100, 500, 100, 100], ["jumped"]),
        ([500, 500, 130, 130, 130, 130], ["jumped"]),
        ([500, 500, 0, 0, 0, 500, 500], ["jumped", "settled", "jumped"]),
        ([0] * 20, []),
    ],
)
def test_raised_after_two_windows_and_cleared_after_three(
    counts: list[int], told: list[str]
) -> None:
    assert Simulation().windows([*CALM, *counts]).told == told


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([0] * 50 + [19] * 5, []),  # below `least`
        ([0] * 50 + [20] * 5, ["jumped"]),
        ([10] * 50 + [19] * 5, []),
        ([0] * 50 + [20, 5, 20, 5], []),
        ([1] * 500 + [25] * 2, ["jumped"]),
    ],
)
def test_a_quiet_rule(counts: list[int], told: list[str]) -> None:
    assert Simulation().windows(counts).told == told


@pytest.mark.parametrize(("least", "told"), [(1000, []), (500, ["jumped"]), (5, ["jumped"])])
def test_least_is_an_option(least: int, told: list[str]) -> None:
    assert Simulation(least=least).windows([*CALM, 500, 500]).told == told


def test_nothing_is_raised_while_the_history_is_short() -> None:
    simulation = Simulation().windows([10] * (WARM_UP - 5) + [1000] * 5)
    assert simulation.told == []
    assert Simulation().windows([10] * (WARM_UP - 5) + [1000, 100_000]).told == []
    simulation = Simulation().windows([10] * WARM_UP + [1000] * 2)
    assert simulation.told == ["jumped"]


def test_the_events_say_what_was_seen() -> None:
    simulation = Simulation().windows([*CALM, 500, 500, 500, 100, 100, 100])
    jumped, settled = (e for e in simulation.events if e.rule == "rule")  # type: ignore[attr-defined]  # both have it
    assert isinstance(jumped, RefusalsJumped)
    assert isinstance(settled, RefusalsSettled)
    assert (jumped.count, jumped.window) == (500, 10)
    assert 100 <= jumped.expected <= 101
    assert 10 <= jumped.sigma <= 12
    assert (settled.seconds, settled.adopted) == (40.0, False)


def test_all_rules_together_are_watched_too() -> None:
    """A hundred rules, each by so little that none of them shows it."""
    clock, events = FakeClock(), []
    watch = AnomalyWatch(clock=clock)
    watch.subscribe(events.append)
    totals = {f"rule{at}": 0 for at in range(100)}
    watch.look(totals)
    for count in [5] * 40 + [15] * 2:
        totals = {rule: total + count for rule, total in totals.items()}
        clock.advance(WINDOW)
        watch.look(totals)
    assert [event.rule for event in events] == [ALL]
    assert watch.raised == [ALL]
    snapshot = watch.snapshot()
    assert snapshot.values["penstock_refusals_anomalous"] == {(ALL,): 1}
    assert snapshot.values["penstock_anomalies_total"] == {(ALL,): 1}


def test_an_alarm_that_does_not_end_becomes_what_is_usual() -> None:
    simulation = Simulation().windows([*CALM, *[500] * (2 + LONGEST)])
    assert simulation.told == ["jumped", "settled"]
    settled = simulation.events[-1]
    assert isinstance(settled, RefusalsSettled)
    assert (settled.adopted, settled.seconds) == (True, 3600.0)
    simulation.windows([500] * 100)
    assert simulation.told == ["jumped", "settled"], "it is usual now"
    simulation.windows([1500] * 2)
    assert simulation.told == ["jumped", "settled", "jumped"]


def test_nothing_is_learnt_from_an_alarm() -> None:
    series = Series(0)
    for count in [*CALM, 500, 500]:
        series.look(count, 20)
    before = series.usual.mean, series.usual.variance
    for _ in range(50):
        series.look(500, 20)
    assert (series.usual.mean, series.usual.variance) == before


def test_one_burst_does_not_hide_the_next() -> None:
    assert Simulation().windows([*CALM, 100_000, *[100] * 5, 500, 500]).told == ["jumped"]


def test_mean_and_variance_are_those_of_the_numbers() -> None:
    chance, usual = random.Random(1), Baseline()
    for _ in range(20 * SPAN):
        usual.learn(chance.gauss(1000, 50))
    assert usual.mean == pytest.approx(1000, rel=0.02)
    assert usual.sigma == pytest.approx(50, rel=0.25)


# Time ----------------------------------------------------------------------------------------


def test_it_may_be_asked_to_look_at_any_time() -> None:
    """Also every second, and also late: what counts is refusals in ten seconds."""
    often = Simulation()
    for _ in range(600):
        often.window(10, 1)
    assert often.told == []
    assert often.watch._series["rule"].usual.mean == pytest.approx(100, rel=0.02)
    late = Simulation().windows(CALM)
    late.window(6000, 600)
    late.window(6000, 600)
    assert late.told == [], "a hundred in ten seconds, as ever"


def test_a_clock_that_is_put_back_and_counters_that_begin_anew() -> None:
    simulation = Simulation().windows(CALM)
    simulation.clock.advance(-3600)
    simulation.windows([100] * 5)
    simulation.total = 0  # its process was restarted
    simulation.windows([100] * 5)
    assert simulation.told == []
    simulation.windows([500] * 2)
    assert simulation.told == ["jumped"]


def test_a_rule_that_is_gone_is_forgotten() -> None:
    simulation = Simulation().windows([*CALM, 500, 500])
    assert simulation.watch.raised == [ALL, "rule"]
    for _ in range(5):
        simulation.clock.advance(WINDOW)
        simulation.watch.look({})
    assert simulation.watch.raised in ([], [ALL])
    assert set(simulation.watch._series) == {ALL}
    name = "penstock_refusals_anomalous"
    assert simulation.watch.snapshot().get(name, "rule") == 0


async def test_it_runs_by_itself_until_it_is_cancelled() -> None:
    clock, events = FakeClock(), []
    watch = AnomalyWatch(clock=clock)
    watch.subscribe(events.append)
    started = clock.now()

    def refusals() -> dict[str, int]:
        windows = (clock.now() - started) // SECOND // WINDOW
        return {"rule": 10 * windows + 1000 * max(0, windows - 50)}

    task = asyncio.create_task(watch.run(refusals))
    while not events:
        await asyncio.sleep(0)
    assert clock.now() - started == 52 * WINDOW * SECOND
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# Simulated traffic ---------------------------------------------------------------------------


def flat(mean: float) -> Callable[[int], float]:
    return lambda _: mean


def daily(low: float, high: float) -> Callable[[int], float]:
    middle, swing = (low + high) / 2, (high - low) / 2
    return lambda at: middle - swing * math.cos(2 * math.pi * at / DAY)


@pytest.mark.parametrize(
    "rate",
    [flat(0.1), flat(3), flat(30), flat(1000), daily(2, 60), daily(50, 1000)],
    ids=["rare", "few", "some", "many", "day of few", "day of many"],
)
def test_no_false_alarm_in_a_week(rate: Callable[[int], float]) -> None:
    chance = random.Random(20240101)
    series = Series(0)
    raised = [
        at for at in range(7 * DAY) if series.look(poisson(chance, rate(at)), 20) and series.raised
    ]
    assert raised == []


def test_no_false_alarm_from_traffic_that_comes_in_bursts() -> None:
    """Far from Poisson: the rate itself is drawn anew in every window (variance 9 x mean)."""
    chance = random.Random(7)
    series = Series(0)
    for _ in range(DAY):
        assert not series.look(poisson(chance, chance.gammavariate(12.5, 8)), 20)


@pytest.mark.parametrize("mean", [30, 50, 300, 5000])
def test_three_times_as_many_are_seen_within_30_seconds(mean: float) -> None:
    """At any moment of a window, after an hour of history; at least 99 times of 100."""
    chance = random.Random(int(mean))
    seen = 0
    for _ in range(300):
        series = Series(0)
        for _ in range(360):
            assert not series.look(poisson(chance, mean), 20)
        part = chance.random()  # of the window in which it begins
        counts = [mean * (1 + 2 * part), 3 * mean, 3 * mean]
        elapsed, detected = part * WINDOW, False
        for at, count in enumerate(counts):
            if series.look(poisson(chance, count), 20):
                detected = elapsed + at * WINDOW <= 30
                break
        seen += detected
    assert seen >= 297


def test_a_jump_in_the_middle_of_a_day_is_seen_and_ends() -> None:
    chance, rate = random.Random(3), daily(50, 500)
    series, changes = Series(0), []
    for at in range(DAY):
        attack = 3 if DAY // 4 <= at < DAY // 4 + 60 else 1
        if series.look(poisson(chance, attack * rate(at)), 20):
            changes.append((at - DAY // 4, series.raised))
    assert [raised for _, raised in changes] == [True, False]
    assert changes[0][0] <= 2
    assert 60 <= changes[1][0] <= 70


@pytest.mark.parametrize("least", [0, -1, 2.5, "many"])
def test_least_that_makes_no_sense(least: Any) -> None:
    with pytest.raises(ValueError, match="least must be a whole number"):
        AnomalyWatch(least=least)
