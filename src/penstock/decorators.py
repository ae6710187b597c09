"""Blocks and decorated functions that run only when their limit allows it.

A decorator takes the limit first and everything else by name. Without parentheses it gets the
function itself: see `is_function`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from typing import Any, TypeGuard, TypeVar, cast

from penstock.decision import Decision
from penstock.errors import InvalidCost, InvalidKey, LimitError, LimitExceeded, StoreError
from penstock.flow_steps import Step, drive, drive_async
from penstock.limits import Limit
from penstock.misuse import ASYNC_BLOCK, NotAVerb
from penstock.stores.base import Counters, check_cost, speaking
from penstock.waiting import Flow

F = TypeVar("F", bound=Callable[..., Any])
Key = str | Callable[..., Any]
Cost = int | Callable[..., Any]
# Begins a wait for a key; the limiter has added the limit, the cost and the time-out.
Begin = Callable[[str], Flow]
# The same for a key and the cost of a call, which may have to give back: of several limits, the
# decision of each.
Decisions = Decision | list[Decision]
BeginCall = Callable[[str, int], Generator[Step, Any, Decisions]]
# Gives back what such a wait took from a key.
GiveBack = Callable[[str, int, Any], Generator[Step, Any, object]]


class Slot:
    """``with limiter.slot(key):`` waits for its turn, or raises `LimitExceeded`."""

    __aenter__ = NotAVerb("__aenter__", "write 'with', or use an AsyncLimiter")

    def __init__(self, begin: Begin, key: str) -> None:
        self._begin = begin
        self._key = key

    def __enter__(self) -> Decision:
        return _entered(self._key, drive(self._begin(self._key)))

    def __exit__(self, *exception: object) -> None:
        """Nothing to give back: what was taken was used."""


class AsyncSlot:
    """``async with limiter.slot(key):`` waits for its turn, or raises `LimitExceeded`."""

    __enter__ = NotAVerb("__enter__", ASYNC_BLOCK)

    def __init__(self, begin: Begin, key: str) -> None:
        self._begin = begin
        self._key = key

    async def __aenter__(self) -> Decision:
        return _entered(self._key, await drive_async(self._begin(self._key)))

    async def __aexit__(self, *exception: object) -> None:
        """Nothing to give back: what was taken was used."""


def _entered(key: str, decision: Decision) -> Decision:
    if not decision:
        raise LimitExceeded(key, decision)
    return decision


def is_function(value: object) -> TypeGuard[Callable[..., Any]]:
    """Whether a decorator was given the function itself: it was written without parentheses.

    A lambda cannot have been decorated. It is a key function that should be given by name.
    """
    if isinstance(value, (classmethod, staticmethod)):
        return True
    if getattr(value, "__name__", None) == "<lambda>":
        raise TypeError(f"{value!r} is not a limit: a key function is given by name, key=")
    return callable(value)


def is_async_function(function: object) -> bool:
    """Whether calling it returns a coroutine: also for objects with an async ``__call__``."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 - to look at it
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def counters_for_calls(find: Callable[[Limit | str | None], Counters], limit: Any) -> Counters:
    """The counters of a decorator's limit, or an error that says what to write."""
    try:
        return find(limit)
    except LimitError as error:
        if limit is None:
            raise LimitError(
                "no limit: write @limiter.limit('100/minute'), or make the limiter with one"
            ) from None
        if isinstance(limit, str) and type(error) is LimitError:
            raise LimitError(
                f"{error}. A decorator takes the limit first, and a key by name: key={limit!r:.100}"
            ) from None
        raise


