"""Reservations: take in advance, settle for what was used."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    AsyncLimiter,
    InvalidCost,
    InvalidKey,
    Limit,
    Limiter,
    LimitExceeded,
    MemoryStore,
    PenstockError,
)
from penstock.testing import FakeClock

HUNDRED = Limit(100, "minute")


@pytest.fixture
def limiter() -> Limiter:
    return Limiter(HUNDRED, store=MemoryStore(clock=FakeClock()))


def left(limiter: Limiter) -> int:
    return limiter.peek("k").remaining


def test_settling_for_less_gives_the_rest_back(limiter: Limiter) -> None:
    with limiter.reserve("k", cost=40) as reservation:
        assert left(limiter) == 60
        reservation.settle(25)
        assert left(limiter) == 75
    assert left(limiter) == 75
    assert reservation.settled


def test_settling_for_more_charges_the_difference(limiter: Limiter) -> None:
    with limiter.reserve("k", cost=40) as reservation:
        reservation.settle(70)
    assert left(limiter) == 30
    limiter.reserve("k", cost=30).settle(31)
    assert limiter.peek("k").retry_after == pytest.approx(1.2)


def test_settling_for_all_changes_nothing(limiter: Limiter) -> None:
    limiter.reserve("k", cost=40).settle(40)
    assert left(limiter) == 60


def test_a_reservation_that_is_not_settled_stays_taken(limiter: Limiter) -> None:
    with limiter.reserve("k", cost=40) as reservation:
        pass
    assert reservation.settled
    limiter.reserve("k", cost=10)
    assert left(limiter) == 50


def test_an_exception_gives_everything_back_and_goes_on(limiter: Limiter) -> None:
    with pytest.raises(ZeroDivisionError), limiter.reserve("k", cost=40):
        raise ZeroDivisionError
    assert left(limiter) == 100


def test_what_was_settled_before_an_exception_stays(limiter: Limiter) -> None:
    def work() -> None:
        with limiter.reserve("k", cost=40) as reservation:
            reservation.settle(30)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert left(limiter) == 70


def test_cancelling_gives_everything_back(limiter: Limiter) -> None:
    reservation = limiter.reserve("k", cost=40)
    reservation.cancel()
    assert left(limiter) == 100
    assert reservation.settled


def test_a_refused_reservation_is_false_and_takes_nothing(limiter: Limiter) -> None:
    limiter.hit("k", cost=70)
    reservation = limiter.reserve("k", cost=40)
    assert not reservation
    assert reservation.decision.retry_after == pytest.approx(6.0)
    assert not reservation.settled
    assert left(limiter) == 30


def test_a_refused_reservation_cannot_be_entered_or_settled(limiter: Limiter) -> None:
    limiter.hit("k", cost=70)
    with pytest.raises(LimitExceeded) as caught, limiter.reserve("k", cost=40):
        pytest.fail("it was refused")
    assert caught.value.key == "k"
    assert caught.value.decision.limit == HUNDRED
    assert str(caught.value) == "'k' is over its limit of 100/minute: retry after 6.000 s"
    for settle in (lambda r: r.settle(1), lambda r: r.cancel()):
        with pytest.raises(LimitExceeded):
            settle(limiter.reserve("k", cost=40))
    assert left(limiter) == 30


def test_a_reservation_above_the_burst_says_never(limiter: Limiter) -> None:
    with pytest.raises(LimitExceeded, match=r"never at this cost$"), limiter.reserve("k", cost=101):
        pytest.fail("it can never be")


def test_a_reservation_is_settled_once(limiter: Limiter) -> None:
    reservation = limiter.reserve("k", cost=40)
    reservation.settle(10)
    for again in (lambda: reservation.settle(10), reservation.cancel):
        with pytest.raises(PenstockError, match=r"^this reservation was settled already$"):
            again()
    assert left(limiter) == 90


@pytest.mark.parametrize("actual", [-1, 1.5, "3", None, True])
def test_settling_takes_a_whole_number(limiter: Limiter, actual: Any) -> None:
    reservation = limiter.reserve("k", cost=40)
    with pytest.raises(InvalidCost, match=r"^settle for a whole number of at least 0, not "):
        reservation.settle(actual)
    assert not reservation.settled
    reservation.cancel()


def test_bad_keys_and_costs_are_errors_at_once(limiter: Limiter) -> None:
    with pytest.raises(InvalidKey):
        limiter.reserve("")
    with pytest.raises(InvalidCost):
        limiter.reserve("k", cost=0)


@pytest.mark.parametrize(
    "text",
    [
        "100/minute",
        "100/minute debt 10",
        "100/minute leaky_bucket",
        "100/minute fixed_window",
        "100/minute fixed_window align first_hit",
        "100/minute sliding_window",
        "100/minute sliding_log",
        "100/minute soft 10 for 1m",
        "100/minute lockout 1h",
    ],
)
def test_every_algorithm_can_be_settled(limiter: Limiter, text: str) -> None:
    table = [(0, 100), (1, 99), (40, 60), (41, 59), (90, 10)]
    for used, remaining in table:
        limiter.reserve(f"to {used}", text, cost=40).settle(used)
        assert limiter.peek(f"to {used}", text).remaining == remaining, used
    huge = limiter.reserve("huge", text, cost=40)
    huge.settle(2**80)
    assert not limiter.hit("huge", text)


async def test_async_reservations_are_made_by_entering() -> None:
    limiter = AsyncLimiter(HUNDRED, store=MemoryStore(clock=FakeClock()))
    async with limiter.reserve("k", cost=40) as reservation:
        assert (await limiter.peek("k")).remaining == 60
        await reservation.settle(15)
    assert (await limiter.peek("k")).remaining == 85
    with pytest.raises(ZeroDivisionError):
        async with limiter.reserve("k", cost=40):
            raise ZeroDivisionError
    assert (await limiter.peek("k")).remaining == 85
    with pytest.raises(LimitExceeded):
        async with limiter.reserve("k", cost=86):
            pytest.fail("it was refused")


async def test_async_reservations_are_made_by_awaiting_and_only_once() -> None:
    limiter = AsyncLimiter(HUNDRED, store=MemoryStore(clock=FakeClock()))
    reservation = limiter.reserve("k", cost=40)
    with pytest.raises(PenstockError, match=r"^this reservation has not been made yet"):
        bool(reservation)
    assert await reservation
    assert await reservation
    assert (await limiter.peek("k")).remaining == 60
    await reservation.settle(50)
    assert (await limiter.peek("k")).remaining == 50
    with pytest.raises(PenstockError, match="settled already"):
        await reservation.cancel()


def test_a_refused_reservation_has_no_turn(limiter: Limiter) -> None:
    """So that nobody acts at once who forgot to look whether it was allowed."""
    assert limiter.reserve("k", cost=100, max_delay=0).delay == 0.0
    refused = limiter.reserve("k", cost=50, max_delay="1s")
    assert not refused
    with pytest.raises(LimitExceeded, match=r"retry after 29\.000 s"):
        _ = refused.delay
