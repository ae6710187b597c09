"""AIMD by tables: windows and what the limit is after each."""

from __future__ import annotations

import random

import pytest

from adaptive.traffic import Teller
from penstock.adaptive import AIMD
from penstock.clock import SECOND

FAST, SLOW = 0.1, 0.3
TABLE = [
    # Slow start doubles, the first slow window ends it; then one step a window.
    ({"step": 1}, [FAST, FAST, SLOW, FAST, FAST], [40, 80, 40, 41, 42]),
    ({"step": 5}, [SLOW, FAST, FAST, SLOW], [10, 15, 20, 10]),
    ({}, [SLOW, FAST, FAST], [10, 13, 16]),  # 10 + 3.16 + 3.63
    ({"backoff": 0.9, "step": 1}, [SLOW, SLOW, FAST], [18, 16, 17]),
    ({"most": 50}, [FAST, FAST, FAST], [40, 50, 50]),
    ({"least": 8, "initial": 20}, [SLOW, SLOW, SLOW], [10, 8, 8]),
    ({"step": 1}, [0.2, 0.2001], [40, 20]),  # the target itself is quick enough
    ({"step": 1, "least": 1, "initial": 1}, [SLOW, FAST, FAST], [1, 2, 3]),
]


@pytest.mark.parametrize(("options", "windows", "limits"), TABLE)
def test_table(options: dict[str, int], windows: list[float], limits: list[int]) -> None:
    teller = Teller(AIMD(0.2, **options))
    assert [teller.window(seconds) for seconds in windows] == limits


def test_a_drop_ends_slow_start() -> None:
    teller = Teller(AIMD(0.2, step=1))
    assert teller.drop() == 10
    teller.now += SECOND
    assert teller.window(FAST) == 11


@pytest.mark.parametrize(
    ("quantile", "slow", "limit"), [(0.9, 2, 40), (0.9, 3, 10), (0.99, 0, 40), (0.99, 1, 10)]
)
def test_the_quantile_decides_how_many_may_be_slow(quantile: float, slow: int, limit: int) -> None:
    """Of twenty runs."""
    strategy = AIMD(0.2, quantile=quantile, window=1.9)
    for number in range(20):
        seconds = SLOW if number < slow else FAST
        strategy.record(round(seconds * SECOND), 20, False, (100 + number) * SECOND // 10)
    assert strategy.limit == limit


def test_who_began_before_a_cut_is_not_counted() -> None:
    """The slow ones that are still inside would halve it again and again."""
    teller = Teller(AIMD(0.2, step=1))
    assert teller.window(SLOW) == 10
    for _ in range(100):
        teller.now += SECOND // 100
        teller.strategy.record(2 * SECOND, 20, False, teller.now)
    assert teller.strategy.limit == 10
    teller.now += SECOND
    assert teller.window(FAST) == 11


def test_a_long_window_is_sampled_by_the_given_chance() -> None:
    """Ten thousand runs, one in twenty slow: p90 does not see them, p99 does."""

    def limit(quantile: float, seed: int) -> int:
        strategy = AIMD(0.2, quantile=quantile, chance=random.Random(seed).random, window=10)
        for number in range(10_001):
            seconds = SLOW if number % 20 == 0 else FAST
            strategy.record(round(seconds * SECOND), 20, False, SECOND + number * SECOND // 1_000)
        return strategy.limit

    assert [limit(0.9, seed) for seed in range(5)] == [40] * 5
    assert [limit(0.99, seed) for seed in range(5)] == [10] * 5
