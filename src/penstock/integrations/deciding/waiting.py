"""Flows that yield what has to be awaited, run in threads and in tasks; see `penstock.flows`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from inspect import isawaitable
from typing import Any, NoReturn, TypeVar

from penstock import flows

T = TypeVar("T")
Flow = Generator[Awaitable[Any], Any, T]


def finish(flow: Flow[T], wait: Callable[[Awaitable[Any]], Any] | None = None) -> T:
    """In a thread. ``wait`` is how the framework waits for a coroutine, if it can."""
    return flows.run(flow, cannot_wait if wait is None else wait)


def finish_async(flow: Flow[T]) -> Coroutine[Any, Any, T]:
    """In a task."""
    return flows.run_async(flow, _itself)


def value(result: Any) -> Flow[Any]:
    """What a user's function returned, awaited if it has to be."""
    if isawaitable(result):
        result = yield result
    return result


async def awaited(waiting: Awaitable[T]) -> T:
    """For frameworks that can only run coroutine functions."""
    return await waiting


def cannot_wait(waiting: Awaitable[object]) -> NoReturn:
    """Where nobody can await what a function returned."""
    close = getattr(waiting, "close", None)
    if close is not None:
        close()
    raise TypeError(
        f"{getattr(waiting, '__qualname__', type(waiting).__name__)} is a coroutine function, "
        "which only asynchronous frameworks can await: give a plain function"
    )


def _itself(waiting: Awaitable[Any]) -> Awaitable[Any]:
    return waiting
