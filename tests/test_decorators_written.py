"""How decorators are written: the limit first, the rest by name, with or without parentheses."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from penstock import (
    AsyncConcurrencyLimiter,
    AsyncLimiter,
    CircuitBreaker,
    ConcurrencyLimiter,
    InvalidKey,
    Limit,
    Limiter,
    LimitError,
    LimitExceeded,
    MemoryStore,
)
from penstock.testing import FakeClock


@pytest.fixture
def limiter() -> Limiter:
    return Limiter("2/minute", store=MemoryStore(clock=FakeClock()))


@pytest.fixture
def tasks(limiter: Limiter) -> AsyncLimiter:
    return AsyncLimiter("2/minute", store=limiter.store)


def passes(call: Callable[[], Any], most: int = 10) -> int:
    """How many calls pass before one is refused."""
    for count in range(most):
        try:
            call()
        except LimitExceeded:
            return count
    return most


@pytest.mark.parametrize("text", ["3/minute", Limit(3, "minute"), "3/minute; 100/day"])
def test_the_limit_comes_first(limiter: Limiter, text: Limit | str) -> None:
    @limiter.limit(text)
    def work() -> None: ...

    assert passes(work) == 3


def test_without_parentheses_or_without_a_limit_it_is_the_limiters_own(limiter: Limiter) -> None:
    @limiter.limit
    def bare() -> str:
        """Does something."""
        return "done"

    @limiter.limit()
    def empty() -> None: ...

    assert (passes(bare), passes(empty)) == (2, 2)
    assert (bare.__name__, bare.__doc__) == ("bare", "Does something.")


async def test_a_bare_decorator_of_an_async_limiter(tasks: AsyncLimiter) -> None:
    @tasks.limit
    async def work() -> str:
        return "done"

    assert [await work(), await work()] == ["done", "done"]
    with pytest.raises(LimitExceeded):
        await work()


def test_a_limiter_without_a_limit_says_what_to_write_while_decorating() -> None:
    def work() -> None:
        pytest.fail("it was called")

    async def work_async() -> None:
        pytest.fail("it was called")

    expected = r"^no limit: write @limiter\.limit\('100/minute'\), or make the limiter with one$"
    for mistake in (
        lambda: Limiter().limit(work),
        lambda: Limiter().limit(),
        lambda: Limiter().limit(key="k"),
        lambda: AsyncLimiter().limit(work_async),
        lambda: AsyncLimiter().limit(),
    ):
        with pytest.raises(LimitError, match=expected):
            mistake()
    assert Limiter().limit("1/s")(work) is not None


@pytest.mark.parametrize("text", ["user:{id}", "search", "5 apples", "5/minute; daily"])
def test_a_text_that_is_no_limit_may_be_a_key(
    limiter: Limiter, tasks: AsyncLimiter, text: str
) -> None:
    for guard in (limiter, tasks):
        with pytest.raises(LimitError) as caught:
            guard.limit(text)
        assert str(caught.value).endswith(
            f"A decorator takes the limit first, and a key by name: key={text!r}"
        )


def test_a_key_function_in_place_of_the_limit(limiter: Limiter, tasks: AsyncLimiter) -> None:
    """A lambda was never decorated with @, so it is no function to limit."""
    for guard in (limiter, tasks, ConcurrencyLimiter(1)):
        with pytest.raises(TypeError, match=r"a key function is given by name, key=$"):
            guard.limit(lambda user: user)  # type: ignore[call-overload, operator, type-var]
    assert limiter.limit()(lambda: 7)() == 7


@pytest.mark.parametrize("value", [7, 2.5, b"k", ["1/s"]])
def test_what_is_neither(limiter: Limiter, value: Any) -> None:
    with pytest.raises((LimitError, TypeError)):
        limiter.limit(value)


def test_methods_of_all_kinds(limiter: Limiter) -> None:
    class Report:
        @limiter.limit
        def plain(self) -> object:
            return self

        @classmethod
        @limiter.limit
        def of_class(cls) -> object:
            return cls

        @limiter.limit
        @classmethod
        def of_class_outside(cls) -> object:
            return cls

        @staticmethod
        @limiter.limit("3/minute")
        def static(value: int) -> int:
            return value

        @limiter.limit("3/minute")
        @staticmethod
        def static_outside(value: int) -> int:
            return value

    report = Report()
    assert report.plain() is report
    assert Report.of_class() is report.of_class() is Report
    assert Report.of_class_outside() is report.of_class_outside() is Report
    assert (Report.static(1), report.static(2)) == (1, 2)
    assert (Report.static_outside(1), report.static_outside(2)) == (1, 2)
    # Together with the calls before, each had what its limit allows.
    assert passes(report.plain) == 1
    assert passes(report.of_class) == passes(report.of_class_outside) == 0
    assert passes(lambda: report.static(0)) == passes(lambda: report.static_outside(0)) == 1


async def test_objects_with_an_async_call(limiter: Limiter, tasks: AsyncLimiter) -> None:
    class Job:
        async def __call__(self) -> str:
            return "done"

    for guard in (limiter.limit(key="a"), tasks.limit(key="b")):
        job = guard(Job())
        assert inspect.iscoroutinefunction(job)
        assert [await job(), await job()] == ["done", "done"]
        with pytest.raises(LimitExceeded):
            await job()
    breaker = CircuitBreaker(1, ratio=0)

    class Failing:
        async def __call__(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await breaker(Failing())()
    assert breaker.state == "open"


def test_a_generator_is_limited_once_when_it_is_called(limiter: Limiter) -> None:
    @limiter.limit
    def numbers() -> Iterator[int]:
        yield from range(10)

    assert list(numbers()) == list(range(10))
    numbers()
    with pytest.raises(LimitExceeded):
        numbers()


async def test_an_async_generator_is_limited_once_at_its_first_item(
    limiter: Limiter, tasks: AsyncLimiter
) -> None:
    for guard in (limiter.limit(key="a"), tasks.limit(key="b")):

        @guard
        async def numbers(most: int) -> AsyncIterator[int]:
            for number in range(most):
                yield number

        assert inspect.isasyncgenfunction(numbers)
        assert [number async for number in numbers(10)] == list(range(10))
        assert [number async for number in numbers(0)] == []
        never = numbers(10)
        with pytest.raises(LimitExceeded):
            await anext(never)


async def test_an_async_generator_gets_what_is_sent_and_thrown(limiter: Limiter) -> None:
    log: list[Any] = []

    @limiter.limit("10/minute")
    async def echo() -> Any:
        try:
            sent = None
            while sent != "end":
                try:
                    sent = yield sent
                except KeyError as error:
                    sent = repr(error)
        finally:
            log.append("closed")

    items = echo()
    assert await anext(items) is None
    assert await items.asend("one") == "one"
    assert await items.athrow(KeyError("two")) == "KeyError('two')"
    with pytest.raises(StopAsyncIteration):
        await items.asend("end")
    assert log == ["closed"]
    async with aclosing(echo()) as items:
        await anext(items)
    assert log == ["closed", "closed"]
    items = echo()
    await anext(items)
    with pytest.raises(ZeroDivisionError):
        await items.athrow(ZeroDivisionError())
    assert log == ["closed"] * 3


async def test_stacked_async_generators_pass_all_limits_or_take_nothing(limiter: Limiter) -> None:
    inner = Limiter("1/minute", store=limiter.store)

    @limiter.limit("10/minute", key="outer")
    @inner.limit(key="inner")
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    assert [number async for number in numbers()] == [1, 2]
    for _ in range(3):
        with pytest.raises(LimitExceeded):
            await anext(numbers())
    assert limiter.peek("outer", "10/minute").remaining == 9


# Slots ---------------------------------------------------------------------------------------


async def test_concurrency_limiters_follow_the_same_convention() -> None:
    threads, tasks = ConcurrencyLimiter(1), AsyncConcurrencyLimiter(1)

    @threads.limit
    def plain() -> int:
        return threads.state(f"{__name__}.{plain.__qualname__}").running

    @tasks.limit
    async def coroutine() -> int:
        return tasks.state(f"{__name__}.{coroutine.__qualname__}").running

    class Report:
        @threads.limit
        @classmethod
        def make(cls) -> object:
            return cls

    assert (plain(), await coroutine(), Report.make()) == (1, 1, Report)
    for guard in (threads, tasks):
        with pytest.raises(InvalidKey, match=r"^a key is given by name: limit\(key='k'\)$"):
            guard.limit("k")  # type: ignore[call-overload]


# What mypy must accept as it is.
_LIMITER = Limiter("1/s")


@_LIMITER.limit
def _typed(number: int) -> str:
    return str(number)


@_LIMITER.limit("2/s", key="k")
async def _typed_async(number: int) -> str:
    return str(number)


async def test_types_are_kept() -> None:
    text: str = _typed(1)
    assert text == await _typed_async(1) == "1"
