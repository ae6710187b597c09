"""Waiting: for as long as it must be, and no longer than it may be."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Limiter, MemoryStore
from penstock.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter(clock: FakeClock) -> Limiter:
    return Limiter("5/minute", store=MemoryStore(clock=clock))


def test_wait_sleeps_for_exactly_as_long_as_it_must(limiter: Limiter, clock: FakeClock) -> None:
    start = clock.now()
    limiter.hit("k", cost=5)
    assert limiter.wait("k", cost=2).remaining == 0
    assert clock.now() - start == 24 * 10**9
    assert len(limiter.threads) == 0


def test_wait_answers_at_once_when_waiting_is_no_use(limiter: Limiter, clock: FakeClock) -> None:
    start = clock.now()
    limiter.hit("k", cost=5)
    assert limiter.wait("k", cost=6).retry_after is None
    refused = limiter.wait("k", timeout=11.999)
    assert (refused.allowed, refused.retry_after) == (False, 12.0)
    assert limiter.wait("k", timeout=0).retry_after == 12.0
    assert clock.now() == start
    assert limiter.wait("k", timeout=12)


def test_waiting_is_no_violation_but_not_waiting_is(clock: FakeClock) -> None:
    limiter = Limiter("1/minute lockout 1h", MemoryStore(clock=clock))
    limiter.hit("k")
    assert limiter.wait("k", timeout=60)
    assert not limiter.wait("k", timeout=30)
    assert limiter.peek("k").retry_after == 60.0
    assert limiter.wait("k", timeout=0).retry_after == 3600.0


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan"), "1", True])
def test_a_timeout_is_a_number_of_seconds(limiter: Limiter, timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout is a number of seconds of at least 0, or None"):
        limiter.wait("k", timeout=timeout)
    assert limiter.wait("k", timeout=float("inf"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2/minute", 30.0),
        ("2/minute fixed_window", 60.0),
        ("2/minute fixed_window align first_hit", 60.0),
        ("2/minute sliding_window", 60.000000001),
        ("2/minute sliding_window rounding up", 63.0),
        ("2/minute sliding_log", 60.0),
        ("2/minute soft 1 for 1h", 0.0),
        ("2/minute debt 1", 30.0),
    ],
)
def test_every_algorithm_can_be_waited_for(clock: FakeClock, text: str, seconds: float) -> None:
    limiter, start = Limiter(text, store=MemoryStore(clock=clock)), clock.now()
    assert limiter.wait("k", cost=2)
    assert limiter.wait("k")
    assert (clock.now() - start) / 1e9 == seconds
