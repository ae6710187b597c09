"""Sliding log: exact in every interval, at the price of remembering every hit."""

from __future__ import annotations

import random

import pytest

THREE = "3/10s sliding_log"


def test_a_hit_counts_for_exactly_one_period(replay) -> None:
    replay(
        THREE,
        [
            (0.0, 1, True, 2),
            (3.0, 1, True, 1),
            (4.0, 1, True, 0),
            (5.0, 1, False, 5.0),
            (9.999999999, 1, False, 1e-9),
            (10.0, 1, True, 0),
            (10.0, 2, False, 4.0),  # when those of 3 and 4 have left
            (13.0, 1, True, 0),
            (23.0, 3, True, 0),
            (23.0, 4, False, None),
        ],
    )


def test_refused_hits_are_forgotten(replay) -> None:
    replay(THREE, [(0.0, 3, True, 0), *[(t, 1, False, 10.0 - t) for t in range(1, 10)]])
    replay(THREE, [(0.0, 3, True, 0), (9.0, 3, False, 1.0), (10.0, 3, True, 0)])


def test_count_rejected_keeps_the_door_shut_while_it_is_hammered(replay) -> None:
    replay(
        THREE + " count_rejected",
        [
            (0.0, 1, True, 2),
            (0.0, 2, True, 0),
            (5.0, 1, False, 5.0),  # two of the first three still count, and this one
            (6.0, 1, False, 4.0),
            (7.0, 1, False, 8.0),  # now all three that count are refused ones
            (12.0, 2, False, 10.0),
            (16.0, 1, False, 6.0),
            (22.0, 1, True, 1),  # only the refusal at 16 is left
        ],
    )


def test_count_rejected_forgives_after_a_quiet_period(replay) -> None:
    replay(
        THREE + " count_rejected",
        [
            (0.0, 3, True, 0),
            (1.0, 3, False, 10.0),
            (1.0, 5, False, None),  # could never pass: not even counted
            (11.0, 3, True, 0),
        ],
    )


def test_peeking_is_not_counted_as_rejected(limiter_of, clock) -> None:
    limiter = limiter_of(THREE + " count_rejected")
    limiter.hit("k", cost=3)
    for _ in range(10):
        clock.advance(0.9)
        assert not limiter.peek("k")
    clock.advance(1)
    assert limiter.hit("k")


def test_agrees_with_a_plain_list_of_hits(limiter_of, clock) -> None:
    choose = random.Random(7)
    limiter, period, amount = limiter_of("50/second sliding_log"), 10**9, 50
    log: list[tuple[int, int]] = []
    for _ in range(20_000):
        clock.advance_ns(choose.choice([0, 1, 1000, 10**6, 10**7, 10**8]))
        now, cost = clock.now(), choose.choice([1, 1, 1, 2, 7])
        log = [(when, units) for when, units in log if when + period > now]
        used = sum(units for _, units in log)
        decision = limiter.hit("k", cost=cost)
        assert bool(decision) == (used + cost <= amount)
        if decision:
            log.append((now, cost))
            used += cost
            assert decision.reset_after == 1.0
        assert decision.remaining == amount - used


def test_a_log_grows_to_thousands_of_hits(limiter_of, clock) -> None:
    limiter = limiter_of("5000/minute sliding_log")
    for left in range(4999, -1, -1):
        clock.advance_ns(10**6)
        assert limiter.hit("k").remaining == left
    refused = limiter.hit("k", cost=2500)
    assert not refused
    assert refused.retry_after == pytest.approx(60 - 4.999 + 2.499)
    clock.advance(55.001)  # the first hit leaves, then one every millisecond
    for _ in range(5000):
        assert limiter.hit("k")
        assert not limiter.hit("k")
        clock.advance_ns(10**6)


def test_hits_of_one_instant_share_their_place(limiter_of) -> None:
    limiter = limiter_of("100000/hour sliding_log")
    seen = [limiter.hit("k", cost=cost).remaining for cost in (1, 99_998, 1)]
    assert seen == [99_999, 1, 0]


def test_a_reservation_is_given_back_in_the_middle(limiter_of, clock) -> None:
    limiter = limiter_of("10/10s sliding_log")
    limiter.hit("k", cost=2)  # at 0
    clock.advance(1)
    middle = limiter.reserve("k", cost=3)  # at 1
    clock.advance(1)
    limiter.hit("k", cost=4)  # at 2
    clock.advance(1)
    middle.settle(1)
    assert limiter.peek("k").remaining == 3
    clock.advance(7)  # at 10: the first two have left
    assert limiter.peek("k").remaining == 5
    clock.advance(1)  # at 11: and what is left of the reservation
    assert limiter.peek("k").remaining == 6
    assert limiter.peek("k").reset_after == 1.0


@pytest.mark.parametrize("gone", range(6))
def test_any_one_of_many_hits_can_be_cancelled(limiter_of, clock, gone: int) -> None:
    limiter = limiter_of("6/10s sliding_log")
    made = []
    for _ in range(6):
        made.append(limiter.reserve("k"))
        clock.advance(1)
    made[gone].cancel()
    seen = []
    for _ in range(7):
        seen.append(limiter.peek("k").remaining)
        clock.advance(1)
    clock.advance(5)
    left = sorted({10, 11, 12, 13, 14, 15} - {10 + gone})
    assert seen == [1 + sum(leaves <= when for leaves in left) for when in range(6, 13)]
    assert limiter.peek("k").remaining == 6


def test_a_reservation_that_has_left_the_period_gives_nothing_back(limiter_of, clock) -> None:
    limiter = limiter_of(THREE)
    old = limiter.reserve("k", cost=3)
    clock.advance(10)
    limiter.hit("k", cost=3)
    old.cancel()
    assert limiter.peek("k").remaining == 0


def test_refund_comes_from_the_newest_hits(limiter_of, clock) -> None:
    limiter = limiter_of(THREE)
    for _ in range(3):
        limiter.hit("k")
        clock.advance(1)
    limiter.refund("k", 2)
    assert limiter.peek("k").remaining == 2
    assert limiter.peek("k").reset_after == 7.0


def test_settling_for_more_is_counted_in_full(limiter_of, clock) -> None:
    limiter = limiter_of(THREE)
    limiter.hit("k")
    clock.advance(1)
    limiter.reserve("k", cost=1).settle(5)
    assert limiter.peek("k").remaining == 0
    clock.advance(9)  # the hit has left, the five have not
    assert limiter.peek("k").retry_after == 1.0


def test_a_clock_that_steps_back_earns_nothing_and_heals(replay) -> None:
    replay(
        THREE,
        [
            (100.0, 1, True, 2),
            (104.0, 2, True, 0),
            (50.0, 1, False, 6.0),  # as if the clock stood at 104
            (56.0, 1, True, 0),
            (56.0, 1, False, 4.0),
        ],
    )
