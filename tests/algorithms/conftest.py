"""What the tables of this folder are played with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from penstock import Decision, Limit, Limiter, MemoryStore
from penstock.testing import FakeClock

# When (seconds from the start), cost, allowed, and then: what remains after an
# allowed hit, or after how many seconds a refused one may come again.
Row = tuple[float, int, bool, float | None]


class Replay(Protocol):
    def __call__(self, limit: str | Limit, table: list[Row], key: str = "k") -> Limiter: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter_of(clock: FakeClock) -> Callable[[str | Limit], Limiter]:
    """A limiter with a store of its own, on the test's clock."""
    return lambda limit: Limiter(limit, store=MemoryStore(clock=clock))


@pytest.fixture
def replay(clock: FakeClock, limiter_of: Callable[[str | Limit], Limiter]) -> Replay:
    """Play a table on a new limiter; all rows are compared at once, so a failure shows where."""

    def play(limit: str | Limit, table: list[Row], key: str = "k") -> Limiter:
        limiter = limiter_of(limit)
        start = clock.now()
        seen: list[Row] = []
        for when, cost, _, _ in table:
            clock.set(start + round(when * 1e9))
            peeked = limiter.peek(key, cost=cost).allowed
            decision = limiter.hit(key, cost=cost)
            assert peeked == decision.allowed, f"peek and hit differ at {when}"
            seen.append((when, cost, decision.allowed, outcome(decision)))
        assert seen == table
        return limiter

    def outcome(decision: Decision) -> float | None:
        return decision.remaining if decision else decision.retry_after

    return play
