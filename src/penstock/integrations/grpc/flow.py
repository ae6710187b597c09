"""One way of deciding for threads and for coroutines.

A flow is a generator that yields only what has to be awaited. What waiting for it raises is
thrown into the flow, which may know what to do about it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from inspect import isawaitable
from typing import Any, TypeVar

from penstock.integrations.descriptors import no_waiting

T = TypeVar("T")
Flow = Generator[Awaitable[Any], Any, T]


def value(found: Any) -> Flow[Any]:
    """What a function gave, also if it has to be awaited."""
    if isawaitable(found):
        found = yield found
    return found


def drive(flow: Flow[T]) -> T:
    """In a thread, where nothing can be awaited."""
    try:
        waiting = next(flow)
    except StopIteration as end:
        result: T = end.value
        return result
    raise no_waiting(waiting)


async def drive_async(flow: Flow[T]) -> T:
    """In a task."""
    try:
        waiting = next(flow)
        while True:
            try:
                found = await waiting
            except BaseException as error:
                waiting = flow.throw(error)
            else:
                waiting = flow.send(found)
    except StopIteration as end:
        result: T = end.value
        return result
