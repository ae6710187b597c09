"""The sample of a window: fair, bounded, repeatable."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adaptive.reservoir import Reservoir

QUANTILES = [
    ([7], 0.5, 7),
    ([7], 0.99, 7),
    ([3, 1, 2], 0.5, 2),
    (range(1, 11), 0.9, 9),
    (range(1, 11), 0.91, 10),
    (range(1, 101), 0.99, 99),
    (range(1, 101), 0.07, 7),
    (range(1, 101), 0.999, 100),
    ([5, 5, 5, 100], 0.75, 5),
    ([1, 2], 0.01, 1),
]


@pytest.mark.parametrize(("values", "part", "quantile"), QUANTILES)
def test_quantiles(values: list[int], part: float, quantile: int) -> None:
    reservoir = Reservoir(1000, random.random)
    for value in values:
        reservoir.add(value)
    assert reservoir.quantile(part) == quantile


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_a_quantile_is_a_value_that_so_many_do_not_exceed(values: list[int], part: float) -> None:
    reservoir = Reservoir(60, random.random)
    for value in values:
        reservoir.add(value)
    quantile = reservoir.quantile(part)
    assert sum(value <= quantile for value in values) >= part * len(values) - 1e-6
    assert sum(value < quantile for value in values) < part * len(values)


def test_every_value_is_as_likely_to_be_kept_as_any_other() -> None:
    chance = random.Random(5).random
    kept = [0] * 40
    for _ in range(4_000):
        reservoir = Reservoir(10, chance)
        for value in range(40):
            reservoir.add(value)
        assert reservoir.seen == 40
        for value in reservoir._kept:
            kept[value] += 1
    # A quarter of 4 000 each; six standard deviations are 164.
    assert all(abs(count - 1_000) < 164 for count in kept), kept


def test_it_is_bounded_and_starts_over() -> None:
    reservoir = Reservoir(8, random.Random(1).random)
    for value in range(1_000):
        reservoir.add(value)
    assert len(reservoir._kept) == 8
    reservoir.clear()
    reservoir.add(3)
    assert (reservoir.seen, reservoir.quantile(0.99)) == (1, 3)
