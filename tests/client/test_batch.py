"""Many small calls that become one: for tasks, and for threads."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import PenstockError
from penstock.client import batch
from penstock.testing import FakeClock


class Doubler:
    """Notes what it was called with."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    async def double(self, items: list[int]) -> list[int]:
        self.calls.append(items)
        await asyncio.sleep(0)
        return [2 * item for item in items]

    def double_now(self, items: list[int]) -> list[int]:
        self.calls.append(items)
        return [2 * item for item in items]


async def test_a_full_batch_leaves_at_once_and_the_rest_when_time_is_up() -> None:
    clock, doubler = FakeClock(autojump=False), Doubler()
    double = batch(size=3, within=0.01, clock=clock)(doubler.double)
    tasks = [asyncio.create_task(double(number)) for number in range(7)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert doubler.calls == [[0, 1, 2], [3, 4, 5]]
    clock.advance(0.009)
    await asyncio.sleep(0.001)
    assert len(doubler.calls) == 2
    clock.advance(0.001)
    assert await asyncio.gather(*tasks) == [0, 2, 4, 6, 8, 10, 12]
    assert doubler.calls[2:] == [[6]]


async def test_without_time_those_of_one_turn_are_merged() -> None:
    doubler = Doubler()
    double = batch(size=100, within=0)(doubler.double)
    assert await asyncio.gather(*(double(number) for number in range(5))) == [0, 2, 4, 6, 8]
    assert doubler.calls == [[0, 1, 2, 3, 4]]
    assert await double(1) == 2


async def test_a_mapping_will_do_and_may_lack_some() -> None:
    @batch(within=0)
    async def names(numbers: list[int]) -> dict[int, str]:
        return {number: str(number) for number in numbers if number != 2}

    done = await asyncio.gather(*(names(number) for number in (1, 2, 1)), return_exceptions=True)
    assert done[0] == done[2] == "1"
    assert isinstance(done[1], PenstockError)
    assert "names returned nothing for 2" in str(done[1])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([1], "returned 1 results for 2 items"),
        ([1, 2, 3], "returned 3 results for 2 items"),
        (
            None,
            "must return a list with a result for each item, or a mapping by item, not NoneType",
        ),
        ("ab", "not str"),
        (7, "not int"),
    ],
)
async def test_a_wrong_answer_is_said_to_every_caller(answer: Any, message: str) -> None:
    @batch(within=0)
    async def wrong(items: list[int]) -> Any:
        return answer

    @batch(size=2, within=5)
    def wrong_now(items: list[int]) -> Any:
        return answer

    done = await asyncio.gather(wrong(1), wrong(2), return_exceptions=True)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(wrong_now, number) for number in range(2)]
        done += [future.exception() for future in futures]
    for error in done:
        assert isinstance(error, PenstockError)
        assert message in str(error)


async def test_what_it_raises_every_caller_gets_and_the_next_batch_is_another() -> None:
    calls = 0

    @batch(within=0)
    async def shaky(items: list[int]) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("down")
        return items

    done = await asyncio.gather(shaky(1), shaky(2), return_exceptions=True)
    assert [str(error) for error in done] == ["down", "down"]
    assert await shaky(3) == 3


async def test_a_result_may_be_an_error_of_its_own() -> None:
    @batch(within=0)
    async def halves(items: list[int]) -> list[Any]:
        odd = {1: ValueError("odd"), 3: StopIteration()}
        return [odd.get(item, item // 2) for item in items]

    done = await asyncio.gather(*(halves(number) for number in range(5)), return_exceptions=True)
    assert done[::2] == [0, 1, 2]
    assert [type(each) for each in done[1::2]] == [ValueError, RuntimeError]


async def test_who_is_cancelled_is_left_out() -> None:
    clock, doubler = FakeClock(autojump=False), Doubler()
    double = batch(size=3, within=0.01, clock=clock)(doubler.double)
    tasks = [asyncio.create_task(double(number)) for number in (1, 2)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(double(number)) for number in (3, 4)]
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each).__name__ for each in done] == ["CancelledError", "int", "int", "int"]
    assert doubler.calls == [[2, 3, 4]]


async def test_if_all_are_cancelled_nothing_is_called() -> None:
    doubler = Doubler()
    double = batch(size=3, within=0.001)(doubler.double)
    task = asyncio.create_task(double(1))
    await asyncio.sleep(0)
    task.cancel()
    await double.flush()
    assert doubler.calls == []
    assert await double(2) == 4


async def test_who_is_cancelled_during_the_call_harms_nobody() -> None:
    begun = asyncio.Event()

    @batch(size=2, within=1)
    async def slow(items: list[int]) -> list[int]:
        begun.set()
        await asyncio.sleep(0.005)
        return items

    tasks = [asyncio.create_task(slow(number)) for number in (1, 2)]
    await begun.wait()
    tasks[0].cancel()
    assert await tasks[1] == 2


