"""Functions that run in a slot, sync or async as they are themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from penstock.concurrency.slot import AsyncSlot, Slot
from penstock.decorators import Key, checked_key

F = TypeVar("F", bound=Callable[..., Any])
# A function of the call's arguments, or one value for all calls.
By = Hashable | Callable[..., Any]


def in_slots(
    key: Key | None,
    by: By,
    slot: Callable[[Any, Any], Slot],
    async_slot: Callable[[Any, Any], AsyncSlot],
) -> Callable[[F], F]:
    """A decorator; ``slot`` returns a block for a key and a ``by``."""

    def decorate(function: F) -> F:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function!r} is a generator, which runs after it was called: use"
                " 'with concurrency.slot(...)' inside it"
            )
        is_async = inspect.iscoroutinefunction(function)
        if inspect.iscoroutinefunction(by) and not is_async:
            raise TypeError(f"{function!r} is not async, so its by cannot be either")
        name = checked_key(key, function, is_async)
        if is_async:

            @functools.wraps(function)
            async def in_slot_async(*args: Any, **kwargs: Any) -> Any:
                found = [_of_call(value, args, kwargs) for value in (name, by)]
                found = [await value if inspect.isawaitable(value) else value for value in found]
                async with async_slot(*found):
                    return await function(*args, **kwargs)

            return cast(F, in_slot_async)

        @functools.wraps(function)
        def in_slot(*args: Any, **kwargs: Any) -> Any:
            with slot(_of_call(name, args, kwargs), _of_call(by, args, kwargs)):
                return function(*args, **kwargs)

        return cast(F, in_slot)

    return decorate


def _of_call(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return value(*args, **kwargs) if callable(value) else value
