"""Sizes that change, and shares of them: who is let in, and who goes first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.concurrency import (
    HIGH,
    LOW,
    AsyncConcurrencyLimiter,
    ConcurrencyLimiter,
    Size,
    State,
)
from penstock.errors import LineFull


async def turn() -> None:
    """Let all tasks run as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


class Movable:
    """A size that is set by hand."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        pass


async def test_a_size_that_grows_lets_in_more_and_one_that_shrinks_hands_nothing_on() -> None:
    size = Movable(1)
    assert isinstance(size, Size)
    limiter = AsyncConcurrencyLimiter(size, waiting=10)
    slots = [limiter.slot() for _ in range(6)]
    tasks = [asyncio.ensure_future(slot.__aenter__()) for slot in slots[:4]]
    await turn()
    assert limiter.state() == State(1, 1, 3)
    size.limit = 3
    tasks.append(asyncio.ensure_future(slots[4].__aenter__()))
    await turn()  # the newcomer lets in those before it, and waits itself
    assert limiter.state() == State(3, 3, 2)
    assert [task.done() for task in tasks] == [True, True, True, False, False]
    size.limit = 0  # counts as 1
    await slots[0].__aexit__(None, None, None)
    await slots[1].__aexit__(None, None, None)
    assert limiter.state() == State(1, 1, 2)
    await slots[2].__aexit__(None, None, None)
    await turn()
    assert limiter.state() == State(1, 1, 1)
    assert tasks[3].done()


async def test_with_shares_low_priority_goes_first_when_the_size_shrinks() -> None:
    size = Movable(10)
    limiter = AsyncConcurrencyLimiter(size, shares={LOW: 0.5, 0: 0.8})

    async def admitted(priority: int) -> bool:
        try:
            async with limiter.slot(priority=priority):
                return True
        except LineFull:
            return False

    held = [limiter.slot() for _ in range(4)]
    for slot in held:
        await slot.__aenter__()
    for limit, expected in [(10, [1, 1, 1]), (8, [0, 1, 1]), (5, [0, 0, 1]), (4, [0, 0, 0])]:
        size.limit = limit
        found = [await admitted(priority) for priority in (LOW, 0, HIGH)]
        assert (limit, found) == (limit, [bool(each) for each in expected])


async def test_those_whose_share_is_used_up_let_others_pass() -> None:
    limiter = AsyncConcurrencyLimiter(2, waiting=5, shares={LOW: 0.5})
    first, low = limiter.slot(), limiter.slot(priority=LOW)
    await first.__aenter__()
    waits = asyncio.ensure_future(low.__aenter__())
    await turn()
    async with limiter.slot():
        assert limiter.state() == State(2, 2, 1)
    assert limiter.state() == State(2, 1, 1)
    await first.__aexit__(None, None, None)
    await waits


def test_a_size_that_fails_loses_no_slot() -> None:
    class Broken(Movable):
        def record(self, *_: Any) -> None:
            raise ZeroDivisionError

    limiter = ConcurrencyLimiter(Broken(1))
    with pytest.raises(ZeroDivisionError), limiter.slot():
        pass
    assert limiter.state().running == 0
