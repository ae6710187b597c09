"""Several limits on one function: all let a call pass, or none takes anything."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import AsyncLimiter, Limiter, LimitExceeded, MemoryStore, StoreError
from penstock.stores.base import Counters
from penstock.testing import FakeClock

Call = Callable[..., Any]


@pytest.fixture(params=["threads", "tasks"])
def decorate(request: pytest.FixtureRequest) -> Callable[..., Call]:
    """``decorate(function, (limiter, key), ...)``: limited by all, the last one outermost."""

    def limited(function: Call, *limits: tuple[Limiter, Any]) -> Call:
        if request.param == "threads":
            for limiter, key in limits:
                function = limiter.limit(key=key)(function)
            return function

        async def coroutine(*args: Any) -> Any:
            return function(*args)

        wrapped: Call = functools.wraps(function)(coroutine)
        for limiter, key in limits:
            tasks = AsyncLimiter(limiter.default.limit, limiter.store)  # type: ignore[union-attr]
            wrapped = tasks.limit(key=key)(wrapped)
        return lambda *args: asyncio.run(wrapped(*args))

    return limited


def by_name(name: str) -> str:
    return name


def refused(call: Call, *args: Any) -> bool:
    try:
        call(*args)
    except LimitExceeded:
        return True
    return False


def test_one_who_is_refused_does_not_empty_what_all_share(decorate: Any) -> None:
    clock = FakeClock()
    everybody = Limiter("10/minute", MemoryStore(clock=clock))
    each = Limiter("2/minute", MemoryStore(clock=clock))
    call = decorate(lambda name: name, (each, by_name), (everybody, "all"))
    assert [refused(call, "greedy") for _ in range(50)] == [False] * 2 + [True] * 48
    assert everybody.peek("all").remaining == 8
    assert not refused(call, "other")


def test_three_limits_and_the_one_in_the_middle_refuses(decorate: Any) -> None:
    store = MemoryStore(clock=FakeClock())
    inner, middle, outer = (Limiter(f"{n}/minute", store) for n in (9, 2, 8))
    call = decorate(lambda: None, (inner, "k"), (middle, "k"), (outer, "k"))
    assert [refused(call) for _ in range(5)] == [False, False, True, True, True]
    assert [limiter.peek("k").remaining for limiter in (inner, middle, outer)] == [7, 0, 6]


def test_the_innermost_refuses_and_both_others_give_back(decorate: Any) -> None:
    store = MemoryStore(clock=FakeClock())
    inner, middle, outer = (Limiter(f"{n}/minute", store) for n in (1, 7, 8))
    call = decorate(lambda: None, (inner, "k"), (middle, "k"), (outer, "k"))
    assert [refused(call) for _ in range(4)] == [False, True, True, True]
    assert [limiter.peek("k").remaining for limiter in (inner, middle, outer)] == [0, 6, 7]


def test_a_refusal_from_within_the_function_gives_nothing_back(decorate: Any) -> None:
    """It has run: what it asked of another limiter is its own affair."""
    store = MemoryStore(clock=FakeClock())
    outer, inner = Limiter("9/minute", store), Limiter("8/minute", store)
    other = Limiter("5/hour", MemoryStore())

    @other.limit(key="k", cost=9)
    def helper() -> None:
        pytest.fail("it was refused")

    call = decorate(lambda: helper(), (inner, "k"), (outer, "k"))
    assert refused(call)
    assert [outer.peek("k").remaining, inner.peek("k").remaining] == [8, 7]


def test_a_function_that_calls_itself_has_run() -> None:
    store = MemoryStore(clock=FakeClock())
    outer, inner = Limiter("9/minute", store), Limiter("2/minute", store)

    @outer.limit(key="k")
    @inner.limit(key="k")
    def deeper(depth: int) -> None:
        if depth:
            deeper(depth - 1)

    assert refused(deeper, 5)
    # Two ran, the third was refused before it could, and gave its unit back.
    assert outer.peek("k").remaining == 7


def passing_on(function: Call) -> Call:
    @functools.wraps(function)
    def around(*args: Any) -> Any:
        return function(*args)

    return around


def test_decorators_of_others_in_between(decorate: Any) -> None:
    store = MemoryStore(clock=FakeClock())
    outer, inner = Limiter("9/minute", store), Limiter("1/minute", store)
    call = outer.limit(key="k")(passing_on(inner.limit(key="k")(lambda: None)))
    assert [refused(call) for _ in range(3)] == [False, True, True]
    assert outer.peek("k").remaining == 8


def test_one_in_between_that_tries_again_after_a_run() -> None:
    store = MemoryStore(clock=FakeClock())
    outer, inner = Limiter("9/minute", store), Limiter("1/minute", store)

    def twice(function: Call) -> Call:
        @functools.wraps(function)
        def around() -> Any:
            with pytest.raises(ZeroDivisionError):
                function()
            return function()

        return around

    def failing() -> None:
        raise ZeroDivisionError

    call = outer.limit(key="k")(twice(inner.limit(key="k")(failing)))
    assert refused(call)
    assert outer.peek("k").remaining == 8, "it ran once"


def test_a_lockout_that_the_inner_one_begins_stays(decorate: Any) -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    outer, inner = Limiter("9/minute", store), Limiter("1/minute lockout 15m", store)
    call = decorate(lambda: None, (inner, "k"), (outer, "k"))
    assert [refused(call), refused(call)] == [False, True]
    assert inner.peek("k").retry_after == 900.0
    assert outer.peek("k").remaining == 8


def test_exactly_what_was_taken_is_given_back() -> None:
    """In a log, the entry of this call, not the newest."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    outer, inner = Limiter("3/minute sliding_log", store), Limiter("1/minute", store)
    inner.hit("k")

    def late(function: Call) -> Call:
        @functools.wraps(function)
        def around() -> Any:
            clock.advance(20)
            outer.hit("k")  # somebody else
            return function()

        return around

    call = outer.limit(key="k")(late(inner.limit(key="k")(lambda: None)))
    assert refused(call)
    assert outer.peek("k").remaining == 2
    clock.advance(41)  # the entry of the call would be gone, the other is not
    assert outer.peek("k").remaining == 2


