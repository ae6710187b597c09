"""AsyncLimiter: the verbs as coroutines, and waiting in line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from penstock import AsyncLimiter, Decision, Limiter, LimitError, MemoryStore
from penstock.testing import FakeClock

SECOND = 10**9
# Enough passes of the event loop for every task to have gone as far as it can.
SETTLED = 50


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def make(text: str, clock: FakeClock) -> AsyncLimiter:
    return AsyncLimiter(text, store=MemoryStore(clock=clock))


async def settle() -> None:
    for _ in range(SETTLED):
        await asyncio.sleep(0)


def in_line(limiter: AsyncLimiter) -> int:
    return len(limiter._limiter.task_waiters)


class Crowd:
    """Tasks that wait for one key, and when each of them was let through."""

    def __init__(self, limiter: AsyncLimiter, clock: FakeClock) -> None:
        self.limiter, self.clock, self.start = limiter, clock, clock.now()
        self.tasks: list[asyncio.Task[Decision]] = []
        self.served: list[tuple[str, float]] = []

    def add(self, name: str, cost: int = 1, timeout: float | None = None) -> asyncio.Task[Decision]:
        async def wait() -> Decision:
            decision = await self.limiter.wait("k", cost=cost, timeout=timeout)
            if decision:
                self.served.append((name, (self.clock.now() - self.start) / SECOND))
            return decision

        self.tasks.append(asyncio.create_task(wait()))
        return self.tasks[-1]

    def all(self) -> Awaitable[list[Decision | BaseException]]:
        return asyncio.gather(*self.tasks, return_exceptions=True)


async def test_every_verb_answers_as_the_limiter_does(clock: FakeClock) -> None:
    limiter = make("5/minute", clock)
    twin = Limiter("5/minute", store=limiter.store)
    assert (await limiter.hit("k", None, 2)).remaining == 3
    assert (await limiter.peek("k")).remaining == twin.peek("k").remaining == 3
    await limiter.refund("k", 1)
    assert twin.peek("k").remaining == 4
    assert [d.remaining for d in await limiter.hit_many(["k", "k"])] == [3, 2]
    assert (await limiter.hit_all([("k", None, 2), ("j", "9/minute")])).remaining == 0
    refused = await limiter.hit("k", cost=5)
    assert (refused.allowed, refused.retry_after) == (False, 60.0)
    await limiter.reset("k")
    assert twin.peek("k").remaining == 5
    assert await limiter.hit("k", limit="1/minute")


async def test_a_limiter_without_a_limit_says_so() -> None:
    limiter = AsyncLimiter()
    for ask in (limiter.hit, limiter.peek, limiter.wait, limiter.reset, limiter.refund):
        with pytest.raises(LimitError, match=r"^no limit"):
            await ask("k")


async def test_waiting_is_fair_in_order_of_arrival(clock: FakeClock) -> None:
    crowd = Crowd(make("1/second", clock), clock)
    for name in "abcdef":
        crowd.add(name)
    await crowd.all()
    assert crowd.served == [(name, float(at)) for at, name in enumerate("abcdef")]
    assert in_line(crowd.limiter) == 0


async def test_small_requests_do_not_overtake_a_large_one(clock: FakeClock) -> None:
    crowd = Crowd(make("5/5s", clock), clock)
    for name, cost in (("a", 3), ("large", 5), ("b", 1), ("c", 1)):
        crowd.add(name, cost)
    await crowd.all()
    # Two are left when the large one comes; the small ones wait behind it.
    assert crowd.served == [("a", 0.0), ("large", 3.0), ("b", 4.0), ("c", 5.0)]


async def test_lines_of_different_keys_and_limits_do_not_meet(clock: FakeClock) -> None:
    limiter = make("1/hour", clock)
    await limiter.hit("k")
    stuck = asyncio.create_task(limiter.wait("k"))
    await asyncio.sleep(0)
    assert await limiter.wait("other", timeout=0.5)
    assert await limiter.wait("k", "2/hour", timeout=0.5)
    stuck.cancel()
    await asyncio.wait([stuck])
    assert in_line(limiter) == 0


@pytest.mark.parametrize("gone", range(5))
@pytest.mark.parametrize("after", [0.0, 0.5])
async def test_cancelling_anyone_in_the_line_loses_and_leaks_nothing(
    gone: int, after: float
) -> None:
    clock = FakeClock(autojump=False)
    crowd = Crowd(make("1/second", clock), clock)
    await crowd.limiter.hit("k")
    for name in "abcde":
        crowd.add(name)
    await settle()
    clock.advance(after)
    crowd.tasks[gone].cancel()
    await settle()
    assert in_line(crowd.limiter) == 4
    for _ in range(10):
        clock.advance(0.5)
        await settle()
    assert crowd.tasks[gone].cancelled()
    rest = [name for name in "abcde" if name != "abcde"[gone]]
    assert crowd.served == [(name, float(at)) for at, name in enumerate(rest, 1)]
    assert in_line(crowd.limiter) == 0
    # Five seconds have brought five, four were taken: the one left is there, and no more.
    assert (await crowd.limiter.peek("k")).remaining == 1


@pytest.mark.parametrize("gone", [{0, 1}, {0, 2, 4}, {1, 2, 3}, {3, 4}, {0, 1, 2, 3, 4}])
async def test_cancelling_several_at_once(clock: FakeClock, gone: set[int]) -> None:
    crowd = Crowd(make("1/second", clock), clock)
    await crowd.limiter.hit("k")
    for name in "abcde":
        crowd.add(name)
    await asyncio.sleep(0)
    for index in sorted(gone, reverse=True):
        crowd.tasks[index].cancel()
    await crowd.all()
    rest = [name for index, name in enumerate("abcde") if index not in gone]
    assert crowd.served == [(name, float(at)) for at, name in enumerate(rest, 1)]
    assert in_line(crowd.limiter) == 0


async def test_cancelled_in_the_moment_that_its_time_has_come() -> None:
    clock = FakeClock(autojump=False)
    crowd = Crowd(make("1/second", clock), clock)
    await crowd.limiter.hit("k")
    first, second = crowd.add("a"), crowd.add("b")
    await settle()
    clock.advance(1)  # its sleep is over, but it has not run yet
    first.cancel()
    await settle()
    assert first.cancelled()
    assert crowd.served == [("b", 1.0)]
    assert second.done()
    assert in_line(crowd.limiter) == 0


async def test_cancelled_in_the_moment_that_it_is_called_to_the_head() -> None:
    clock = FakeClock(autojump=False)
    crowd = Crowd(make("1/second burst 2", clock), clock)
    await crowd.limiter.hit("k", cost=2)
    head, called, last = crowd.add("a"), crowd.add("b"), crowd.add("c")
    await settle()
    head.cancel()
    await asyncio.sleep(0)  # the head leaves the line now and calls the next one ...
    called.cancel()  # ... which is cancelled before it has heard of it
    await settle()
    clock.advance(1)
    await settle()
    assert (head.cancelled(), called.cancelled()) == (True, True)
    assert crowd.served == [("c", 1.0)]
    assert last.done()
    assert in_line(crowd.limiter) == 0


async def test_a_timeout_that_cannot_be_met_is_answered_at_once(clock: FakeClock) -> None:
    limiter, start = make("1/minute", clock), clock.now()
    await limiter.hit("k")
    refused = await limiter.wait("k", timeout=59.9)
    assert (refused.allowed, refused.retry_after) == (False, 60.0)
    assert (await limiter.wait("k", cost=2)).retry_after is None
    assert clock.now() == start
    assert await limiter.wait("k", timeout=60)
    assert in_line(limiter) == 0


async def test_who_stands_in_line_gives_up_after_the_timeout(clock: FakeClock) -> None:
    crowd = Crowd(make("1/10s", clock), clock)
    await crowd.limiter.hit("k")
    crowd.add("a")
    impatient = crowd.add("b", timeout=5)
    crowd.add("c")
    decision = await impatient
    assert not decision
    assert clock.now() - crowd.start == 5 * SECOND
    await crowd.all()
    assert crowd.served == [("a", 10.0), ("c", 20.0)]
    assert in_line(crowd.limiter) == 0


async def test_a_timeout_is_long_enough_or_it_is_not(clock: FakeClock) -> None:
    crowd = Crowd(make("1/10s", clock), clock)
    await crowd.limiter.hit("k")
    crowd.add("a")
    enough, short = crowd.add("b", timeout=20), crowd.add("c", timeout=29.9)
    await crowd.all()
    assert (bool(enough.result()), bool(short.result())) == (True, False)
    assert crowd.served == [("a", 10.0), ("b", 20.0)]
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert clock.now() - crowd.start == 20 * SECOND, "nobody was left asleep"


async def test_who_gave_up_behind_others_is_not_told_to_come_back_at_once(clock: FakeClock) -> None:
    crowd = Crowd(make("5/5s", clock), clock)
    await crowd.limiter.hit("k", cost=4)
    crowd.add("large", cost=5)
    impatient = crowd.add("small", timeout=1.5)
    await crowd.all()
    assert not impatient.result()
    assert impatient.result().retry_after != 0.0, "that is what an allowed one says"


async def test_two_loops_share_a_limiter(clock: FakeClock) -> None:
    limiter = make("2/minute", clock)
    assert await limiter.wait("k")
    assert await asyncio.to_thread(lambda: asyncio.run(limiter.wait("k")))
    assert not await limiter.wait("k", timeout=0)
