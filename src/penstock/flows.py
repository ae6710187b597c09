"""The only place that drives generators.

A *flow* is a generator that yields what it needs done and is sent the answer, so that logic is
written once for threads and for coroutines; ``do`` is the part that blocks or awaits. There is
one rule for interruption: whatever ``do`` raises, a cancelled task and Ctrl-C included, is
thrown into the flow. The flow may handle it, or clean up, for which it may yield again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Step = TypeVar("Step")
Result = TypeVar("Result")


def run(flow: Generator[Step, Any, Result], do: Callable[[Step], Any]) -> Result:
    """Run a flow to its end in this thread."""
    try:
        step = next(flow)
        while True:
            try:
                answer = do(step)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_async(
    flow: Generator[Step, Any, Result], do: Callable[[Step], Awaitable[Any]]
) -> Result:
    """Run a flow to its end in this task."""
    try:
        step = next(flow)
        while True:
            try:
                answer = await do(step)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
