"""Time-outs as durations, wherever one is taken."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    AsyncConcurrencyLimiter,
    AsyncLimiter,
    ConcurrencyLimiter,
    Limiter,
    LimitExceeded,
    MemoryStore,
)
from penstock.arguments import timeout_ns
from penstock.testing import FakeClock

SECOND = 10**9


@pytest.mark.parametrize(
    ("timeout", "nanoseconds"),
    [
        (None, None),
        (0, 0),
        (0.0, 0),
        (5, 5 * SECOND),
        (2.5, 2_500_000_000),
        (float("inf"), None),
        ("5s", 5 * SECOND),
        ("250ms", 250_000_000),
        ("1m30s", 90 * SECOND),
        (timedelta(minutes=1), 60 * SECOND),
        (timedelta(0), 0),
    ],
)
def test_durations(timeout: Any, nanoseconds: int | None) -> None:
    assert timeout_ns(timeout) == nanoseconds


@pytest.mark.parametrize(
    "timeout", [-1, -0.1, float("nan"), True, False, "soon", "", "-5s", b"5s", timedelta(-1), [5]]
)
def test_what_is_no_timeout(timeout: Any) -> None:
    limiter, slots = Limiter("1/s"), ConcurrencyLimiter(1)
    for mistake in (
        lambda: timeout_ns(timeout),
        lambda: limiter.wait("k", timeout=timeout),
        lambda: limiter.limit(timeout=timeout),
        lambda: limiter.slot("k", timeout=timeout).__enter__(),
        lambda: asyncio.run(AsyncLimiter("1/s").wait("k", timeout=timeout)),
        lambda: slots.slot("k", timeout=timeout),
        lambda: AsyncConcurrencyLimiter(1).slot("k", timeout=timeout),
        lambda: slots.limit(timeout=timeout),
    ):
        with pytest.raises(ValueError, match=r"^timeout "):
            mistake()


@pytest.mark.parametrize("timeout", [29, "29s", timedelta(seconds=29)])
def test_a_wait_that_would_take_longer_is_refused(timeout: Any) -> None:
    limiter = Limiter("2/minute", MemoryStore(clock=FakeClock()))
    limiter.hit("k", cost=2)
    assert not limiter.wait("k", timeout=timeout)
    with pytest.raises(LimitExceeded), limiter.slot("k", timeout=timeout):
        pytest.fail("it was refused")
    with pytest.raises(LimitExceeded):
        limiter.limit(key="k", timeout=timeout)(lambda: None)()
    assert limiter.wait("k", timeout="30s")
