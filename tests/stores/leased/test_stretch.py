"""Leases become longer when there are too many to renew in time."""

from __future__ import annotations

from penstock import Limit
from penstock.durations import MILLISECOND, SECOND
from penstock.stores.leased import law
from penstock.stores.leased.stretch import MOST, Stretch

PERIOD = 500 * MILLISECOND


def worked(stretch: Stretch, now: int, part: float, periods: int = 1) -> int:
    """The thread takes this part of a core; the time afterwards."""
    for _ in range(periods):
        now += PERIOD
        stretch.worked(now, int(part * PERIOD), 0)
    return now


def test_it_grows_while_the_thread_is_busy_and_shrinks_when_it_is_calm() -> None:
    stretch = Stretch(0)
    now = worked(stretch, 0, 0.2, 10)
    assert stretch.factor == 1
    now = worked(stretch, now, 0.5)
    assert stretch.factor == 2
    now = worked(stretch, now, 0.2, 10)  # half of the load is no reason to go back
    assert stretch.factor == 2
    now = worked(stretch, now, 0.05, 3)
    assert stretch.factor == 2
    worked(stretch, now, 0.05)
    assert stretch.factor == 1


def test_it_has_a_bound() -> None:
    stretch = Stretch(0)
    worked(stretch, 0, 1.0, 20)
    assert stretch.factor == MOST


def test_messages_that_wait_for_others_count_as_well() -> None:
    stretch = Stretch(0)
    stretch.worked(PERIOD, 0, PERIOD * 3 // 4)
    assert stretch.factor == 2


def test_terms_are_stretched_as_far_as_limit_and_ttl_allow() -> None:
    horizon = 100 * MILLISECOND

    def stretched(text: str, ttl: int | None, factor: int) -> int:
        terms = law.stretched(Limit.parse(text), horizon, ttl, factor)
        assert terms is not None
        assert terms.cover >= 2 * terms.horizon
        assert terms.ttl >= 4 * terms.horizon
        return terms.horizon // MILLISECOND

    assert stretched("60000/minute", None, 4) == 400
    assert stretched("60000/minute", None, 16) == 1000
    assert stretched("1000/second", None, 4) == 250
    assert stretched("60000/minute", SECOND, 16) == 250
