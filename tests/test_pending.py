"""What an async verb returns: it works as a coroutine, and not as the decision it is not yet."""

from __future__ import annotations

import asyncio
import gc
import inspect
import operator
import warnings
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

import pytest

from penstock import AsyncGate, AsyncLimiter, InvalidKey, LimitError, MemoryStore
from penstock.stores.base import Counters, Store
from penstock.testing import FakeClock

RULES = {"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]}


class Elsewhere(MemoryStore):
    """A store whose answers come later."""

    waits = True

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.answers: list[asyncio.Future[Any]] = []

    def counters(self, limit: Any) -> Counters:
        return Later(super().counters(limit), self.answers)


class Later(Counters):
    def __init__(self, counters: Counters, answers: list[asyncio.Future[Any]]) -> None:
        super().__init__(counters.limit, counters.clock)
        self._counters = counters
        self._answers = answers

    async def submit(self, verb: str, *args: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        await answer
        return getattr(self._counters, verb)(*args)


@pytest.fixture(params=["memory", "elsewhere"])
def limiter(request: pytest.FixtureRequest) -> AsyncLimiter:
    store: Store = MemoryStore(clock=FakeClock()) if request.param == "memory" else Elsewhere()
    return AsyncLimiter("2/minute", store)


async def answering(limiter: AsyncLimiter, result: Any) -> Any:
    """Await ``result`` while the store answers what it is asked."""
    task = asyncio.ensure_future(result)
    while not task.done():
        await asyncio.sleep(0)
        for answer in getattr(limiter.store, "answers", []):
            if not answer.done():
                answer.set_result(None)
    return await task


def drop_new(call: Callable[[AsyncLimiter], object], limiter: AsyncLimiter) -> None:
    call(limiter)
    gc.collect()


CALLS: dict[str, Callable[[AsyncLimiter], Coroutine[Any, Any, Any]]] = {
    "hit": lambda limiter: limiter.hit("k"),
    "peek": lambda limiter: limiter.peek("k"),
    "hit_many": lambda limiter: limiter.hit_many(["k"]),
    "hit_all": lambda limiter: limiter.hit_all([("k", None)]),
    "wait": lambda limiter: limiter.wait("k"),
    "check": lambda limiter: AsyncGate.from_rules(RULES).check({"user": "1"}),
}


@pytest.mark.parametrize("verb", CALLS)
def test_it_is_no_decision_yet(verb: str) -> None:
    pending: Any = CALLS[verb](AsyncLimiter("2/minute"))
    mistakes: list[Callable[[], object]] = [
        lambda: bool(pending),
        lambda: not pending,
        lambda: pending.allowed,
        lambda: pending.remaining,
        *[
            lambda compare=compare: compare(pending, True)  # type: ignore[misc]
            for compare in (operator.eq, operator.ne, operator.lt, operator.gt, operator.le)
        ],
        lambda: pending >= 1,
    ]
    for mistake in mistakes:
        with pytest.raises(TypeError, match=rf"^{verb}\(\) is .* write 'await \.\.\.{verb}\("):
            mistake()
    assert repr(pending) == f"<{verb}(), not awaited yet>"
    pending.close()


@pytest.mark.parametrize("verb", CALLS)
def test_one_that_is_never_awaited_warns_and_takes_nothing(verb: str) -> None:
    limiter = AsyncLimiter("2/minute")
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match=rf"^coroutine '\w+\.{verb}' was never awaited$"):
            drop_new(CALLS[verb], limiter)
    assert asyncio.run(limiter.peek("k")).remaining == 2


@pytest.mark.parametrize("verb", CALLS)
async def test_one_that_was_awaited_or_closed_does_not_warn(verb: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limiter = AsyncLimiter("2/minute")
        assert await CALLS[verb](limiter)
        CALLS[verb](limiter).close()
        assert await asyncio.create_task(CALLS[verb](limiter))
        gc.collect()


async def test_every_way_to_wait_for_a_hit(limiter: AsyncLimiter) -> None:
    ways: list[Callable[[Coroutine[Any, Any, Any]], Any]] = [
        lambda hit: hit,
        asyncio.create_task,
        asyncio.ensure_future,
        lambda hit: asyncio.wait_for(hit, 60),
        lambda hit: asyncio.shield(hit),
    ]
    for way in ways:
        await answering(limiter, limiter.reset("k"))
        for expected in (True, True, False):
            assert (await answering(limiter, way(limiter.hit("k")))).allowed is expected
    await answering(limiter, limiter.reset("k"))
    decisions = await answering(limiter, asyncio.gather(*[limiter.hit("k") for _ in range(3)]))
    assert [decision.allowed for decision in decisions] == [True, True, False]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(limiter.hit("k"))
        await answering(limiter, asyncio.sleep(0))
    assert not task.result()
    async with asyncio.timeout(60):
        assert not await answering(limiter, limiter.hit("k"))


def test_a_program_may_be_one_hit() -> None:
    assert asyncio.run(AsyncLimiter("2/minute").hit("k")).remaining == 1
    assert asyncio.run(AsyncLimiter("2/minute").hit("k"), debug=True).remaining == 1


async def test_it_can_be_awaited_once(limiter: AsyncLimiter) -> None:
    hit = limiter.hit("k")
    assert await answering(limiter, hit)
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        await hit
    closed = limiter.hit("k")
    closed.close()
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        await closed


async def test_a_cancelled_task_takes_nothing(limiter: AsyncLimiter) -> None:
    task = asyncio.create_task(limiter.hit("k"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await answering(limiter, limiter.peek("k"))).remaining == 2


async def test_errors_come_out(limiter: AsyncLimiter) -> None:
    with pytest.raises(InvalidKey):
        await answering(limiter, limiter.hit(""))
    with pytest.raises(LimitError):
        await limiter.hit("k", "5 apples")
    with pytest.raises(LimitError):
        await AsyncLimiter().hit("k")


def test_others_see_a_coroutine(limiter: AsyncLimiter) -> None:
    for verb in ("hit", "peek", "hit_many", "hit_all", "wait", "refund", "reset"):
        assert asyncio.iscoroutinefunction(getattr(limiter, verb))
    hit = limiter.hit("k")
    assert asyncio.iscoroutine(hit)
    assert inspect.isawaitable(hit)
    assert not hasattr(hit, "cr_code")
    hit.close()


async def test_a_mock_of_a_limiter_is_awaited() -> None:
    limiter = AsyncLimiter("2/minute")
    with mock.patch.object(limiter, "hit") as hit:
        hit.return_value = "mocked"
        assert await limiter.hit("k") == "mocked"  # type: ignore[comparison-overlap]
    with mock.patch("penstock.AsyncLimiter.peek") as peek:
        peek.return_value = "mocked"
        assert await limiter.peek("k") == "mocked"  # type: ignore[comparison-overlap]
    spec = mock.create_autospec(AsyncLimiter, instance=True)
    spec.hit.return_value = "mocked"
    assert await spec.hit("k") == "mocked"
