"""Waiting: for as long as it must be, and no longer than it may be."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Limiter, MemoryStore
from penstock.flow_steps import Pause
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
    assert len(limiter.thread_waiters) == 0


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


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan"), b"1", True])
def test_a_timeout_is_a_number_of_seconds(limiter: Limiter, timeout: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^timeout is a number of seconds of at least 0, a duration"
    ):
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


def _interleaved(clock: FakeClock, limiters: list[Limiter], timeout: float | None) -> list[bool]:
    """One wait in each limiter, all in step, as in processes that share a store."""
    flows = {
        number: limiter.begin(limiter.thread_waiters, "k", None, 1, timeout)
        for number, limiter in enumerate(limiters)
    }
    steps = {number: next(flow) for number, flow in flows.items()}
    allowed = []
    while steps:
        pauses = [step.nanoseconds for step in steps.values() if isinstance(step, Pause)]
        clock.advance_ns(min([ns for ns in pauses if ns is not None], default=0))
        for number, step in list(steps.items()):
            try:
                answer = False if isinstance(step, Pause) else step.run()
                steps[number] = flows[number].send(answer)
            except StopIteration as end:
                allowed.append(bool(end.value))
                del steps[number]
    return allowed


@pytest.mark.parametrize("algorithm", ["token_bucket burst 1", "sliding_log", "leaky_bucket"])
def test_to_lose_a_race_while_waiting_starts_no_lockout(clock: FakeClock, algorithm: str) -> None:
    rate = "1/50ms" if algorithm == "sliding_log" else "20/second"
    text, store = f"{rate} {algorithm} lockout 1h", MemoryStore(clock=clock)
    limiters = [Limiter(text, store) for _ in range(4)]
    start = clock.now()
    assert _interleaved(clock, limiters, None) == [True] * 4
    assert clock.now() - start == 150_000_000
    assert _interleaved(clock, limiters, 0.12).count(True) == 2
    clock.advance(0.2)
    assert limiters[0].hit("k"), "nobody was locked out"


def test_who_cannot_wait_takes_no_place_on_a_paced_line(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    limiters = [Limiter("2/second leaky_bucket lockout 1h", store) for _ in range(3)]
    assert _interleaved(clock, limiters, 0) == [True, False, False]
    assert limiters[0].peek("k").delay == 0.5
    limiters[0].hit("k")
    assert limiters[0].wait("k", timeout=0).retry_after == 3600.0  # the line is full
