"""What users give as ``key``: checked when it is given, and completed by the client's address.

Written once for requests over HTTP and for calls of gRPC.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from inspect import isawaitable, signature
from typing import Any, TypeVar

from penstock.integrations.deciding.notices import warn_once

R = TypeVar("R")
Key = str | None

# On a function that returns a key function: how it is called.
EXAMPLE = "_penstock_example"


def example(text: str) -> Callable[[R], R]:
    """Marks a function that has to be called to get a key function, as in ``text``."""

    def mark(function: R) -> R:
        setattr(function, EXAMPLE, text)
        return function

    return mark


def check_key_function(
    key: Any, option: str, names: Mapping[str, str], otherwise: str, before: str | None = None
) -> Any:
    """Raise a TypeError that says what to write instead of a text, or of by_api_key.

    ``names`` are the key functions by what users call them; ``otherwise`` is the one for the
    name of a header, with ``{}`` in its place. ``before`` is what stands before the function;
    by default, ``key=`` for the option ``key``.
    """
    before = f"{option}=" if before is None else before
    if isinstance(key, str):
        instead = names.get(key.lower().removeprefix("by_")) or otherwise.format(repr(key[:50]))
        raise TypeError(f"{option} is a function: write {before}{instead}, not {key!r:.100}")
    if not callable(key):
        usual = next(iter(names.values()))
        raise TypeError(f"{option} is a function, such as {usual}, not {key!r:.100}")
    check_called(key, before)
    check_takes_one(key, option)
    return key


def check_takes_one(function: Callable[..., Any], option: str) -> None:
    """Raise a TypeError for a function that cannot be called with a request, or a call."""
    try:
        signature(function).bind(None)
    except ValueError:  # it has no signature: a builtin
        pass
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(
            f"{option} is a function of one argument, such as lambda request: ...; {name} cannot be"
            " called with one"
        ) from None


def check_called(key: Any, before: str = "") -> None:
    """Raise a TypeError for by_api_key without parentheses."""
    called = getattr(key, EXAMPLE, None)
    if called is not None:
        raise TypeError(f"{key.__name__} returns a key function: write {before}{called}")


def or_address(
    key: Callable[[R], Key | Awaitable[Key]], address: Callable[[R], str]
) -> Callable[[R], Any]:
    """The key, or the client's address where the function returns None or an empty text."""

    def instead(request: R, result: object) -> str:
        name = f"{getattr(key, '__module__', '')}.{getattr(key, '__qualname__', repr(key))}"
        warn_once(
            ("key", name),
            "the key function %s returned %r: such requests are counted by address. To leave "
            "them uncounted, use exempt",
            name,
            result,
        )
        return address(request)

    def find(request: R) -> Any:
        try:
            result = key(request)
        except AttributeError as error:
            if error.name == "host":  # as of a request of Starlette
                error.add_note("request.client is the address as text: write request.client")
            raise
        if type(result) is str and result:  # almost always
            return result
        if result is None or result == "":
            return instead(request, result)
        return _Waiting(result, partial(instead, request)) if isawaitable(result) else result

    return find


class _Waiting:
    """The same for a key that has to be awaited. A caller that cannot wait sees whose it is."""

    def __init__(self, waiting: Awaitable[Key], instead: Callable[[object], str]) -> None:
        self._waiting = waiting
        self._instead = instead
        self.__qualname__ = getattr(waiting, "__qualname__", type(waiting).__name__)

    def __await__(self) -> Generator[Any, Any, str]:
        result = yield from self._waiting.__await__()
        return self._instead(result) if result is None or result == "" else result

    def close(self) -> None:
        close = getattr(self._waiting, "close", None)
        if close is not None:
            close()
