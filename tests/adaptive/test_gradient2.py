"""Gradient2 by tables."""

from __future__ import annotations

import pytest

from adaptive.traffic import Teller
from penstock.adaptive import Gradient2
from penstock.clock import SECOND


def settled(initial: int = 100) -> Teller:
    """Its long-term average is a tenth of a second; growth by 0.2 * 4 a window."""
    teller = Teller(Gradient2(initial=initial))
    for _ in range(50):
        teller.window(0.1, running=1)
    assert teller.strategy.limit == initial, "not used, so it did not grow"
    return teller


TABLE = [
    (0.1, 100.8),  # as always: 80 + 0.2 * (100 + 4)
    (0.14, 100.8),  # within the tolerance
    (0.2, 96.09),  # gradient 1.5 * 0.10196 / 0.2 = 0.765: 80 + 0.2 * (76.5 + 4)
    (0.4, 90.8),  # never steeper than 0.5: 80 + 0.2 * (50 + 4)
    (4.0, 90.8),
]


@pytest.mark.parametrize(("seconds", "size"), TABLE)
def test_one_window(seconds: float, size: float) -> None:
    teller = settled()
    teller.window(seconds)
    assert teller.strategy._size == pytest.approx(size, abs=0.02)  # type: ignore[attr-defined]


def test_a_drop_is_as_bad_as_it_gets() -> None:
    teller = settled()
    teller.drop()
    assert teller.strategy.limit == 90


def test_a_long_average_that_is_far_too_high_comes_down_quickly() -> None:
    teller = settled()
    for _ in range(30):
        teller.window(0.02, running=1)
    now_slow = teller.strategy._long / SECOND  # type: ignore[attr-defined]
    assert now_slow < 0.06, "the average alone would be 0.07"


def test_under_an_overload_that_lasts_it_creeps_up() -> None:
    """The blind spot that its page tells of: what lasts becomes normal."""
    teller = settled()
    for _ in range(400):
        teller.window(0.2)
        teller.now += SECOND
    assert teller.strategy.limit > 150


def test_most_bounds_that() -> None:
    teller = Teller(Gradient2(most=30))
    assert max(teller.window(0.1) for _ in range(100)) == 30
