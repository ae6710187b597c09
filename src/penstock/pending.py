# cython: binding=True
# Functions with names and signatures, for functools.wraps.
"""What the verbs of async limiters and gates return: a decision that has to be awaited.

An ordinary coroutine is true, so ``if limiter.hit(key)`` without ``await`` would let everybody
pass. A `Pending` has all that asyncio asks of a coroutine, but it raises a TypeError wherever it
is used as the decision that it is not yet. If it is never awaited, it warns as a coroutine does.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from penstock.decision import Decision
from penstock.stores.base import Counters

if TYPE_CHECKING:
    from penstock import _no_cython as cython  # which has types
else:
    try:
        import cython  # needed to compile this, not to run it
    except ModuleNotFoundError:
        from penstock import _no_cython as cython

P = ParamSpec("P")
R = TypeVar("R")


class NotAwaited(TypeError, AttributeError):
    """Also an AttributeError, so that asyncio can ask by ``hasattr`` what it is."""


# One is made for every hit: its memory is reused, and the garbage collector need not know it,
# as what it refers to does not refer back.
@cython.freelist(64)
@cython.no_gc
@cython.final
@cython.cclass
class Pending:
    """A coroutine that has no truth value, no order and no attributes of its result.

    It runs a coroutine or, without the cost of one, a hit on some counters.
    """

    __slots__ = ("_coroutine", "_cost", "_counters", "_is_hit", "_key", "_waits")

    _is_hit: bool
    _coroutine: Any
    _counters: Counters | None
    _key: str
    _cost: int
    _waits: bool

    def __await__(self) -> Generator[Any, Any, Any]:
        counters = self._counters
        if self._is_hit and not self._waits and counters is not None:
            self._counters = None
            return counters.hit(self._key, self._cost)  # the usual case, without another generator
        return (yield from self.start() if self._is_hit else self._coroutine.__await__())

    def send(self, value: Any) -> Any:
        return self.steps().send(value)

    def throw(self, *exception: Any) -> Any:
        return self.steps().throw(*exception)

    def close(self) -> None:
        self._counters = None
        if self._coroutine is not None:
            self._coroutine.close()

    def __bool__(self) -> NoReturn:
        raise self.not_awaited("neither true nor false")

    def __eq__(self, other: object) -> NoReturn:
        raise self.not_awaited("not equal to anything")

    def __ne__(self, other: object) -> NoReturn:
        raise self.not_awaited("not equal to anything")

    def __lt__(self, other: object) -> NoReturn:
        raise self.not_awaited("not in any order")

    def __gt__(self, other: object) -> NoReturn:
        raise self.not_awaited("not in any order")

    def __le__(self, other: object) -> NoReturn:
        raise self.not_awaited("not in any order")

    def __ge__(self, other: object) -> NoReturn:
        raise self.not_awaited("not in any order")

    def __hash__(self) -> int:
        """By identity: `asyncio.gather` keeps what it is given in a dict."""
        return id(self) >> 4

    def __getattr__(self, name: str) -> NoReturn:
        raise self.not_awaited(f"without .{name}")

    def __repr__(self) -> str:
        return f"<{self.verb()}(), not awaited yet>"

    def __del__(self) -> None:
        if self._counters is not None:
            warnings.warn("coroutine 'AsyncLimiter.hit' was never awaited", RuntimeWarning, 1)

    def steps(self) -> Any:
        """What a task drives: a coroutine or a generator."""
        if self._coroutine is None:
            self._coroutine = self.start()
        return self._coroutine

    def start(self) -> Generator[Any, Any, Decision]:
        counters = self._counters
        if counters is None:
            raise RuntimeError("cannot reuse already awaited hit()")
        self._counters = None
        return _hit(counters, self._key, self._cost, self._waits)

    def verb(self) -> str:
        return "hit" if self._is_hit else cast(str, self._coroutine.__name__)

    def not_awaited(self, lack: str) -> TypeError:
        verb = self.verb()
        return NotAwaited(f"{verb}() is {lack} until it is awaited: write 'await ...{verb}(...)'")


def _hit(counters: Counters, key: str, cost: int, waits: bool) -> Generator[Any, Any, Decision]:
    if waits:
        return (yield from counters.submit("hit", key, cost).__await__())  # type: ignore[no-any-return]
    return counters.hit(key, cost)


def pending_hit(
    counters: Counters, key: str, cost: int, waits: bool
) -> Coroutine[Any, Any, Decision]:
    """A hit, to be awaited. ``waits``: the store's answers come from elsewhere."""
    # Without __init__, which would take longer.
    pending = Pending.__new__(Pending)
    pending._is_hit = True
    pending._coroutine = None
    pending._counters = counters
    pending._key = key
    pending._cost = cost
    pending._waits = waits
    return pending


def pending(coroutine: Coroutine[Any, Any, R]) -> Coroutine[Any, Any, R]:
    """The coroutine, unable to be taken for its result."""
    pending = Pending.__new__(Pending)
    pending._is_hit = False
    pending._coroutine = coroutine
    pending._counters = None
    return pending


def awaited(
    function: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """A coroutine function whose results say that they have to be awaited."""

    @functools.wraps(function)
    def verb(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return pending(function(*args, **kwargs))

    return mark_async(verb)


def mark_async(verb: Callable[P, R]) -> Callable[P, R]:
    """Seen as a coroutine function, by `unittest.mock` for example."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(verb)
    else:
        verb._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return verb
