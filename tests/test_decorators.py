"""Slots and decorated functions, for threads and for coroutines."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from penstock import (
    AsyncLimiter,
    InvalidKey,
    Limit,
    Limiter,
    LimitError,
    LimitExceeded,
    MemoryStore,
)
from penstock.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter(clock: FakeClock) -> Limiter:
    return Limiter("2/minute", store=MemoryStore(clock=clock))


@pytest.fixture
def tasks(limiter: Limiter) -> AsyncLimiter:
    """An async limiter over the same store."""
    return AsyncLimiter("2/minute", store=limiter.store)


def test_a_slot_waits_for_its_turn(limiter: Limiter, clock: FakeClock) -> None:
    start = clock.now()
    for remaining in (1, 0, 0):
        with limiter.slot("k") as decision:
            assert decision.remaining == remaining
    assert clock.now() - start == 30 * 10**9


def test_a_slot_that_does_not_come_in_time_raises(limiter: Limiter, clock: FakeClock) -> None:
    limiter.hit("k", cost=2)
    with pytest.raises(LimitExceeded) as caught, limiter.slot("k", timeout=29):
        pytest.fail("it was refused")
    assert caught.value.decision.retry_after == 30.0
    with pytest.raises(LimitExceeded, match="never at this cost"), limiter.slot("k", cost=3):
        pytest.fail("it was refused")
    with limiter.slot("k", timeout=30):
        pass


def test_a_slot_gives_nothing_back(limiter: Limiter) -> None:
    with pytest.raises(ZeroDivisionError), limiter.slot("k", cost=2):
        raise ZeroDivisionError
    assert limiter.peek("k").remaining == 0


def test_a_slot_can_be_entered_again(limiter: Limiter) -> None:
    slot = limiter.slot("k", timeout=0)
    for _ in range(2):
        with slot:
            pass
    with pytest.raises(LimitExceeded), slot:
        pytest.fail("it was refused")


async def test_an_async_slot_waits_for_its_turn(tasks: AsyncLimiter, clock: FakeClock) -> None:
    start = clock.now()
    for _ in range(3):
        async with tasks.slot("k") as decision:
            assert decision
    assert clock.now() - start == 30 * 10**9
    with pytest.raises(LimitExceeded):
        async with tasks.slot("k", timeout=0):
            pytest.fail("it was refused")


async def test_an_async_slot_cannot_be_entered_without_async(tasks: AsyncLimiter) -> None:
    """It would block the event loop."""
    with pytest.raises(TypeError), tasks.slot("k"):  # type: ignore[attr-defined]
        pytest.fail("it was entered")


def test_a_limited_function_raises_when_it_is_over(limiter: Limiter) -> None:
    calls = []

    @limiter.limit(key="k")
    def work(number: int, *, double: bool = False) -> int:
        """Does something."""
        calls.append(number)
        return 2 * number if double else number

    assert (work(1), work(2, double=True)) == (1, 4)
    with pytest.raises(LimitExceeded, match=r"^'k' is over its limit of 2/minute: retry after 30"):
        work(3)
    assert calls == [1, 2]
    assert (work.__name__, work.__doc__) == ("work", "Does something.")
    assert list(inspect.signature(work).parameters) == ["number", "double"]


def test_without_a_key_all_calls_of_a_function_share_one(limiter: Limiter) -> None:
    @limiter.limit()
    def one() -> str:
        return "one"

    @limiter.limit()
    def two() -> str:
        return "two"

    assert [one(), one(), two(), two()] == ["one", "one", "two", "two"]
    for function in (one, two):
        with pytest.raises(LimitExceeded):
            function()
    assert not limiter.hit(f"{one.__module__}.{one.__qualname__}")


def test_a_key_can_be_made_of_the_arguments(limiter: Limiter) -> None:
    @limiter.limit(key=lambda user, **_: f"user:{user}")
    def work(user: int, note: str = "") -> int:
        return user

    assert [work(1), work(1, note="x"), work(2)] == [1, 1, 2]
    with pytest.raises(LimitExceeded) as caught:
        work(1)
    assert caught.value.key == "user:1"
    assert work(2) == 2


def test_a_decorator_has_limit_cost_and_timeout(limiter: Limiter, clock: FakeClock) -> None:
    @limiter.limit("10/minute", key="k", cost=6, timeout=12)
    def work() -> int:
        return clock.now()

    first = work()
    assert work() - first == 12 * 10**9
    with pytest.raises(LimitExceeded):
        work()  # would have to wait for 36 seconds
    assert clock.now() - first == 12 * 10**9


def test_a_limited_method_knows_its_object(limiter: Limiter) -> None:
    class User:
        def __init__(self, name: str) -> None:
            self.name = name

        @limiter.limit(key=lambda self: self.name)
        def greet(self) -> str:
            return f"hello {self.name}"

    one, two = User("one"), User("two")
    assert [one.greet(), one.greet(), two.greet()] == ["hello one", "hello one", "hello two"]
    with pytest.raises(LimitExceeded):
        one.greet()


async def test_an_async_function_is_limited_by_either_limiter(
    limiter: Limiter, tasks: AsyncLimiter
) -> None:
    @limiter.limit(key="k")
    async def first() -> str:
        return "first"

    @tasks.limit(key="k")
    async def second() -> str:
        return "second"

    assert inspect.iscoroutinefunction(first)
    assert [await first(), await second()] == ["first", "second"]
    for function in (first, second):
        with pytest.raises(LimitExceeded):
            await function()


async def test_an_async_function_may_have_an_async_key(
    limiter: Limiter, tasks: AsyncLimiter
) -> None:
    async def who(user: int) -> str:
        return f"user:{user}"

    for guard in (
        limiter.limit(key=who),
        tasks.limit(key=who),
        tasks.limit(key=lambda user: who(user)),
    ):

        @guard
        async def work(user: int) -> int:
            return user

        limiter.reset("user:1")
        assert [await work(1), await work(1), await work(2)] == [1, 1, 2]
        with pytest.raises(LimitExceeded):
            await work(1)
        limiter.reset("user:2")


async def test_a_limited_task_can_wait_for_its_turn(tasks: AsyncLimiter, clock: FakeClock) -> None:
    @tasks.limit(key="k", timeout=None)
    async def work() -> int:
        return clock.now()

    first = await work()
    await work()
    assert await work() - first == 30 * 10**9


def test_a_wrong_decorator_is_an_error_while_decorating(
    limiter: Limiter, tasks: AsyncLimiter
) -> None:
    def work() -> None:
        pytest.fail("it was called")

    async def who() -> str:
        return "k"

    for guard in (limiter.limit, tasks.limit):
        with pytest.raises(LimitError):
            guard("5 apples", key="k")
        with pytest.raises(LimitError):
            (Limiter() if guard == limiter.limit else AsyncLimiter()).limit(key="k")
    keys: list[Any] = ["", 7, b"k"]
    for key in keys:
        with pytest.raises(InvalidKey, match=r"^key is a non-empty str or a function of the call"):
            limiter.limit(key=key)(work)
    with pytest.raises(InvalidKey, match=r"work at .* is not async, so its key cannot be either$"):
        limiter.limit(key=who)(work)
    with pytest.raises(TypeError, match=r"is not async: use Limiter\.limit$"):
        tasks.limit(key="k")(work)  # type: ignore[type-var]


def test_a_key_function_that_makes_no_key_is_an_error(limiter: Limiter) -> None:
    @limiter.limit(key=lambda user: user)
    def work(user: Any) -> None:
        pytest.fail("it was called")

    for user in (7, "", None):
        with pytest.raises(InvalidKey):
            work(user)


def test_an_exception_in_a_limited_function_comes_out(limiter: Limiter) -> None:
    @limiter.limit(Limit(1, "minute"), key="k")
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with pytest.raises(LimitExceeded):
        work()
