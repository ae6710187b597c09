"""Sliding window: the worked example, the edge burst, and where numbers are huge."""

from __future__ import annotations

import pytest

from penstock import Limit

WORKED = "7/minute sliding_window cells 1"


def test_six_and_a_half_of_seven_rounded_down_lets_one_more_pass(replay) -> None:
    # 5 in the last minute, 3 in this one, 30 % into it: 3 + 5 * 0.7 = 6.5 counts as 6.
    replay(
        f"{WORKED} rounding down",
        [
            (0.0, 5, True, 2),
            (60.0, 2, True, 0),  # 2 + 5 = 7
            (60.0, 1, False, 1e-9),
            (78.0, 1, True, 1),  # 3 + 5 * 0.7 = 6.5
            (78.0, 1, True, 0),  # 7.5, which counts as 7
            (78.0, 1, False, 6.000000001),
            (84.0, 1, False, 1e-9),  # 4 + 5 * 0.6 = 7, to the nanosecond
            (84.000000001, 1, True, 0),
        ],
    )


def test_six_and_a_half_of_seven_rounded_up_refuses_one_more(replay) -> None:
    # One more would be 7.5. The estimate has come down to 6 when 40 % have passed.
    replay(
        f"{WORKED} rounding up",
        [
            (0.0, 5, True, 2),
            (60.0, 1, True, 1),
            (66.0, 1, True, 0),  # 2 + 5 * 0.9 = 6.5
            (72.0, 1, True, 0),  # 3 + 5 * 0.8 = 7
            (78.0, 1, False, 6.0),
            (83.999999999, 1, False, 1e-9),
            (84.0, 1, True, 0),
        ],
    )


@pytest.mark.parametrize("amount", [7, 8, 16, 17])
def test_what_remains_of_a_fraction(limiter_of, clock, amount: int) -> None:
    for rounding, used in (("down", 6), ("up", 7)):
        limiter = limiter_of(f"{amount}/minute sliding_window cells 1 rounding {rounding}")
        limiter.hit("k", cost=5)
        clock.advance(60)
        limiter.hit("k", cost=2)
        clock.advance(18)
        limiter.hit("k", cost=1)
        assert limiter.peek("k").remaining == amount - used
        assert limiter.peek("k", cost=max(1, amount - used)).allowed == (amount > used)
        assert not limiter.peek("k", cost=amount - used + 1)


def test_the_edge_burst_of_a_fixed_window_is_cured(limiter_of, clock) -> None:
    def through(text: str) -> tuple[int, int]:
        limiter = limiter_of(text)
        clock.set(1_700_000_040 * 10**9 + 59 * 10**9)  # a second before a full minute
        first = sum(bool(limiter.hit("k")) for _ in range(150))
        clock.advance(2)
        return first, sum(bool(limiter.hit("k")) for _ in range(150))

    assert through("100/minute fixed_window") == (100, 100)
    assert through("100/minute sliding_window") == (100, 0)
    assert through("100/minute sliding_window cells 1") == (100, 0)
    assert through("100/minute sliding_log") == (100, 0)


@pytest.mark.parametrize("cells", [1, 2, 10, 60])
def test_a_burst_slides_out_within_one_cell(limiter_of, clock, cells: int) -> None:
    """Nothing before a period has passed, then evenly, and all of it one cell later."""
    limiter = limiter_of(f"100/minute sliding_window cells {cells}")
    limiter.hit("k", cost=100)
    clock.advance_ns(60 * 10**9)
    assert limiter.peek("k").remaining == 0
    clock.advance(30 / cells)
    assert limiter.peek("k").remaining == 50
    clock.advance(30 / cells)
    assert limiter.peek("k").remaining == 100
    assert limiter.peek("k").reset_after == 0.0


def test_cells_begin_with_the_first_hit(replay) -> None:
    # Two cells of 30 s from second 7 on: what was hit at 20 and 40 leaves one after the other.
    replay(
        "6/minute sliding_window cells 2 rounding up",
        [
            (7.0, 1, True, 5),
            (20.0, 3, True, 2),
            (40.0, 2, True, 0),
            (67.0, 1, False, 7.5),  # four slide out from 67 to 97
            (74.5, 1, True, 0),
            (97.0, 3, True, 0),  # two and one remain
            (97.0, 1, False, 15.0),  # two slide out from 97 to 127
        ],
    )


def test_costs_and_the_last_unit(limiter_of) -> None:
    limiter = limiter_of("5/minute sliding_window")
    seen = [limiter.hit("k", cost=cost) for cost in (4, 2, 1, 6)]
    assert [(bool(d), d.remaining, d.last) for d in seen] == [
        (True, 1, False),
        (False, 1, False),
        (True, 0, True),
        (False, 0, False),
    ]
    assert seen[3].retry_after is None


