"""Guards: a block or a function that runs only when its limit allows it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from penstock.decision import Decision
from penstock.drivers import drive, drive_async
from penstock.errors import InvalidKey, LimitExceeded
from penstock.flow import Flow

F = TypeVar("F", bound=Callable[..., Any])
Key = str | Callable[..., Any]
# Begins a wait for a key; each limiter knows by which limit, at what cost, how long.
Begin = Callable[[str], Flow]


class Slot:
    """``with limiter.slot(key):`` waits for its turn, or raises `LimitExceeded`."""

    def __init__(self, begin: Begin, key: str) -> None:
        self._begin = begin
        self._key = key

    def __enter__(self) -> Decision:
        return _entered(self._key, drive(self._begin(self._key)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to give back: what was taken was used."""


class AsyncSlot:
    """``async with limiter.slot(key):`` waits for its turn, or raises `LimitExceeded`."""

    def __init__(self, begin: Begin, key: str) -> None:
        self._begin = begin
        self._key = key

    async def __aenter__(self) -> Decision:
        return _entered(self._key, await drive_async(self._begin(self._key)))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to give back: what was taken was used."""


def _entered(key: str, decision: Decision) -> Decision:
    if not decision:
        raise LimitExceeded(key, decision)
    return decision


def guarding(key: Key | None, begin: Begin, begin_async: Begin) -> Callable[[F], F]:
    """A decorator that puts functions behind a slot, sync or async as they are themselves."""

    def decorate(function: F) -> F:
        return cast(F, _guarded(function, key, begin, begin_async))

    return decorate


def _guarded(
    function: Callable[..., Any], key: Key | None, begin: Begin, begin_async: Begin
) -> Callable[..., Any]:
    is_async = inspect.iscoroutinefunction(function)
    name = checked_key(key, function, is_async)
    if is_async:

        @functools.wraps(function)
        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            found = name(*args, **kwargs) if callable(name) else name
            if inspect.isawaitable(found):
                found = await found
            async with AsyncSlot(begin_async, found):
                return await function(*args, **kwargs)

        return guarded_async

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        with Slot(begin, name(*args, **kwargs) if callable(name) else name):
            return function(*args, **kwargs)

    return guarded


def checked_key(key: Key | None, function: Callable[..., Any], is_async: bool) -> Key:
    """The key, by default the function's own name, checked while decorating."""
    if key is None:
        name = getattr(function, "__qualname__", None)
        if name is None:
            raise InvalidKey(f"{function!r} has no name to be its key: give key=")
        return f"{function.__module__}.{name}"
    if not callable(key) and not (isinstance(key, str) and key):
        raise InvalidKey(f"key is a non-empty str or a function of the call, not {key!r}")
    if inspect.iscoroutinefunction(key) and not is_async:
        raise InvalidKey(f"{function!r} is not async, so its key cannot be either")
    return key
