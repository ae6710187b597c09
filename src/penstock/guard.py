"""Guards: a block or a function that runs only when its limit allows it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeGuard, TypeVar, cast

from penstock.decision import Decision
from penstock.drivers import drive, drive_async
from penstock.errors import InvalidKey, LimitExceeded, StoreError
from penstock.flow import Flow

F = TypeVar("F", bound=Callable[..., Any])
Key = str | Callable[..., Any]
# Begins a wait for a key; each limiter knows by which limit, at what cost, how long.
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


def guarding(
    key: Key | None, begin: Begin, begin_async: Begin, give_back: GiveBack
) -> Callable[[F], F]:
    """A decorator that puts functions behind a slot, sync or async as they are themselves."""

    def decorate(function: F) -> F:
        made = _guarded_async if inspect.iscoroutinefunction(function) else _guarded
        started = begin_async if made is _guarded_async else begin
        return cast(F, made(function, key, started, give_back))

    return decorate


class _Stack:
    """One call of a function with several guards: all let it pass, or none takes anything."""

    __slots__ = ("function", "ran", "refusal")

    def __init__(self, function: object) -> None:
        self.function = function
        self.ran = False
        self.refusal: LimitExceeded | None = None

    def gave_up(self, error: LimitExceeded) -> bool:
        """Whether this is a guard's refusal, and the function has not run."""
        return error is self.refusal and not self.ran


# The stack that this call belongs to. A function that runs, and is called again by itself,
# begins another.
_stack: ContextVar[_Stack | None] = ContextVar("penstock_stack", default=None)
# On what a guard returns: the function that it guards in the end. `functools.wraps` carries it
# on, so that a guard sees another below it through decorators of other people.
_GUARDS = "__penstock_guards__"


def _stack_of(function: object) -> _Stack:
    """The stack of the guards around us, or the beginning of one."""
    found = _stack.get()
    return found if _is_open(found, function) else _Stack(function)


def _is_open(stack: _Stack | None, function: object) -> TypeGuard[_Stack]:
    return stack is not None and stack.function is function and not stack.ran


def _guarded(
    function: Callable[..., Any], key: Key | None, begin: Begin, give_back: GiveBack
) -> Callable[..., Any]:
    name = checked_key(key, function, False)
    innermost = not hasattr(function, _GUARDS)
    guards = getattr(function, _GUARDS, function)

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        found = name(*args, **kwargs) if callable(name) else name
        stack = _stack_of(guards)
        try:
            decision = _entered(found, drive(begin(found)))
        except LimitExceeded as error:
            stack.refusal = error
            raise
        if innermost:
            stack.ran = True
            return function(*args, **kwargs)
        token = _stack.set(stack)
        try:
            return function(*args, **kwargs)
        except LimitExceeded as error:
            if stack.gave_up(error):
                with contextlib.suppress(StoreError):
                    drive(give_back(found, decision))
            raise
        finally:
            _stack.reset(token)

    setattr(guarded, _GUARDS, guards)
    return guarded


def _guarded_async(
    function: Callable[..., Any], key: Key | None, begin: Begin, give_back: GiveBack
) -> Callable[..., Any]:
    name = checked_key(key, function, True)
    innermost = not hasattr(function, _GUARDS)
    guards = getattr(function, _GUARDS, function)

    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        found = name(*args, **kwargs) if callable(name) else name
        if inspect.isawaitable(found):
            found = await found
        stack = _stack_of(guards)
        try:
            decision = _entered(found, await drive_async(begin(found)))
        except LimitExceeded as error:
            stack.refusal = error
            raise
        if innermost:
            stack.ran = True
            return await function(*args, **kwargs)
        token = _stack.set(stack)
        try:
            return await function(*args, **kwargs)
        except LimitExceeded as error:
            if stack.gave_up(error):
                with contextlib.suppress(StoreError):
                    await drive_async(give_back(found, decision))
            raise
        finally:
            _stack.reset(token)

    setattr(guarded, _GUARDS, guards)
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
