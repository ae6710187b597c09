"""Strategies on a service whose capacity halves and recovers: what each of them promises."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from adaptive.traffic import SlotAdmission
from penstock.adaptive import AIMD, AdaptiveLimit, CPUTarget, Gradient2, Vegas
from penstock.concurrency import HIGH, LOW, ConcurrencyLimiter
from penstock.testing import FakeClock
from penstock.testing.load_simulation import Course, Second, SimulatedService, simulate

TARGET = 0.2
CHANGES = (0, 30, 60, 90)
HALVES: Course = ((0, 20), (30, 10), (60, 20))
SLOWS: Course = ((0, 0.05), (30, 0.1), (60, 0.05))
SETTLED = 10  # seconds after a change

Make = Callable[[SimulatedService, int], AdaptiveLimit]


def aimd(service: SimulatedService, seed: int) -> AdaptiveLimit:
    return AIMD(TARGET, quantile=0.99, chance=random.Random(seed).random)


MAKES: dict[str, Make] = {
    "AIMD": aimd,
    "Gradient2": lambda service, seed: Gradient2(),
    "Vegas": lambda service, seed: Vegas(),
    "CPUTarget 95 %": lambda service, seed: CPUTarget(0.95, reader=service.cpu),
}


def settled(rows: list[Second]) -> list[list[Second]]:
    """What comes ten seconds after the start and each change, until the next one."""
    return [rows[start + SETTLED : end] for start, end in pairwise(CHANGES)]


def worst_share(part: list[Second], offered: float) -> float:
    """The least of any five seconds in a row, of what was possible."""
    shares = []
    for start in range(len(part) - 4):
        five = part[start : start + 5]
        possible = sum(min(row.capacity, offered) for row in five)
        shares.append(sum(row.finished for row in five) / possible)
    return min(shares)


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize(("overload", "seed"), [(1.5, 1), (1.5, 2), (3.0, 1)])
def test_capacity_halves_and_recovers(name: str, overload: float, seed: int) -> None:
    service = SimulatedService(servers=HALVES)
    rows = simulate(MAKES[name](service, seed), service, ((0, 400 * overload),), 90, seed)
    share = min(worst_share(part, 400 * overload) for part in settled(rows))
    p99 = max(row.p99 for part in settled(rows) for row in part)
    print(
        f"\n{name}, {overload:g} x capacity, seed {seed}: at least {share:.0%} of capacity,"
        f" p99 at most {p99 * 1e3:.0f} ms (at any time {max(row.p99 for row in rows) * 1e3:.0f})"
    )
    assert share >= 0.9
    assert p99 <= 2 * TARGET


@pytest.mark.parametrize("name", ["AIMD", "Gradient2", "Vegas"])
def test_below_capacity_nearly_nobody_is_shed(name: str) -> None:
    service = SimulatedService()
    rows = simulate(MAKES[name](service, 1), service, ((0, 320),), 60)
    late = rows[SETTLED:]
    assert sum(row.shed for row in late) <= 0.01 * sum(row.offered for row in late)
    assert max(row.p99 for row in late) <= TARGET


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("Vegas", lambda: Vegas()),
        ("Gradient2", lambda: Gradient2()),
        ("AIMD", lambda: AIMD(0.5, chance=random.Random(1).random)),
    ],
)
def test_every_run_takes_twice_as_long_for_a_while(
    name: str, make: Callable[[], AdaptiveLimit]
) -> None:
    service = SimulatedService(run_time=SLOWS)
    rows = simulate(make(), service, ((0, 600),), 90)
    assert min(worst_share(part, 600) for part in settled(rows)) >= 0.9


def test_a_target_below_what_the_service_can_do_ends_at_least() -> None:
    """As AIMD's page says: no limit makes a run quicker than it is when alone."""
    service = SimulatedService(run_time=((0, 0.3),))
    strategy = AIMD(TARGET, least=5, chance=random.Random(1).random)
    simulate(strategy, service, ((0, 100),), 30)
    assert strategy.limit == 5


def test_a_processor_is_kept_near_its_target() -> None:
    service = SimulatedService(servers=HALVES)
    rows = simulate(CPUTarget(0.7, reader=service.cpu), service, ((0, 600),), 90)
    for part in settled(rows):
        busy = sum(row.finished for row in part) / sum(row.capacity for row in part)
        assert busy == pytest.approx(0.7, abs=0.05)


def test_the_real_limiter_does_what_the_simulated_door_does() -> None:
    def rows(through_limiter: bool) -> list[Second]:
        service, clock = SimulatedService(servers=HALVES), FakeClock(0)
        strategy = aimd(service, 1)
        admission = SlotAdmission(ConcurrencyLimiter(strategy, clock=clock), clock)
        return simulate(admission if through_limiter else strategy, service, ((0, 600),), 40)

    assert rows(through_limiter=True) == rows(through_limiter=False)


def test_with_a_shrinking_limit_low_priority_goes_first() -> None:
    """320 a second, a quarter of them low: all fit at first, then only 200 a second do."""
    service, clock = SimulatedService(servers=((0, 20), (30, 10))), FakeClock(0)

    def priority(number: int) -> int:
        return (LOW, HIGH, HIGH, 0)[number % 4]

    limiter = ConcurrencyLimiter(aimd(service, 1), shares={LOW: 0.3, 0: 0.6}, clock=clock)
    let_in: dict[str, dict[int, list[bool]]] = {}

    def seen(number: int, came: bool) -> None:
        when = "before" if clock.now() < 30 * 10**9 else "after"
        let_in.setdefault(when, {}).setdefault(priority(number), []).append(came)

    simulate(SlotAdmission(limiter, clock, priority), service, ((0, 320),), 60, seen=seen)
    parts = {
        when: {level: sum(came) / len(came) for level, came in levels.items()}
        for when, levels in let_in.items()
    }
    print(f"\nlet in, by priority: {parts}")
    assert min(parts["before"].values()) > 0.9
    assert parts["after"][HIGH] > 0.9
    assert parts["after"][LOW] < 0.3
    assert parts["after"][LOW] < parts["after"][0] < parts["after"][HIGH]