def test_a_paced_place_is_not_given_back_before_somebody_elses() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    pace = Limiter("1/second burst 10 leaky_bucket", store)
    inner = Limiter("1/hour", store)
    inner.hit("k")

    def behind(count: int) -> Callable[[Call], Call]:
        def decorate(function: Call) -> Call:
            @functools.wraps(function)
            def around() -> Any:
                for _ in range(count):
                    pace.hit("k")
                return function()

            return around

        return decorate

    # Alone, it leaves no gap; before two others, its place passes unused.
    for count, delay in ((0, 0.0), (2, 3.0)):
        call = pace.limit(key="k", timeout=None)(behind(count)(inner.limit(key="k")(lambda: None)))
        assert refused(call)
        assert pace.peek("k").delay == delay


def test_a_store_that_fails_does_not_hide_the_refusal() -> None:
    class Keeping(MemoryStore):
        def make_counters(self, limit: Any) -> Counters:
            counters = super().make_counters(limit)

            class Kept(Counters):
                def hit(self, key: str, cost: int) -> Any:
                    return counters.hit(key, cost)

                def refund(self, *args: Any) -> Any:
                    raise StoreError("gone")

            return Kept(limit, None)

    outer, inner = Limiter("9/minute", Keeping()), Limiter("1/minute")
    call = outer.limit(key="k")(inner.limit(key="k")(lambda: None))
    assert [refused(call), refused(call)] == [False, True]


def test_many_at_once_take_exactly_what_ran() -> None:
    store = MemoryStore(clock=FakeClock())
    outer, inner = Limiter("1000/minute", store), Limiter("7/minute", store)
    ran: list[str] = []
    lock = threading.Lock()

    @outer.limit(key="all")
    @inner.limit(key=by_name)
    def call(name: str) -> None:
        with lock:
            ran.append(name)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: refused(call, f"user {at % 3}"), range(600)))
    assert len(ran) == 21
    assert outer.peek("all").remaining == 1000 - 21
