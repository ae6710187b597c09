"""Token bucket: the GCRA table, and its regimes: debt, charge, refund, warm-up."""

from __future__ import annotations

import pytest

FIVE = "5/5s"  # burst 5, one a second
TEN = "10/10s"  # burst 10, one a second


def test_five_at_once_then_one_a_second(replay) -> None:
    replay(
        FIVE,
        [
            (0.0, 1, True, 4),
            (0.0, 1, True, 3),
            (0.0, 1, True, 2),
            (0.0, 1, True, 1),
            (0.0, 1, True, 0),
            (0.0, 1, False, 1.0),
            (0.25, 1, False, 0.75),
            (0.999999999, 1, False, 1e-9),
            (1.0, 1, True, 0),
            (1.0, 1, False, 1.0),
            (3.5, 1, True, 1),
            (3.5, 1, True, 0),
            (3.5, 1, False, 0.5),
            (4.0, 1, True, 0),
        ],
    )


def test_a_cost_takes_so_many_or_nothing(replay) -> None:
    replay(
        FIVE,
        [
            (0.0, 3, True, 2),
            (0.0, 3, False, 1.0),
            (0.0, 2, True, 0),
            (0.0, 5, False, 5.0),
            (2.5, 2, True, 0),
            (2.5, 1, False, 0.5),
            (2.5, 6, False, None),
            (6.999999999, 5, False, 1e-9),
            (7.0, 5, True, 0),
        ],
    )


def test_an_idle_bucket_does_not_overflow(replay) -> None:
    replay(FIVE, [(0.0, 5, True, 0), (86_400.0, 5, True, 0), (86_400.0, 1, False, 1.0)])


def test_the_burst_is_apart_from_the_rate(replay) -> None:
    replay("1/second burst 3", [(0.0, 3, True, 0), (1.0, 2, False, 1.0), (2.0, 2, True, 0)])
    replay("10/second burst 1", [(0.0, 1, True, 0), (0.05, 1, False, 0.05), (0.1, 1, True, 0)])


def test_a_rate_that_does_not_divide_is_never_exceeded(replay) -> None:
    # A third of a second is rounded up to the next nanosecond.
    replay(
        "3/second burst 1",
        [
            (0.0, 1, True, 0),
            (0.333333333, 1, False, 1e-9),
            (0.333333334, 1, True, 0),
            (0.666666667, 1, False, 1e-9),
            (0.666666668, 1, True, 0),
        ],
    )


def test_what_a_decision_says_besides(limiter_of, clock) -> None:
    limiter = limiter_of(FIVE)
    first = limiter.hit("k", cost=4)
    assert (first.reset_after, first.retry_after, first.last, first.delay) == (4.0, 0.0, False, 0.0)
    clock.advance(0.5)
    last = limiter.hit("k")
    assert (last.reset_after, last.remaining, last.last) == (4.5, 0, True)
    refused = limiter.hit("k")
    assert (refused.reset_after, refused.retry_after, refused.last) == (4.5, 0.5, False)
    assert limiter.peek("k").reset_after == 4.5


def test_debt_lets_one_hit_take_more_than_there_is(replay) -> None:
    replay(
        "5/5s debt 3",
        [
            (0.0, 9, False, None),  # above burst and debt
            (0.0, 4, True, 1),
            (0.0, 4, True, 0),  # finds one, borrows three
            (0.0, 1, False, 4.0),  # three to pay back, and then one to be there
            (3.0, 1, False, 1.0),
            (4.0, 5, False, 1.0),  # needs two of its five
            (4.0, 4, True, 0),
            (7.0, 8, False, 5.0),  # five of its eight
            (12.0, 8, True, 0),
        ],
    )


def test_debt_does_not_raise_the_rate(limiter_of, clock) -> None:
    limiter = limiter_of("5/5s debt 3")
    taken = 0
    for _ in range(100):
        taken += 4 if limiter.hit("k", cost=4) else 0
        clock.advance(1)
    assert taken <= 5 + 3 + 99
    assert taken >= 100


