"""Flows yield what has to be awaited. They run in threads and in tasks; see `penstock.flows`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
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
    """What a user's function returned, awaited if necessary."""
    if isawaitable(result):
        result = yield result
    return result


def all_of(results: Iterable[Awaitable[Any]]) -> Flow[None]:
    """Await all of them, one after the other."""
    for result in results:  # noqa: UP028 - a list takes no value that is sent
        yield result


async def awaited(waiting: Awaitable[T]) -> T:
    """For frameworks that can only run coroutine functions."""
    return await waiting


def cannot_wait(waiting: Awaitable[object]) -> NoReturn:
    close = getattr(waiting, "close", None)
    if close is not None:
        close()
    raise TypeError(
        f"{getattr(waiting, '__qualname__', type(waiting).__name__)} is a coroutine function, "
        "which only asynchronous frameworks can await: give a plain function"
    )


def _itself(waiting: Awaitable[Any]) -> Awaitable[Any]:
    return waiting
