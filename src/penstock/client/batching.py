"""`batch`: merges many small calls into one.

A function that takes a list is called with one item by each of many callers. Their items are
gathered until there are ``size`` of them or the first has waited for ``within`` seconds; then the
function is called once, and each caller gets its own part of the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from penstock.client.batch_tasks import AsyncBatch
from penstock.client.batch_threads import Batch
from penstock.clock import Clock
from penstock.stores.base import check_clock

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Decorator:
    """What `batch` returns: a decorator for functions of both kinds."""

    def __init__(self, size: int, within: float, clock: Clock | None) -> None:
        self._options = size, within, clock

    @overload
    def __call__(
        self, function: Callable[[list[Item]], Awaitable[Mapping[Item, Result] | Sequence[Result]]]
    ) -> AsyncBatch[Item, Result]: ...
    @overload
    def __call__(
        self, function: Callable[[list[Item]], Mapping[Item, Result] | Sequence[Result]]
    ) -> Batch[Item, Result]: ...
    def __call__(self, function: Callable[[list[Any]], Any]) -> Any:
        if not callable(function):
            raise TypeError(f"@batch(size=100) decorates a function, not {function!r:.100}")
        if inspect.iscoroutinefunction(function):
            return AsyncBatch(function, *self._options)
        return Batch(function, *self._options)


def batch(size: int = 100, within: float = 0.01, *, clock: Clock | None = None) -> _Decorator:
    """``@batch(size=100, within=0.01)``: callers give one item each, the function gets a list.

    The function, sync or async, returns as many results as it was given items, in their order, or
    a mapping from item to result. A result that is an exception is raised to its caller; what the
    function raises is raised to every caller of that batch.
    """
    if type(size) is not int or size < 1:
        raise ValueError(f"size must be a whole number of at least 1, not {size!r:.100}")
    if isinstance(within, bool) or not isinstance(within, (int, float)) or not 0 <= within < 1e6:
        raise ValueError(f"within must be a number of seconds of at least 0, not {within!r:.100}")
    return _Decorator(size, within, check_clock(clock))
