"""AdaptiveRate: one limit that never changes, and a price that does."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive.traffic import RateAdmission
from penstock import AsyncLimiter, Limit, Limiter, MemoryStore
from penstock.adaptive import AIMD, AdaptiveRate, CPUTarget, Gradient2, Vegas
from penstock.clock import SECOND
from penstock.errors import LimitError
from penstock.testing import FakeClock
from penstock.testing.load_simulation import SimulatedService, simulate

UNITS = [
    ("1000/second", "1000000/second"),
    ("7/minute", "7000/minute"),
    ("1000/second burst 50", "1000000/second burst 50000"),
    ("100/hour leaky_bucket burst 20", "100000/hour leaky_bucket burst 20000"),
    ("100/hour debt 5", "100000/hour debt 5000"),
    ("100/hour soft 20 for 10m", "100000/hour soft 20000 for 10m"),
    ("100/hour sliding_window cells 4", "100000/hour sliding_window cells 4"),
    ("100/day fixed_window tz UTC lockout 5m", "100000/day fixed_window tz UTC lockout 5m"),
]


@pytest.mark.parametrize(("most", "fine"), UNITS)
def test_a_request_is_a_thousand_units(most: str, fine: str) -> None:
    rate = AdaptiveRate(most, AIMD(0.2, least=20 if "burst 50" in most else 5))
    assert rate.limit == Limit.parse(fine)
    assert (rate.cost, rate.current) == (1_000, Limit.parse(most).amount)


@given(
    amount=st.integers(1, 10**6), per=st.sampled_from(["second", "minute", "hour"]),
    size=st.floats(0.0, 1.0),
)  # fmt: skip
def test_a_price_is_never_below_that_of_the_full_rate(amount: int, per: str, size: float) -> None:
    whole = Limit(amount, per)
    current = max(1, round(amount * size))
    rate = AdaptiveRate(whole, AIMD(0.2, initial=current, most=10**6))
    assert rate.current == current
    units = rate.limit.amount // amount
    assert units >= 1
    assert rate.cost >= units * amount / current
    assert rate.cost <= rate.limit.burst, "or nothing would ever be allowed"
    lost = rate.limit.interval_ns * rate.limit.amount / (whole.interval_ns * amount)
    assert lost <= 1.001 or units == 1


@pytest.mark.parametrize("current", [1_000, 500, 333, 100, 10, 1])
def test_so_many_pass_in_a_period(current: int) -> None:
    clock = FakeClock(0)
    limiter = Limiter(store=MemoryStore(clock=clock))
    rate = AdaptiveRate("1000/second", AIMD(0.2, initial=current), clock=clock)
    while limiter.hit("all", rate.limit, cost=rate.cost):
        pass  # the burst
    passed = 0
    for _ in range(10_000):
        clock.advance_ns(SECOND // 1_000)
        passed += limiter.hit("all", rate.limit, cost=rate.cost).allowed
    assert 0.99 * 10 * current - 1 <= passed <= 10 * current


def test_what_remains_can_be_read_in_requests() -> None:
    limiter = Limiter(store=MemoryStore(clock=FakeClock()))
    rate = AdaptiveRate("100/minute", AIMD(0.2, initial=25))
    decision = limiter.hit("k", rate.limit, cost=rate.cost)
    assert (rate.cost, decision.remaining, rate.requests(decision)) == (4_000, 96_000, 24)


def test_it_follows_what_it_is_told() -> None:
    clock = FakeClock()
    rate = AdaptiveRate("1000/second", AIMD(0.2, step=10), clock=clock)

    def a_second(seconds: float) -> int:
        for _ in range(500):
            clock.advance_ns(2 * SECOND // 1_000)
            rate.record(seconds)
        return rate.current

    assert [a_second(0.1), a_second(0.1)] == [1_000, 1_000], "never above its most"
    assert a_second(0.4) in (250, 500)
    slow = rate.current
    clock.advance(1)
    assert a_second(0.1) > slow
    before = rate.current
    clock.advance(5)
    rate.record(0.1, dropped=True)
    assert rate.current == before // 2
    assert repr(rate) == f"<AdaptiveRate: {rate.current} of 1000/second>"


def test_a_rate_that_is_not_used_does_not_grow() -> None:
    clock = FakeClock()
    rate = AdaptiveRate("1000/second", AIMD(0.2, initial=100), clock=clock)
    for _ in range(400):
        clock.advance(0.025)  # 40 a second
        rate.record(0.01)
    assert rate.current == 100
    for _ in range(400):
        clock.advance(0.0125)  # 80 a second
        rate.record(0.01)
    assert rate.current > 100


async def test_an_async_limiter_takes_it_as_well() -> None:
    rate = AdaptiveRate("10/second", CPUTarget(reader=lambda: 0.5, initial=5))
    limiter = AsyncLimiter(store=MemoryStore(clock=FakeClock()))
    allowed = [bool(await limiter.hit("k", rate.limit, cost=rate.cost)) for _ in range(7)]
    assert allowed == [True] * 5 + [False] * 2


def test_threads_may_record_at_once() -> None:
    rate = AdaptiveRate("1000/second", AIMD(0.2, least=10))
    threads = [
        threading.Thread(target=lambda: [rate.record(0.5) for _ in range(2_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 10 <= rate.current <= 1_000


WRONG: list[tuple[Any, Any, type[Exception], str]] = [
    ("ten a second", AIMD(0.2), LimitError, "does not start with a number"),
    (7, AIMD(0.2), LimitError, "7 does not say per what time"),
    ("10/second", 5, TypeError, "a strategy is an AdaptiveLimit"),
    ("10/second", Vegas(), LimitError, "Vegas reckons with how many run at once"),
    ("10/second", Gradient2(), LimitError, "take AIMD or CPUTarget"),
    ("10/second", AIMD(0.2, least=20), LimitError, "least 20 is above 10/second"),
    ("100/second burst 10", AIMD(0.2), LimitError, "give the strategy least=10"),
    ("10/second sliding_log", AIMD(0.2), LimitError, "a timestamp for each small unit"),
    ("10/second warm_up 5s", AIMD(0.2), LimitError, "warm_up changes the price, too"),
]


@pytest.mark.parametrize(("most", "strategy", "kind", "message"), WRONG)
def test_wrong_arguments_are_errors(
    most: Any, strategy: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        AdaptiveRate(most, strategy)


def test_wrong_records_and_clocks_are_errors() -> None:
    with pytest.raises(TypeError, match="a clock has now"):
        AdaptiveRate("10/second", AIMD(0.2), clock=7)  # type: ignore[arg-type]
    rate = AdaptiveRate("10/second", AIMD(0.2))
    for wrong in (-1, float("nan"), True, "0.1"):
        with pytest.raises(ValueError, match="seconds is a number of at least 0"):
            rate.record(wrong)  # type: ignore[arg-type]


def test_on_a_service_it_keeps_response_times_where_a_fixed_rate_does_not() -> None:
    """A rate bounds no queue: it is cut to half each time, and keeps about 70 % busy."""

    def worst_and_busy(rate: AdaptiveRate, clock: FakeClock) -> tuple[float, float]:
        service = SimulatedService(servers=((0, 20), (30, 10), (60, 20)))
        rows = simulate(RateAdmission(rate, clock), service, ((0, 600),), 90)
        calm = [row for row in rows if row.at % 30 >= 10]
        busy = sum(row.finished for row in calm) / sum(row.capacity for row in calm)
        return max(row.p99 for row in calm), busy

    clock = FakeClock(0)
    aimd = AIMD(0.2, least=20, chance=random.Random(1).random)
    adaptive = AdaptiveRate("1000/second burst 50", aimd, clock=clock)
    worst, busy = worst_and_busy(adaptive, clock)
    print(f"\nadaptive rate: p99 at most {worst:.2f} s, {busy:.0%} of capacity")
    assert worst < 0.4
    assert busy > 0.6
    clock = FakeClock(0)
    fixed = AdaptiveRate("1000/second burst 50", AIMD(60, least=1000), clock=clock)
    assert worst_and_busy(fixed, clock)[0] > 10
