"""What was used beyond a reservation is booked exactly, near the bound of an overdraft too.

The models are what the algorithms say they are, in exact fractions and without any bound on
memory.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from penstock import Limit, Limiter, MemoryStore
from penstock.testing import FakeClock
from properties.strategies import limits

START = 10**18
Steps = list[tuple[int, str, int]]


class Bucket:
    """Units that are missing, which come back evenly; an overdraft is one full bucket at most."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.missing = Fraction(0)

    def advance(self, nanoseconds: int) -> None:
        back = Fraction(nanoseconds, self.limit.interval_ns)
        self.missing = max(Fraction(0), self.missing - back)

    def fits(self, cost: int) -> bool:
        return self.missing + cost <= self.limit.burst

    def take(self, cost: int) -> None:
        self.missing = min(self.missing + cost, Fraction(2 * self.limit.burst))

    def wait(self, cost: int) -> Fraction:
        return (self.missing + cost - self.limit.burst) * self.limit.interval_ns


class Log:
    """Every unit with its time."""

    def __init__(self, limit: Limit) -> None:
        self.limit, self.now = limit, 0
        self.units: list[tuple[int, int]] = []

    def advance(self, nanoseconds: int) -> None:
        self.now += nanoseconds
        self.units = [(t, n) for t, n in self.units if t + self.limit.period_ns > self.now]

    def fits(self, cost: int) -> bool:
        return sum(n for _, n in self.units) + cost <= self.limit.amount

    def take(self, cost: int) -> None:
        self.units.append((self.now, cost))

    def wait(self, cost: int) -> Fraction:
        over = sum(n for _, n in self.units) + cost - self.limit.amount
        for time, units in self.units:
            over -= units
            if over <= 0:
                return Fraction(time + self.limit.period_ns - self.now)
        raise AssertionError("a cost above the limit")


def play(limit: Limit, model: Any, steps: Steps) -> None:
    clock = FakeClock(START)
    limiter = Limiter(limit, store=MemoryStore(clock=clock))
    counters = limiter.counters(None)
    for step, verb, cost in steps:
        clock.advance_ns(step)
        model.advance(step)
        if verb == "hit" and limiter.hit("k", cost=cost):
            assert model.fits(cost)
            model.take(cost)
        elif verb == "charge":
            counters.charge("k", cost)
            model.take(cost)
        for cost in {1, 2, limit.burst} - set(range(limit.burst + 1, 3)):
            seen = limiter.peek("k", cost=cost)
            assert seen.allowed == model.fits(cost)
            if not seen:
                assert seen._retry == model.wait(cost)


@st.composite
def cases(draw: st.DrawFn, algorithms: tuple[str, ...]) -> tuple[Limit, Steps]:
    limit = draw(limits(algorithms, plain=True))
    unit, period = max(1, limit.interval_ns), limit.period_ns
    passed = st.one_of(st.just(0), st.integers(0, 2 * unit), st.integers(0, 2 * period))
    costs = st.one_of(st.integers(1, 4), st.integers(1, 5 * limit.burst))
    step = st.tuples(passed, st.sampled_from(["hit", "hit", "charge"]), costs)
    return limit, draw(st.lists(step, min_size=1, max_size=25))


@given(cases(("token_bucket", "leaky_bucket")))
@example(
    (
        Limit.parse("100/7s burst 2"),
        [(0, "hit", 1), (16_500_000, "hit", 1), (0, "charge", 2)],
    )
)
def test_a_bucket_books_what_was_used_and_no_nanosecond_more(case: Any) -> None:
    limit, steps = case
    play(limit, Bucket(limit), steps)


@given(cases(("sliding_log",)))
@example((Limit.parse("1/7s sliding_log"), [(0, "charge", 1)] + [(10**9, "charge", 1)] * 3))
@example((Limit.parse("3/7s sliding_log"), [(0, "charge", 12), (10**9, "charge", 3)]))
def test_a_log_books_what_was_used_when_it_was_used(case: Any) -> None:
    limit, steps = case
    play(limit, Log(limit), steps)


def test_a_window_remembers_the_newest_of_what_was_used() -> None:
    clock = FakeClock(START)
    limiter = Limiter("10/10s sliding_window cells 10", store=MemoryStore(clock=clock))
    counters = limiter.counters(None)
    counters.charge("k", 40)
    clock.advance(9.0)
    counters.charge("k", 10)
    clock.advance(2.0)  # the first charge has slid out, the second is 2 s old
    assert limiter.peek("k").remaining == 0
    assert not limiter.hit("k")