def decorate(function: F, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> F:
    """``wrap(function)``, also for what ``@classmethod`` and ``@staticmethod`` return."""
    if isinstance(function, (classmethod, staticmethod)):
        return cast(F, type(function)(wrap(function.__func__)))
    if not callable(function):
        raise TypeError(f"a limit decorates a function, not {function!r:.100}")
    return cast(F, wrap(function))


def limit_calls(
    key: Key | None, cost: Cost, begin: BeginCall, begin_async: BeginCall, give_back: GiveBack
) -> Callable[[F], F]:
    """A decorator for functions, sync or async, and for generators."""
    check_cost_of_calls(cost)

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        innermost = getattr(function, _LIMITED, function)
        is_generator = inspect.isasyncgenfunction(function)
        is_async = is_generator or is_async_function(function)
        name = checked_key(key, function, is_async)
        if inspect.iscoroutinefunction(cost) and not is_async:
            raise InvalidCost(f"{function!r} is not async, so its cost cannot be either")
        limited: Callable[..., Any]
        if is_generator:
            limited = _limited_generator(function, innermost, name, cost, begin_async, give_back)
        elif is_async:
            limited = _limited_async(function, innermost, name, cost, begin_async, give_back)
        else:
            limited = _limited(function, innermost, name, cost, begin, give_back)
        setattr(limited, _LIMITED, innermost)
        return limited

    return lambda function: decorate(function, wrap)


def do_not_limit(key: Key | None, cost: Cost) -> Callable[[F], F]:
    """A decorator that is switched off: its arguments are checked all the same."""
    check_cost_of_calls(cost)

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        checked_key(key, function, is_async=True)
        return function

    return lambda function: decorate(function, wrap)


class _Stack:
    """One call of a function with several limits: all let it pass, or none takes anything."""

    __slots__ = ("function", "ran", "refusal")

    def __init__(self, function: object) -> None:
        self.function = function
        self.ran = False
        self.refusal: LimitExceeded | None = None

    def admit(self, key: str, decisions: Decisions) -> Decisions:
        """Remember a refusal and raise it."""
        decision = speaking(decisions) if isinstance(decisions, list) else decisions
        if not decision:
            self.refusal = LimitExceeded(key, decision)
            raise self.refusal
        return decisions

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
    if stack is not None and stack.function is function and not stack.ran:
        return stack
    return _Stack(function)


def _limited(
    function: Callable[..., Any],
    innermost: object,
    key: Key,
    cost: Cost,
    begin: BeginCall,
    give_back: GiveBack,
) -> Callable[..., Any]:
    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        units = units_of(cost(*args, **kwargs)) if callable(cost) else cost
        stack = _stack_of(innermost)
        if units:
            name = key(*args, **kwargs) if callable(key) else key
            decisions = stack.admit(name, drive(begin(name, units)))
        if function is innermost:
            stack.ran = True
            return function(*args, **kwargs)
        token = _stack.set(stack)
        try:
            return function(*args, **kwargs)
        except LimitExceeded as error:
            if units and stack.gave_up(error):
                with contextlib.suppress(StoreError):
                    drive(give_back(name, units, decisions))
            raise
        finally:
            _stack.reset(token)

    return limited


def _limited_async(
    function: Callable[..., Any],
    innermost: object,
    key: Key,
    cost: Cost,
    begin: BeginCall,
    give_back: GiveBack,
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def limited(*args: Any, **kwargs: Any) -> Any:
        units = units_of(await _result(cost(*args, **kwargs))) if callable(cost) else cost
        stack = _stack_of(innermost)
        if units:
            name = await _result(key(*args, **kwargs)) if callable(key) else key
            decisions = stack.admit(name, await drive_async(begin(name, units)))
        if function is innermost:
            stack.ran = True
            return await function(*args, **kwargs)
        token = _stack.set(stack)
        try:
            return await function(*args, **kwargs)
        except LimitExceeded as error:
            if units and stack.gave_up(error):
                with contextlib.suppress(StoreError):
                    await drive_async(give_back(name, units, decisions))
            raise
        finally:
            _stack.reset(token)

    return limited


def _limited_generator(
    function: Callable[..., Any],
    innermost: object,
    key: Key,
    cost: Cost,
    begin: BeginCall,
    give_back: GiveBack,
) -> Callable[..., Any]:
    """An async generator can wait for its limit only when it is asked for its first item."""

    @functools.wraps(function)
    async def limited(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        units = units_of(await _result(cost(*args, **kwargs))) if callable(cost) else cost
        stack = _stack_of(innermost)
        if units:
            name = await _result(key(*args, **kwargs)) if callable(key) else key
            decisions = stack.admit(name, await drive_async(begin(name, units)))
        async with contextlib.aclosing(function(*args, **kwargs)) as items:
            stack.ran = function is innermost
            token = _stack.set(stack)
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            except LimitExceeded as error:
                if units and stack.gave_up(error):
                    with contextlib.suppress(StoreError):
                        await drive_async(give_back(name, units, decisions))
                raise
            finally:
                _stack.reset(token)
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        item = await items.athrow(error)
                    else:
                        item = await items.asend(sent)

    return limited


async def _result(value: Any) -> Any:
    """What a function of a call returned, also if it is async."""
    return await value if inspect.isawaitable(value) else value


def check_cost_of_calls(cost: object) -> None:
    """An error while decorating, if this can be no cost."""
    if not callable(cost):
        check_cost(cost)


def units_of(cost: object) -> int:
    """The cost of a call, from a function: 0 is free."""
    return 0 if type(cost) is int and cost == 0 else check_cost(cost)


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
