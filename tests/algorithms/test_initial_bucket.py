"""A token bucket that keys begin less than full, against an account in whole nanoseconds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Limit, Limiter, LimitError, MemoryStore
from penstock.testing import FakeClock

SECOND = 10**9


def make(text: str) -> tuple[Limiter, FakeClock]:
    clock = FakeClock(10**18)
    return Limiter(text, store=MemoryStore(clock=clock)), clock


# When (seconds after the step before), cost, allowed, remaining, retry_after.
TABLE: list[tuple[str, list[tuple[float, int, bool, int, float | None]]]] = [
    (
        "60/minute burst 10 initial 0",
        [
            (0, 1, False, 0, 1.0),
            (0.5, 1, False, 0, 0.5),  # it fills since the first hit
            (0.5, 1, True, 0, 0.0),
            (3, 1, True, 2, 0.0),
            (100, 10, False, 0, 10.0),  # long full: forgotten, and begun anew
        ],
    ),
    (
        "60/minute burst 10 initial 3",
        [
            (0, 2, True, 1, 0.0),
            (0, 2, False, 1, 1.0),
            (9, 10, True, 0, 0.0),
            (10, 1, True, 9, 0.0),
            (1 + 9.999999999, 10, True, 0, 0.0),  # full for a nanosecond less than 10 s
        ],
    ),
    ("60/minute burst 10 initial 3", [(0, 3, True, 0, 0.0), (20, 3, True, 0, 0.0)]),
    ("60/minute burst 10 initial 3", [(0, 11, False, 3, None), (5, 3, True, 0, 0.0)]),
    ("60/minute burst 4 initial 2 debt 3", [(0, 6, False, 2, 1.0), (1, 6, True, 0, 0.0)]),
]


@pytest.mark.parametrize(("text", "steps"), TABLE)
def test_table(text: str, steps: list[Any]) -> None:
    limiter, clock = make(text)
    for wait, cost, allowed, remaining, retry_after in steps:
        clock.advance_ns(round(wait * SECOND))
        seen = limiter.peek("k", cost=cost)
        decision = limiter.hit("k", cost=cost)
        assert (decision.allowed, decision.remaining) == (allowed, remaining), decision
        assert (seen.allowed, seen.retry_after, decision.retry_after) == (
            allowed, retry_after, retry_after,
        )  # fmt: skip


def test_a_look_starts_nothing() -> None:
    limiter, clock = make("60/minute initial 0")
    for _ in range(3):
        assert limiter.peek("k").retry_after == 1.0
        clock.advance(5)
    assert limiter.store.keys == 0  # type: ignore[attr-defined]
    assert not limiter.hit("k")
    clock.advance(1)
    assert limiter.peek("k")


def test_waiting_starts_it() -> None:
    limiter, clock = make("60/minute initial 0")
    began = clock.now()
    assert [limiter.wait("k").allowed for _ in range(3)] == [True] * 3
    assert clock.now() - began == 3 * SECOND


def test_refunds_and_charges() -> None:
    limiter, _ = make("60/minute burst 10 initial 5")
    limiter.refund("k", 3)  # nothing was taken
    assert limiter.peek("k").remaining == 5
    with limiter.reserve("k", cost=5) as reservation:
        reservation.settle(2)
    assert limiter.peek("k").remaining == 3
    with limiter.reserve("k", cost=1) as reservation:
        reservation.settle(4)
    assert limiter.peek("k").remaining == 0
    limiter.reset("k")
    assert limiter.peek("k").remaining == 5


def test_minimum_interval_is_a_bucket_of_one() -> None:
    limiter, clock = make("1/100ms")
    assert [limiter.hit("k").allowed for _ in range(2)] == [True, False]
    clock.advance_ns(100_000_000 - 1)
    assert not limiter.hit("k")
    clock.advance_ns(1)
    assert limiter.hit("k")
    clock.advance(60)
    assert [limiter.hit("k").allowed for _ in range(2)] == [True, False]


class Account:
    """What is in the bucket, as time, and since when it is full; kept by hand."""

    def __init__(self, limit: Limit) -> None:
        assert limit.initial is not None
        self.interval = limit.interval_ns
        self.most = limit.burst * limit.interval_ns
        self.initial = limit.initial * limit.interval_ns
        self.room: int | None = None  # None: not known
        self.full_for = 0

    def passes(self, step: int) -> None:
        if self.room is None:
            return
        left = self.most - self.room
        self.room = min(self.most, self.room + step)
        self.full_for = self.full_for + step if left == 0 else max(0, step - left)
        if self.room == self.most and self.full_for >= self.most:
            self.room = None

    def hit(self, cost: int) -> tuple[bool, int]:
        room = self.initial if self.room is None else self.room
        allowed = cost * self.interval <= room
        self.room = room - cost * self.interval if allowed else room
        self.full_for = 0
        return allowed, self.room // self.interval


@st.composite
def cases(draw: st.DrawFn) -> tuple[Limit, list[tuple[int, int]]]:
    amount, burst = draw(st.integers(1, 9)), draw(st.integers(2, 9))
    limit = Limit(amount, "10s", burst=burst, initial=draw(st.integers(0, burst - 1)))
    unit, whole = limit.interval_ns, burst * limit.interval_ns
    near = [0, unit - 1, unit, whole - 1, whole, whole + 1, 2 * whole - 1, 2 * whole, 3 * whole]
    step = st.one_of(st.sampled_from(near), st.integers(0, 2 * whole))
    return limit, draw(st.lists(st.tuples(step, st.integers(1, burst)), max_size=30))


@given(cases())
def test_the_bucket_is_the_account(case: Any) -> None:
    limit, steps = case
    limiter, clock = make(str(limit))
    account = Account(limit)
    for step, cost in steps:
        clock.advance_ns(step)
        account.passes(step)
        # A full bucket that is hit while nothing fits does not exist: costs are at most burst.
        decision = limiter.hit("k", cost=cost)
        assert (decision.allowed, decision.remaining) == account.hit(cost)
        if not decision:  # allowed exactly at the promised time
            due = decision._retry
            clock.advance_ns(due - 1)
            assert not limiter.peek("k", cost=cost)
            clock.advance_ns(1)
            assert limiter.peek("k", cost=cost)
            account.passes(due)


WRONG = [
    ("10/minute initial 11", "initial is at most burst: 11 units do not fit a bucket of 10"),
    ("10/minute initial 0 lockout 1m", "lockout would punish them: choose one"),
    ("10/minute initial 0 soft 1 for 1m", "soft lets more through than the limit, initial less"),
    ("10/minute initial 0 warm_up 1m", "warm_up begins slowly for all keys, initial for each"),
    ("10/minute leaky_bucket initial 0", "initial means nothing to leaky_bucket"),
    ("10/minute initial", "initial has no value behind it"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_makes_no_sense_with_it(text: str, message: str) -> None:
    with pytest.raises(LimitError, match=message):
        Limit.parse(text)


def test_as_text() -> None:
    assert str(Limit(10, "minute", initial=0)) == "10/minute initial 0"
    assert Limit.parse("10/minute burst 20 initial 5") == Limit(10, "minute", burst=20, initial=5)
    assert Limit(10, "minute", initial=10) == Limit(10, "minute")
