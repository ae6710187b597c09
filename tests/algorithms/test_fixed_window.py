"""Fixed window: aligned to the epoch, or beginning with a key's first hit."""

from __future__ import annotations

from penstock.algorithms.calendar import epoch_window

MINUTE = 60 * 10**9
FIRST_HIT = "3/minute fixed_window align first_hit"


def test_epoch_windows_end_on_the_minute(replay, clock) -> None:
    clock.set(1_700_000_040 * 10**9)  # a full minute
    replay(
        "3/minute fixed_window",
        [
            (10.0, 2, True, 1),
            (10.0, 2, False, 50.0),
            (20.0, 1, True, 0),
            (59.999999999, 1, False, 1e-9),
            (60.0, 1, True, 2),
            (61.0, 3, False, 59.0),
            (185.0, 3, True, 0),
            (185.0, 4, False, None),
        ],
    )


def test_epoch_windows_of_all_keys_end_together(limiter_of, clock) -> None:
    limiter = limiter_of("1/hour fixed_window")
    for key in ("a", "b"):
        clock.advance(600)
        limiter.hit(key)
    assert [limiter.hit(key).retry_after for key in ("a", "b")] == [2400.0, 2400.0]


def test_windows_begin_with_the_first_hit(replay, limiter_of, clock) -> None:
    replay(
        FIRST_HIT,
        [
            (10.0, 1, True, 2),
            (50.0, 2, True, 0),
            (69.999999999, 1, False, 1e-9),
            (70.0, 1, True, 2),
            (135.0, 3, True, 0),  # the window from 70 to 130 is over, this one begins here
            (140.0, 1, False, 55.0),
        ],
    )
    limiter = limiter_of(FIRST_HIT)
    limiter.hit("a")
    clock.advance(10)
    assert [limiter.hit(key).reset_after for key in ("a", "b")] == [50.0, 60.0]


def test_a_refused_hit_begins_no_window(limiter_of, clock) -> None:
    limiter = limiter_of(FIRST_HIT)
    assert not limiter.hit("k", cost=4)
    clock.advance(30)
    assert limiter.hit("k").reset_after == 60.0


def test_last_is_the_hit_that_takes_the_last_unit(limiter_of) -> None:
    limiter = limiter_of("3/minute fixed_window")
    seen = [limiter.hit("k", cost=cost) for cost in (1, 3, 2, 1)]
    assert [(d.allowed, d.last) for d in seen] == [
        (True, False),
        (False, False),
        (True, True),
        (False, False),
    ]


def test_an_untouched_key_has_nothing_to_reset(limiter_of) -> None:
    limiter = limiter_of("3/minute fixed_window")
    assert limiter.peek("k").reset_after == 0.0
    limiter.hit("k", cost=2)
    assert limiter.peek("k").reset_after == 60.0


def test_a_reservation_is_given_back_in_its_own_window(limiter_of, clock) -> None:
    limiter = limiter_of("10/minute fixed_window")
    early, late = limiter.reserve("k", cost=4), limiter.reserve("k", cost=4)
    early.settle(1)
    assert limiter.peek("k").remaining == 5
    clock.advance(60)
    limiter.hit("k", cost=9)
    late.settle(0)
    assert limiter.peek("k").remaining == 1


def test_settling_for_more_counts_in_the_window_of_the_settlement(limiter_of, clock) -> None:
    limiter = limiter_of("10/minute fixed_window")
    reservation = limiter.reserve("k", cost=1)
    clock.advance(60)
    reservation.settle(12)
    refused = limiter.hit("k")
    assert (refused.remaining, refused.retry_after) == (0, 60.0)
    clock.advance(60)
    assert limiter.hit("k").remaining == 9


def test_refund_without_a_reservation_is_taken_from_the_open_window(limiter_of, clock) -> None:
    limiter = limiter_of("3/minute fixed_window")
    limiter.hit("k", cost=3)
    limiter.refund("k", 2)
    assert limiter.peek("k").remaining == 2
    clock.advance(60)
    limiter.refund("k", 2)
    assert limiter.hit("k").remaining == 2


def test_stepping_back_over_an_edge_earns_nothing(replay, clock) -> None:
    clock.set(1_700_000_040 * 10**9)
    replay(
        "3/minute fixed_window",
        [
            (59.0, 3, True, 0),
            (60.0, 3, True, 0),
            (59.0, 1, False, 61.0),
            (60.0, 1, False, 60.0),
            (120.0, 3, True, 0),
        ],
    )


def test_a_large_step_back_heals_within_two_windows(replay, clock) -> None:
    clock.set(1_700_000_040 * 10**9)
    replay(
        "3/minute fixed_window",
        [(6000.0, 3, True, 0), (5.0, 1, False, 115.0), (119.0, 1, False, 1.0), (120.0, 1, True, 2)],
    )
    replay(FIRST_HIT, [(6000.0, 3, True, 0), (5.0, 1, False, 60.0), (65.0, 1, True, 2)])


def test_epoch_windows_tile_time() -> None:
    for now in (0, 1, MINUTE - 1, MINUTE, 28_333_334 * MINUTE + 5):
        start, end, after = epoch_window(now, MINUTE)
        assert start <= now < end
        assert (start % MINUTE, end - start, after - end) == (0, MINUTE, MINUTE)


def test_the_edge_of_two_windows_lets_twice_the_amount_through(limiter_of, clock) -> None:
    """The known weakness, stated: `sliding_window` cures it."""
    limiter = limiter_of("100/minute fixed_window")
    clock.advance(59)
    first = sum(bool(limiter.hit("k")) for _ in range(150))
    clock.advance(1)
    second = sum(bool(limiter.hit("k")) for _ in range(150))
    assert (first, second) == (100, 100)
