"""Errors that say what to write, for arguments and verbs of limiters that other libraries have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Never

from penstock.errors import LimitError
from penstock.limit_options import ALGORITHMS
from penstock.limits import Limit
from penstock.stores.base import Store
from penstock.stores.url import FORMS, is_url

_KNOWN = ("limit", "store", "name", "chance", "enabled")
# Options of a limit: written in its text.
_OF_LIMIT = {option for options in ALGORITHMS.values() for option in options} | {"algorithm"}
_AMOUNTS = (
    "amount", "rate", "max_rate", "max_calls", "calls", "times", "requests", "quota", "limits",
    "default_limits", "application_limits",
)  # fmt: skip
_PERIODS = (
    "per", "period", "time_period", "seconds", "window", "interval", "milliseconds", "minutes",
)  # fmt: skip
_STORES = (
    "redis_url", "storage_uri", "storage_url", "storage", "url", "uri", "redis", "backend",
    "redis_client", "client", "cache",
)  # fmt: skip
_BURSTS = ("capacity", "max_burst", "bucket_size", "max_tokens")
_KEYS = ("key", "key_func", "keys", "identifier", "namespace")
_HOST_AND_PORT = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+):\d{2,5}(/\d+)?")
_WEB = ("app", "headers_enabled", "default_limits_per_method", "in_memory_fallback", "meta_limits")


def wrong_arguments(
    kind: str, limit: object, store: object, more: Sequence[object], unknown: Mapping[str, object]
) -> TypeError | None:
    """The error for the arguments of a limiter; None if there is nothing to say about them."""
    if unknown:
        return TypeError(_about_name(kind, limit, *next(iter(unknown.items()))))
    if type(limit) is int and store is not None and not isinstance(store, Store):
        return TypeError(
            f"the first argument is the whole limit: write {kind}({_text(limit, store)!r})"
        )
    if more:
        return TypeError(
            f"{kind} takes a limit and a store, the rest by name: {kind}('100/minute',"
            " store='redis://localhost')"
        )
    if isinstance(store, str) and _HOST_AND_PORT.fullmatch(store):
        return TypeError(f"{store!r} is no URL: write {kind}({limit!r}, store='redis://{store}')")
    if isinstance(store, str) and not is_url(store):
        return TypeError(
            f"the second argument of {kind} is the store, not {store!r:.60}: write"
            f" {kind}({limit!r}).hit({store!r:.60}) if that is a key, and {FORMS} for a store"
        )
    return None


def _about_name(kind: str, limit: object, name: str, value: object) -> str:
    """What to write instead of ``Limiter(..., name=value)``."""
    given = f"{kind} does not take {name}="
    text = limit if isinstance(limit, (str, Limit)) else "100/minute"
    if name == "algorithm" or name == "strategy":
        return f"{given}: it is a part of the limit, {kind}('{text} {_algorithm(value)}')"
    if name in _OF_LIMIT or name in _BURSTS:
        option = "burst" if name in _BURSTS else name
        return f"{given}: it is a part of the limit, {kind}('{text} {option} {_word(value)}')"
    if name in _AMOUNTS:
        return f"{given}: write the limit as one text, {kind}({_amount(value)!r})"
    if name in _PERIODS:
        return f"{given}: write the limit as one text, {kind}({_text(limit, value)!r})"
    if name in _STORES:
        url = value if isinstance(value, str) and "@" not in value else "redis://localhost:6379"
        return f"{given}: write {kind}({str(text)!r}, store={url!r:.80})"
    if name in _KEYS:
        return (
            f"{given}: a key is given with every hit, limiter.hit('user:42'), or with a decorator,"
            " @limiter.limit(key=...)"
        )
    if name in _WEB:
        return (
            f"{given}: for a web application there is penstock.integrations, for example"
            " Penstock(app, '100/minute') of penstock.integrations.flask"
        )
    return f"{given}: it takes {', '.join(_KNOWN)}"


# What to write instead of a verb of another library.
HIT = "hit(key) decides and takes one, and is true if it is allowed"
PEEK = "peek(key) looks and takes nothing"
TURN = "hit(key) decides at once, and wait(key) waits for its turn"
SHARED = "limit('100/hour', key='shared') on each of the functions gives them one count"
ALL = "reset() forgets all keys, and reset(key) one"
BLOCK = "write 'with limiter.slot(key):'"
ASYNC_BLOCK = "write 'async with limiter.slot(key):'"
WEB = "penstock.integrations has it for web applications: flask, fastapi, django"


class NotThere(AttributeError, TypeError):
    """Also a TypeError, as Python raises for ``with`` on what is no block."""


class NotAVerb:
    """An attribute that is not there, with an error that says what to write.

    For type checkers, nothing can be asked for it, so that they report it as before.
    """

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint

    def __get__(self, limiter: Never, kind: type) -> object:
        raise NotThere(f"{kind.__name__} has no {self._name}(): {self._hint}")


# Options of decorators in other libraries, and what to write instead.
_DECORATOR_OPTIONS = {
    "key_func": "key=, a function of the call's arguments",
    "group": "key=, the same text for all functions of the group",
    "scope": "key=, the same text for all functions of the scope",
    "rate": "the limit first: @limiter.limit('5/minute')",
    "limit_value": "the limit first: @limiter.limit('5/minute')",
    "quota": "the limit first: @limiter.limit('5/minute')",
    "times": "the limit first: @limiter.limit('5/minute')",
    "seconds": "the limit first: @limiter.limit('5/minute')",
    "block": "timeout=None to wait; without it, a refused call raises LimitExceeded",
    "wait": "timeout=None to wait; without it, a refused call raises LimitExceeded",
    "exempt_when": "cost=, a function of the call's arguments that returns 0 for free calls",
    "store": "the store where the limiter is made: Limiter('5/minute', store='redis://...')",
}
_VIEWS = (
    "methods", "method", "per_method", "error_message", "override_defaults", "deduct_when",
    "on_breach", "override", "exempt", "headers", "shadow", "fallback",
)  # fmt: skip


def wrong_option(decorator: str, name: str, value: object) -> TypeError:
    """The error for an option that a decorator of a limiter does not have."""
    given = f"{decorator} does not take {name}="
    if name in _DECORATOR_OPTIONS:
        return TypeError(f"{given}: write {_DECORATOR_OPTIONS[name]}")
    if name in _VIEWS:
        return TypeError(
            f"{given}: that is for views of web applications, @limit of penstock.integrations"
            " (flask, fastapi, django)"
        )
    if name in _OF_LIMIT or name in _BURSTS:
        option = "burst" if name in _BURSTS else name
        return TypeError(
            f"{given}: it is a part of the limit, @limiter.limit('5/minute {option} ...')"
        )
    return TypeError(f"{given}: it takes the limit, key, cost, timeout and enabled")


def _text(amount: object, period: object) -> str:
    """``10, 60`` as a limit; an example of one if they are no numbers."""
    units = amount if type(amount) is int else 10
    if isinstance(period, (int, float)) and not isinstance(period, bool) and period > 0:
        return f"{units}/{period:g}s"
    if isinstance(period, str):
        try:
            return str(Limit(units, period))
        except LimitError:
            pass
    return f"{units}/minute"


def _amount(value: object) -> str:
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value):
        return "; ".join(value)
    return value if isinstance(value, str) else _text(value, None)


def _algorithm(value: Any) -> str:
    """The name of an algorithm, from those that others use."""
    name = str(value).lower().replace("-", "_").replace(" ", "_")
    return name if name in ALGORITHMS else "sliding_window" if "window" in name else "token_bucket"


def _word(value: object) -> object:
    return f"{value[0]} for {value[1]}" if isinstance(value, tuple) and len(value) == 2 else value
