"""The cost of a decorated function may depend on its arguments; 0 is free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import AsyncLimiter, InvalidCost, Limiter, LimitExceeded, MemoryStore
from penstock.testing import FakeClock


def limiter_of(text: str = "10/hour") -> Limiter:
    return Limiter(text, MemoryStore(clock=FakeClock()))


@pytest.mark.parametrize("text", ["10/hour", "10/hour; 10/day"])
def test_the_arguments_decide(text: str) -> None:
    limiter = limiter_of(text)

    @limiter.limit(key="k", cost=lambda rows, **options: len(rows))
    def insert(rows: list[int], *, now: bool = False) -> int:
        return len(rows)

    assert insert([1] * 7) == 7
    with pytest.raises(LimitExceeded):
        insert([1] * 4, now=True)
    assert insert([1] * 3, now=True) == 3
    assert limiter.peek("k").remaining == 0
    assert [insert([]) for _ in range(5)] == [0] * 5  # nothing to insert costs nothing


def test_a_free_call_needs_no_key() -> None:
    limiter = limiter_of("1/hour")

    def key_of(user: dict[str, str]) -> str:
        return user["name"]

    @limiter.limit(key=key_of, cost=lambda user: 1 if user else 0)
    def visit(user: dict[str, str]) -> str:
        return "welcome"

    assert [visit({}) for _ in range(3)] == ["welcome"] * 3
    assert visit({"name": "ann"}) == "welcome"
    with pytest.raises(LimitExceeded):
        visit({"name": "ann"})


@pytest.mark.parametrize("wrong", [-1, 1.5, None, "1", True, False])
def test_a_wrong_cost_is_an_error_of_the_call(wrong: Any) -> None:
    limiter = limiter_of()
    with pytest.raises(InvalidCost, match="cost is"):
        limiter.limit(cost=lambda: wrong)(lambda: None)()
    if wrong is not False:
        with pytest.raises(InvalidCost):
            limiter.limit(cost=wrong)


def test_a_fixed_cost_of_nothing_is_an_error_while_decorating() -> None:
    with pytest.raises(InvalidCost):
        limiter_of().limit(cost=0)


def test_of_several_limits_a_free_one_takes_nothing_and_gives_nothing_back() -> None:
    outer, inner = limiter_of(), limiter_of("1/hour")

    @outer.limit(key="o", cost=lambda units: units)
    @inner.limit(key="i")
    def work(units: int) -> int:
        return units

    assert work(0) == 0
    for units in (0, 4):
        with pytest.raises(LimitExceeded):  # by the inner one, so the outer one gives back
            work(units)
    assert outer.peek("o").remaining == 10


def test_a_function_that_calls_itself_pays_each_time() -> None:
    limiter = limiter_of()

    @limiter.limit(key="k", cost=lambda depth: 2 if depth else 0)
    def dive(depth: int) -> int:
        return 0 if depth == 0 else 1 + dive(depth - 1)

    assert dive(3) == 3
    assert limiter.peek("k").remaining == 4


def test_coroutines_and_async_generators_may_ask_for_their_cost() -> None:
    limiter = AsyncLimiter("10/hour", MemoryStore(clock=FakeClock()))

    async def price(count: int) -> int:
        await asyncio.sleep(0)
        return count

    @limiter.limit(key="k", cost=price)
    async def work(count: int) -> int:
        return count

    @limiter.limit(key="k", cost=price)
    async def stream(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    async def main() -> None:
        assert [await work(0) for _ in range(3)] == [0] * 3
        assert [item async for item in stream(0)] == []
        assert await work(4) == 4
        assert [item async for item in stream(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(LimitExceeded):
            await work(2)
        assert (await limiter.peek("k")).remaining == 1

    asyncio.run(main())
    with pytest.raises(InvalidCost, match="is not async, so its cost cannot be either"):
        limiter_of().limit(cost=price)(lambda count: count)
