"""Lockout: after a refusal, nothing for a while."""

from __future__ import annotations

import pytest

THREE = "3/minute lockout 15m"


def test_a_refusal_shuts_the_door_and_hammering_does_not_prolong_it(replay) -> None:
    replay(
        THREE,
        [
            (0.0, 3, True, 0),
            (1.0, 1, False, 900.0),
            (100.0, 1, False, 801.0),
            (500.0, 3, False, 401.0),
            (900.999999999, 1, False, 1e-9),
            (901.0, 1, True, 2),
            (901.0, 2, True, 0),
            (901.0, 1, False, 900.0),
        ],
    )


def test_a_cost_that_can_never_pass_shuts_no_door(replay) -> None:
    replay(THREE, [(0.0, 4, False, None), (0.0, 3, True, 0)])


def test_peek_shuts_no_door(limiter_of, clock) -> None:
    limiter = limiter_of(THREE)
    limiter.hit("k", cost=3)
    assert limiter.peek("k").retry_after == 20.0
    clock.advance(20)
    assert limiter.hit("k")


def test_behind_the_door_the_limit_still_remembers(replay) -> None:
    # The door opens after a minute, but the hour's units are used up.
    replay(
        "3/hour fixed_window align first_hit lockout 1m",
        [
            (0.0, 3, True, 0),
            (10.0, 1, False, 3590.0),
            (70.0, 1, False, 3530.0),
            (3599.0, 1, False, 60.0),  # locked beyond the end of the window
            (3658.0, 1, False, 1.0),
            (3659.0, 1, True, 2),
        ],
    )


@pytest.mark.parametrize(
    "inner",
    [
        "leaky_bucket",
        "fixed_window",
        "fixed_window align first_hit",
        "sliding_window",
        "sliding_log",
        "sliding_log count_rejected",
    ],
)
def test_every_algorithm_can_be_locked(replay, inner: str) -> None:
    replay(
        f"3/minute {inner} lockout 15m",
        [
            (0.0, 3, True, 0),
            (1.0, 1, False, 900.0),
            (61.0, 1, False, 840.0),
            (901.0, 3, True, 0),
        ],
    )


def test_nothing_remains_while_the_door_is_shut(limiter_of, clock) -> None:
    limiter = limiter_of(THREE)
    limiter.hit("k", cost=2)
    refused = limiter.hit("k", cost=2)
    assert (refused.remaining, refused.reset_after, refused.last) == (0, 900.0, False)
    clock.advance(60)
    assert limiter.peek("k").remaining == 0


def test_refund_and_settlement_open_no_door(limiter_of, clock) -> None:
    limiter = limiter_of(THREE)
    reservation = limiter.reserve("k", cost=3)
    assert not limiter.hit("k")
    reservation.cancel()
    limiter.refund("k", 3)
    assert limiter.hit("k").retry_after == 900.0
    clock.advance(900)
    assert limiter.hit("k")


def test_a_settlement_beyond_the_limit_shuts_no_door(limiter_of) -> None:
    limiter = limiter_of(THREE)
    limiter.reserve("k", cost=3).settle(5)
    assert limiter.peek("k").retry_after == 60.0


def test_reset_opens_the_door(limiter_of) -> None:
    limiter = limiter_of(THREE)
    while limiter.hit("k"):
        pass
    limiter.reset("k")
    assert limiter.hit("k").remaining == 2


def test_other_keys_are_not_locked(limiter_of) -> None:
    limiter = limiter_of(THREE)
    while limiter.hit("a"):
        pass
    assert limiter.hit("b")


def test_a_refusal_is_no_overrun(limiter_of) -> None:
    limiter = limiter_of("5/minute soft 2 for 1s lockout 13s")
    seen = [limiter.hit("k") for _ in range(8)]
    assert [d.overrun for d in seen] == [False] * 5 + [True] * 2 + [False]


def test_a_clock_that_steps_back_does_not_prolong_the_lockout(replay) -> None:
    replay(
        THREE,
        [
            (10_000.0, 3, True, 0),
            (10_000.0, 1, False, 900.0),
            (50.0, 1, False, 900.0),
            (949.0, 1, False, 1.0),
            (950.0, 1, True, 2),
        ],
    )