def test_a_reservation_is_given_back_in_its_own_cell(limiter_of, clock) -> None:
    limiter = limiter_of("10/minute sliding_window cells 2")
    early = limiter.reserve("k", cost=4)
    clock.advance(30)
    limiter.hit("k", cost=4)
    early.settle(1)
    assert limiter.peek("k").remaining == 5
    clock.advance(60)  # only the later four are left
    assert limiter.peek("k").remaining == 6
    early = limiter.reserve("k", cost=2)
    clock.advance(120)
    limiter.hit("k", cost=9)
    early.cancel()
    assert limiter.peek("k").remaining == 1


def test_refund_comes_from_the_newest_cells(limiter_of, clock) -> None:
    limiter = limiter_of("10/minute sliding_window cells 2")
    limiter.hit("k", cost=4)
    clock.advance(30)
    limiter.hit("k", cost=3)
    limiter.refund("k", 5)
    assert limiter.peek("k").remaining == 8
    clock.advance(45)  # half of the first cell's two have slid out
    assert limiter.peek("k").remaining == 9


@pytest.mark.parametrize("known", [True, False])
def test_refund_from_the_cell_that_is_sliding_out(limiter_of, clock, known: bool) -> None:
    limiter = limiter_of("10/minute sliding_window cells 1")
    reservation = limiter.reserve("k", cost=4)
    clock.advance(90)
    assert limiter.peek("k").remaining == 8  # half of the four
    if known:
        reservation.settle(2)
    else:
        limiter.refund("k", 2)
    assert limiter.peek("k").remaining == 9


def test_settling_for_more_is_counted_now(limiter_of, clock) -> None:
    limiter = limiter_of("10/minute sliding_window cells 2 rounding up")
    limiter.reserve("k", cost=1).settle(15)
    assert limiter.peek("k").remaining == 0
    # Fifteen slide out from 60 to 90: nine are left at 72.
    assert limiter.peek("k").retry_after == 72.0
    clock.advance(72)
    assert limiter.hit("k")


@pytest.mark.parametrize(
    "limit",
    [
        Limit(10**12, "year", algorithm="sliding_window", cells=1),
        Limit(10**12, "year", algorithm="sliding_window", cells=1, rounding="up"),
        Limit(10**12, 10 * 365 * 86_400, algorithm="sliding_window", cells=1),
        Limit(10**12, "day", algorithm="sliding_window"),
        Limit(2**31 - 1, "day", algorithm="sliding_window"),
        Limit(2**31, "hour", algorithm="sliding_window", cells=7, rounding="up"),
        Limit(999_999_999_999, "90d", algorithm="sliding_window", cells=7),
    ],
    ids=str,
)
def test_huge_amounts_over_long_periods_stay_exact(limiter_of, clock, limit: Limit) -> None:
    """Weights do not fit 64 bits there and are counted in ticks of several nanoseconds."""
    limiter = limiter_of(limit)
    amount = limit.amount
    assert limiter.hit("k", cost=amount - 1).remaining == 1
    assert limiter.hit("k").last
    for cost in (1, amount // 3, amount):
        refused = limiter.hit("k", cost=cost)
        assert refused.retry_after is not None
        assert refused.retry_after >= limit.period_ns / 1e9
        at = clock.now()
        # Seconds as a float are too coarse for ten years: look for the nanosecond.
        low, high = at, at + round(refused.retry_after * 1e9) + 10**6
        while high - low > 1:
            clock.set((low + high) // 2)
            if limiter.peek("k", cost=cost):
                high = clock.now()
            else:
                low = clock.now()
        assert (high - at) / 1e9 == refused.retry_after
        clock.set(at)
    over = limiter.peek("k").reset_after
    assert over == pytest.approx((1 + 1 / limit.cells) * limit.period_ns / 1e9, rel=1e-5)
    clock.advance(over + 1e-3)
    assert limiter.hit("k", cost=amount).remaining == 0


def test_a_refused_hit_does_not_put_off_the_reset(limiter_of, clock) -> None:
    limiter = limiter_of("10/minute sliding_window")
    limiter.hit("k", cost=10)
    clock.advance(55)
    quiet = limiter.peek("k").reset_after
    assert limiter.hit("k").reset_after == quiet == 11.0
    clock.advance(11)
    assert (limiter.peek("k").remaining, limiter.peek("k").reset_after) == (10, 0.0)


def test_a_clock_that_steps_back_earns_nothing_and_heals(replay) -> None:
    replay(
        f"{WORKED} rounding up",
        [
            (100_000.0, 7, True, 0),
            (50.0, 1, False, pytest.approx(60 + 60 / 7)),
            (50.0 + 60, 1, False, pytest.approx(60 / 7)),
            (50.0 + 60 + 9, 1, True, 0),
        ],
    )
