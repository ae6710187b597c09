"""Leaky bucket: a token bucket's arithmetic, with a place on an evenly paced line."""

from __future__ import annotations

FIVE = "5/5s leaky_bucket"  # a line of five, one a second


def test_admits_as_a_token_bucket_does(replay) -> None:
    replay(
        FIVE,
        [
            (0.0, 5, True, 0),
            (0.0, 1, False, 1.0),
            (0.5, 1, False, 0.5),
            (1.0, 1, True, 0),
            (3.5, 3, False, 0.5),
            (4.0, 3, True, 0),
            (4.0, 6, False, None),
        ],
    )


def test_delay_is_the_place_on_the_line(limiter_of, clock) -> None:
    limiter = limiter_of(FIVE)
    table = [  # when, cost, delay
        (0.0, 1, 0.0),
        (0.0, 1, 1.0),
        (0.0, 2, 2.0),
        (0.5, 1, 3.5),  # behind the two
        (5.0, 1, 0.0),
        (5.25, 1, 0.75),
        (60.0, 1, 0.0),
    ]
    start, seen = clock.now(), []
    for when, cost, _ in table:
        clock.set(start + round(when * 1e9))
        decision = limiter.peek("k", cost=cost)
        assert limiter.hit("k", cost=cost).delay == decision.delay
        seen.append((when, cost, decision.delay))
    assert seen == table


def test_a_refusal_has_no_place(limiter_of) -> None:
    limiter = limiter_of(FIVE)
    limiter.hit("k", cost=5)
    refused = limiter.hit("k")
    assert (refused.allowed, refused.delay, refused.remaining) == (False, 0.0, 0)


def test_a_longer_line_than_the_rate(replay) -> None:
    replay("1/second leaky_bucket burst 3", [(0.0, 3, True, 0), (0.0, 1, False, 1.0)])


def test_refund_shortens_the_line(limiter_of) -> None:
    limiter = limiter_of(FIVE)
    limiter.hit("k", cost=4)
    limiter.refund("k", 2)
    assert limiter.hit("k").delay == 2.0


def test_refund_never_puts_anybody_before_now(limiter_of, clock) -> None:
    limiter = limiter_of(FIVE)
    limiter.hit("k", cost=2)
    clock.advance(1)
    limiter.refund("k", 2)
    assert [limiter.hit("k").delay for _ in range(3)] == [0.0, 1.0, 2.0]


def test_warm_up_paces_the_line_slower(limiter_of, clock) -> None:
    limiter = limiter_of("6/6s leaky_bucket warm_up 1m")
    assert [limiter.hit("k").delay for _ in range(2)] == [0.0, 3.0]
    assert not limiter.hit("k")
    clock.advance(60)
    assert [limiter.hit("k").delay for _ in range(3)] == [0.0, 1.0, 2.0]
