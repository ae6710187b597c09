"""Both drivers: answers go in, what interrupts goes in, cleaning up may yield."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from penstock import flows

Flow = Generator[str, Any, Any]
Run = Callable[[Flow, Callable[[str], Any]], Any]


def in_a_task(flow: Flow, do: Callable[[str], Any]) -> Any:
    async def do_async(step: str) -> Any:
        await asyncio.sleep(0)
        return do(step)

    return asyncio.run(flows.run_async(flow, do_async))


@pytest.fixture(params=[flows.run, in_a_task], ids=["thread", "task"])
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return runner


def test_answers_are_sent_and_the_result_is_returned(run: Run) -> None:
    def flow() -> Flow:
        first = yield "a"
        second = yield "b"
        return first + second

    assert run(flow(), lambda step: step * 2) == "aabb"


def test_a_flow_that_needs_nothing(run: Run) -> None:
    def flow() -> Flow:
        return 7
        yield ""

    assert run(flow(), lambda step: pytest.fail("nothing to do")) == 7


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
def test_what_interrupts_is_thrown_in_and_cleaning_up_may_yield(
    run: Run, kind: type[BaseException]
) -> None:
    done = []

    def do(step: str) -> str:
        done.append(step)
        if step == "work":
            raise kind("interrupted")
        return "cleaned"

    def flow() -> Flow:
        try:
            yield "work"
        finally:
            done.append((yield "clean up"))

    with pytest.raises(kind):
        run(flow(), do)
    assert done == ["work", "clean up", "cleaned"]


def test_a_flow_may_handle_it(run: Run) -> None:
    def do(step: str) -> str:
        if step == "work":
            raise ValueError("no")
        return step

    def flow() -> Flow:
        try:
            yield "work"
        except ValueError:
            return (yield "instead")

    assert run(flow(), do) == "instead"


async def test_a_cancelled_task_is_thrown_in() -> None:
    cleaned = []

    async def do(step: str) -> None:
        if step == "wait":
            await asyncio.Event().wait()
        cleaned.append(step)

    def flow() -> Flow:
        try:
            yield "wait"
        finally:
            yield "clean up"

    task = asyncio.ensure_future(flows.run_async(flow(), do))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == ["clean up"]