def test_settling_for_more_overdraws(limiter_of, clock) -> None:
    limiter = limiter_of(TEN)
    limiter.reserve("k", cost=4).settle(13)
    refused = limiter.hit("k")
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, 0, 4.0)
    clock.advance(4)
    assert limiter.hit("k")


def test_an_overdraft_is_one_full_bucket_at_most(limiter_of, clock) -> None:
    limiter = limiter_of(TEN)
    limiter.reserve("k", cost=1).settle(10**15)
    assert limiter.peek("k").retry_after == 11.0
    clock.advance(11)
    assert limiter.hit("k")


def test_a_settled_reservation_gives_back_the_rest(limiter_of) -> None:
    limiter = limiter_of(TEN)
    limiter.reserve("k", cost=8).settle(3)
    assert limiter.peek("k").remaining == 7


def test_what_has_refilled_is_not_given_back_again(limiter_of, clock) -> None:
    limiter = limiter_of(TEN)
    reservation = limiter.reserve("k", cost=5)
    clock.advance(10)
    assert limiter.hit("k", cost=10).remaining == 0
    reservation.settle(0)
    assert limiter.peek("k").remaining == 0


@pytest.mark.parametrize(
    ("used", "later", "remaining"),
    [
        (0, 0.0, 10),
        (0, 3.0, 10),
        (2, 0.0, 8),
        (2, 1.0, 9),
        (2, 3.0, 10),  # as if two had been hit: full after two seconds
        (4, 3.0, 9),
        (5, 3.0, 8),
        (5, 9.0, 10),
    ],
)
def test_settling_late_is_as_good_as_having_hit_that_much(
    limiter_of, clock, used: int, later: float, remaining: int
) -> None:
    limiter = limiter_of(TEN)
    reservation = limiter.reserve("k", cost=5)
    clock.advance(later)
    reservation.settle(used)
    assert limiter.peek("k").remaining == remaining


def test_settling_for_nothing_while_others_take(limiter_of, clock) -> None:
    limiter = limiter_of(TEN)
    limiter.hit("k", cost=2)
    reservation = limiter.reserve("k", cost=5)
    clock.advance(1)
    limiter.hit("k", cost=3)
    assert limiter.peek("k").remaining == 1
    reservation.cancel()
    assert limiter.peek("k").remaining == 6


def test_refund_stops_at_full(limiter_of) -> None:
    limiter = limiter_of(FIVE)
    limiter.hit("k", cost=2)
    limiter.refund("k", 4)
    assert limiter.peek("k").remaining == 5
    assert not limiter.hit("k", cost=5).retry_after
    assert not limiter.hit("k")


def test_warm_up_starts_at_a_third_of_the_rate(replay) -> None:
    # Ten a second and thirty at once when warm; a third of both when cold.
    replay(
        "30/3s warm_up 1m",
        [
            (0.0, 10, True, 0),
            (0.0, 1, False, pytest.approx(0.3, rel=0.02)),
            (60.0, 30, True, 0),
            (60.0, 1, False, 0.1),
            (63.0, 30, True, 0),
        ],
    )


def test_warm_up_ramps_evenly(limiter_of, clock) -> None:
    """What fits at once: from a third of the burst to all of it."""
    limiter = limiter_of("1000/second warm_up 1m")
    seen = []
    for _ in range(5):
        seen.append(limiter.peek("k").remaining)
        clock.advance(15)
    assert seen == [333, 500, 666, 833, 1000]


def test_warming_up_retry_after_is_exact(limiter_of, clock) -> None:
    limiter = limiter_of("7/second warm_up 10s")
    for cost in (1, 2, 5, 7):
        while limiter.hit("k"):
            pass
        refused = limiter.hit("k", cost=cost)
        assert refused.retry_after is not None
        clock.advance_ns(round(refused.retry_after * 1e9) - 1)
        assert not limiter.peek("k", cost=cost)
        clock.advance_ns(1)
        assert limiter.hit("k", cost=cost)


def test_a_clock_that_steps_back_earns_nothing_and_heals(replay) -> None:
    replay(
        FIVE,
        [
            (100.0, 5, True, 0),
            (50.0, 1, False, 6.0),  # the worst an overdraft could have left
            (50.0, 1, False, 6.0),
            (56.0, 1, True, 0),
        ],
    )
