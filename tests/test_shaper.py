"""The leaky bucket as a shaper: evenly paced places, handed on when somebody gives up."""

from __future__ import annotations

import asyncio

import pytest

from penstock import AsyncLimiter, Decision, Limiter, MemoryStore
from penstock.testing import FakeClock

SECOND = 10**9
FIVE = "5/5s leaky_bucket"  # a line of five, one a second


class Line:
    """Tasks that wait for a place on one line, and when each of them went ahead."""

    def __init__(self, text: str = FIVE, autojump: bool = True) -> None:
        self.clock = FakeClock(autojump=autojump)
        self.limiter = AsyncLimiter(text, store=MemoryStore(clock=self.clock))
        self.start = self.clock.now()
        self.tasks: list[asyncio.Task[Decision]] = []
        self.went: list[tuple[str, float]] = []

    async def add(self, name: str, cost: int = 1, timeout: float | None = None) -> None:
        async def wait() -> Decision:
            decision = await self.limiter.wait("k", cost=cost, timeout=timeout)
            if decision:
                self.went.append((name, (self.clock.now() - self.start) / SECOND))
            return decision

        self.tasks.append(asyncio.create_task(wait()))
        await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            await self.idle()
            self.clock.advance(0.25)
        await self.idle()

    async def idle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    @property
    def length(self) -> int:
        return len(self.limiter._limiter.task_waiters)


async def test_everybody_goes_at_an_even_pace() -> None:
    line = Line()
    for name in "abcde":
        await line.add(name)
    await asyncio.gather(*line.tasks)
    assert line.went == [("a", 0.0), ("b", 1.0), ("c", 2.0), ("d", 3.0), ("e", 4.0)]
    assert line.length == 0


async def test_a_cost_is_a_wider_place() -> None:
    line = Line()
    for name, cost in (("a", 1), ("b", 3), ("c", 1)):
        await line.add(name, cost)
    await asyncio.gather(*line.tasks)
    assert line.went == [("a", 0.0), ("b", 1.0), ("c", 4.0)]


async def test_a_full_line_refuses_at_once() -> None:
    line = Line(autojump=False)
    for name in "abcdef":
        await line.add(name)
    refused = await line.tasks[5]
    assert (refused.allowed, refused.retry_after, refused.delay) == (False, 1.0, 0.0)
    assert line.length == 4, "the first went ahead, four stand in line"
    await line.pass_time(5)
    assert [name for name, _ in line.went] == list("abcde")


async def test_a_place_beyond_the_timeout_is_not_taken() -> None:
    line = Line(autojump=False)
    for name in "abc":
        await line.add(name)
    for timeout, retry_after in ((2.5, 0.5), (0, 3.0)):
        await line.add("late", timeout=timeout)
        await line.idle()
        assert line.tasks[-1].done(), "it need not wait to know"
        refused = line.tasks[-1].result()
        assert (refused.allowed, refused.retry_after) == (False, retry_after)
    await line.add("d", timeout=3)
    await line.pass_time(3)
    assert line.went == [("a", 0.0), ("b", 1.0), ("c", 2.0), ("d", 3.0)]


@pytest.mark.parametrize(
    ("gone", "when", "went"),
    [
        (1, 0.5, [("a", 0.0), ("c", 1.0), ("d", 2.0), ("e", 3.0)]),
        (2, 0.5, [("a", 0.0), ("b", 1.0), ("d", 2.0), ("e", 3.0)]),
        (3, 1.5, [("a", 0.0), ("b", 1.0), ("c", 2.0), ("e", 3.0)]),
        (4, 2.5, [("a", 0.0), ("b", 1.0), ("c", 2.0), ("d", 3.0)]),
    ],
)
async def test_who_gives_up_hands_the_place_on(
    gone: int, when: float, went: list[tuple[str, float]]
) -> None:
    line = Line(autojump=False)
    for name in "abcde":
        await line.add(name)
    await line.pass_time(when)
    line.tasks[gone].cancel()
    await line.idle()
    assert line.tasks[gone].cancelled()
    # The last place is free again: the next one to come gets it.
    assert (await line.limiter.peek("k")).delay == 4.0 - when
    await line.pass_time(6)
    assert line.went == went
    assert line.length == 0


async def test_a_wide_place_that_is_given_up_moves_the_others_by_its_width() -> None:
    line = Line(autojump=False)
    for name, cost in (("a", 1), ("b", 2), ("c", 1), ("d", 1)):
        await line.add(name, cost)
    line.tasks[1].cancel()
    await line.pass_time(5)
    assert line.went == [("a", 0.0), ("c", 1.0), ("d", 2.0)]


async def test_all_give_up() -> None:
    line = Line(autojump=False)
    for name in "abcde":
        await line.add(name)
    for task in line.tasks[1:]:
        task.cancel()
    await line.idle()
    assert line.length == 0
    assert (await line.limiter.peek("k")).delay == 1.0, "only the first has used its place"


async def test_a_place_before_somebody_elses_passes_unused() -> None:
    line = Line(autojump=False)
    for name in "ab":
        await line.add(name)
    elsewhere = Limiter(FIVE, store=line.limiter.store)
    assert elsewhere.hit("k").delay == 2.0
    line.tasks[1].cancel()
    await line.idle()
    assert (await line.limiter.peek("k")).delay == 3.0


async def test_moving_up_does_not_crowd_somebody_else() -> None:
    line = Line(autojump=False)
    for name in "ab":
        await line.add(name)
    elsewhere = Limiter(FIVE, store=line.limiter.store)
    taken = elsewhere.hit("k").delay
    await line.add("c")
    line.tasks[1].cancel()
    await line.pass_time(5)
    places = [0.0, taken, *(when for name, when in line.went if name == "c")]
    assert len(set(places)) == 3, f"two at one time: {places}"


def test_threads_are_paced_as_well() -> None:
    clock = FakeClock()
    limiter, start = Limiter(FIVE, store=MemoryStore(clock=clock)), clock.now()
    limiter.hit("k", cost=3)
    decision = limiter.wait("k")
    assert decision
    assert clock.now() - start == 3 * SECOND
    assert limiter.wait("k", timeout=1)
    assert clock.now() - start == 4 * SECOND
    assert not limiter.wait("k", timeout=0)
    assert len(limiter.thread_waiters) == 0
