"""Blocks and decorated functions that run only when their limit allows it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeGuard, TypeVar, cast

from penstock.decision import Decision
from penstock.errors import InvalidKey, LimitExceeded, StoreError
from penstock.steps import drive, drive_async
from penstock.waiting import Flow

F = TypeVar("F", bound=Callable[..., Any])
Key = str | Callable[..., Any]
# Begins a wait for a key; the limiter has added the limit, the cost and the time-out.
Begin = Callable[[str], Flow]
# Gives back what a decision took from a key.
GiveBack = Callable[[str, Decision], Flow]


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


def limit_calls(
    key: Key | None, begin: Begin, begin_async: Begin, give_back: GiveBack
) -> Callable[[F], F]:
    """A decorator for functions, sync or async."""

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):
            return cast(F, _limited_async(function, key, begin_async, give_back))
        return cast(F, _limited(function, key, begin, give_back))

    return decorate


class _Stack:
    """One call of a function with several limits: all let it pass, or none takes anything."""

    __slots__ = ("function", "ran", "refusal")

    def __init__(self, function: object) -> None:
        self.function = function
        self.ran = False
        self.refusal: LimitExceeded | None = None

    def gave_up(self, error: LimitExceeded) -> bool:
        """Whether this is the refusal of one of the limits, and the function has not run."""
        return error is self.refusal and not self.ran


# The stack that this call belongs to. A function that calls itself begins another.
_stack: ContextVar[_Stack | None] = ContextVar("penstock_stack", default=None)
# On a decorated function: the innermost function, without any limit. `functools.wraps` carries
# it on, so that a limit is seen through other decorators, too.
_LIMITED = "__penstock_limited__"


def _stack_of(function: object) -> _Stack:
    """The stack that the limits around us began, or a new one."""
    stack = _stack.get()
    return stack if _is_open(stack, function) else _Stack(function)


def _is_open(stack: _Stack | None, function: object) -> TypeGuard[_Stack]:
    return stack is not None and stack.function is function and not stack.ran


def _limited(
    function: Callable[..., Any], key: Key | None, begin: Begin, give_back: GiveBack
) -> Callable[..., Any]:
    key = checked_key(key, function, False)
    innermost = getattr(function, _LIMITED, function)

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        name = key(*args, **kwargs) if callable(key) else key
        stack = _stack_of(innermost)
        try:
            decision = _entered(name, drive(begin(name)))
        except LimitExceeded as error:
            stack.refusal = error
            raise
        if function is innermost:
            stack.ran = True
            return function(*args, **kwargs)
        token = _stack.set(stack)
        try:
            return function(*args, **kwargs)
        except LimitExceeded as error:
            if stack.gave_up(error):
                with contextlib.suppress(StoreError):
                    drive(give_back(name, decision))
            raise
        finally:
            _stack.reset(token)

    setattr(limited, _LIMITED, innermost)
    return limited


def _limited_async(
    function: Callable[..., Any], key: Key | None, begin: Begin, give_back: GiveBack
) -> Callable[..., Any]:
    key = checked_key(key, function, True)
    innermost = getattr(function, _LIMITED, function)

    @functools.wraps(function)
    async def limited(*args: Any, **kwargs: Any) -> Any:
        name = key(*args, **kwargs) if callable(key) else key
        if inspect.isawaitable(name):
            name = await name
        stack = _stack_of(innermost)
        try:
            decision = _entered(name, await drive_async(begin(name)))
        except LimitExceeded as error:
            stack.refusal = error
            raise
        if function is innermost:
            stack.ran = True
            return await function(*args, **kwargs)
        token = _stack.set(stack)
        try:
            return await function(*args, **kwargs)
        except LimitExceeded as error:
            if stack.gave_up(error):
                with contextlib.suppress(StoreError):
                    await drive_async(give_back(name, decision))
            raise
        finally:
            _stack.reset(token)

    setattr(limited, _LIMITED, innermost)
    return limited


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