async def test_flush_and_close() -> None:
    doubler = Doubler()
    double = batch(size=100, within=60)(doubler.double)
    task = asyncio.create_task(double(1))
    await asyncio.sleep(0)
    await double.flush()
    assert await task == 2
    task = asyncio.create_task(double(2))
    await asyncio.sleep(0)
    await double.close()
    assert await task == 4
    with pytest.raises(PenstockError, match=r"Doubler\.double was closed"):
        await double(3)
    await double.flush()


def test_it_works_in_one_event_loop_after_another() -> None:
    doubler = Doubler()
    double = batch(size=2, within=0.001)(doubler.double)

    async def main() -> list[int]:
        return await asyncio.gather(*(double(number) for number in range(3)))

    assert asyncio.run(main()) == asyncio.run(main()) == [0, 2, 4]
    assert double.__name__ == "double"
    assert double.__doc__ == doubler.double.__doc__


@given(st.integers(1, 9), st.integers(1, 40), st.sets(st.integers(0, 39)), st.integers())
def test_no_caller_is_lost(size: int, callers: int, cancelled: set[int], seed: int) -> None:
    async def main() -> None:
        chance, doubler, clock = random.Random(seed), Doubler(), FakeClock()
        double = batch(size=size, within=0.01, clock=clock)(doubler.double)

        async def call(number: int) -> int:
            await clock.sleep_async(chance.random() * 0.05)
            return await double(number)

        tasks = [asyncio.create_task(call(number)) for number in range(callers)]
        for number in sorted(cancelled & set(range(callers))):
            await asyncio.sleep(0)
            tasks[number].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for number, result in enumerate(done):
            if number in cancelled:
                assert isinstance(result, asyncio.CancelledError) or result == 2 * number
            else:
                assert result == 2 * number
        assert all(len(items) <= size for items in doubler.calls)
        seen = [item for items in doubler.calls for item in items]
        assert len(seen) == len(set(seen))
        await double.close()
        assert double._tasks == set()

    asyncio.run(main())


# Threads -----------------------------------------------------------------------------------


def test_threads_are_merged_too() -> None:
    doubler = Doubler()
    double = batch(size=8, within=5)(doubler.double_now)
    before = threading.active_count()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(double, range(16))) == [2 * number for number in range(16)]
    assert sorted(len(call) for call in doubler.calls) == [8, 8]
    assert threading.active_count() == before, "no thread of ours"


def test_a_thread_alone_waits_no_longer_than_it_must() -> None:
    clock, doubler = FakeClock(), Doubler()
    double = batch(size=8, within=0.5, clock=clock)(doubler.double_now)
    began = clock.now()
    assert double(1) == 2
    assert clock.now() - began == 500_000_000
    once = batch(size=1, within=60)(doubler.double_now)
    assert once(1) == 2


def test_many_threads_many_batches() -> None:
    doubler = Doubler()
    double = batch(size=5, within=0.001)(doubler.double_now)
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(double, range(500))) == [2 * number for number in range(500)]
    assert sum(len(call) for call in doubler.calls) == 500
    assert max(len(call) for call in doubler.calls) <= 5


def test_a_thread_that_flushes_makes_the_call() -> None:
    doubler = Doubler()
    double = batch(size=8, within=60)(doubler.double_now)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(double, number) for number in range(3)]
        while sum(len(call) for call in doubler.calls) < 3:
            double.flush()
        double.close()
        assert sorted(future.result(5) for future in futures) == [0, 2, 4]
    with pytest.raises(PenstockError, match="was closed"):
        double(1)


def test_who_leads_and_is_interrupted_hands_over() -> None:
    class Interrupting(FakeClock):
        def __init__(self) -> None:
            super().__init__()
            self.came = threading.Event()
            self.interrupted = False

        def sleep(self, seconds: float) -> None:
            if not self.interrupted:
                self.interrupted = True
                self.came.wait(60)
                raise KeyboardInterrupt
            super().sleep(seconds)

    clock, doubler = Interrupting(), Doubler()
    double = batch(size=3, within=0.01, clock=clock)(doubler.double_now)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(double, 1)
        while not clock.interrupted:
            pass
        second = pool.submit(double, 2)
        while len(double._open or []) < 2:
            pass
        clock.came.set()
        assert second.result(5) == 4
        with pytest.raises(KeyboardInterrupt):
            first.result(5)
    assert doubler.calls == [[2]]


def test_the_others_hear_of_it_when_the_calling_thread_is_interrupted() -> None:
    @batch(size=2, within=5)
    def interrupted(items: list[int]) -> list[int]:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(interrupted, number) for number in range(2)]
        kinds = {type(future.exception(5)) for future in futures}
    assert kinds == {KeyboardInterrupt, PenstockError}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number of at least 1, not 0"),
        ({"size": 1.5}, "size must be a whole number of at least 1, not 1.5"),
        ({"within": -1}, "within must be a number of seconds of at least 0, not -1"),
        ({"within": "1"}, "within must be a number of seconds of at least 0, not '1'"),
        ({"clock": 1}, "a clock has now"),
    ],
)
def test_a_wrong_option_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        batch(**options)


def test_it_wants_a_function() -> None:
    with pytest.raises(TypeError, match="decorates a function, not 3"):
        batch()(3)  # type: ignore[call-overload]
