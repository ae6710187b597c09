"""The options of HTTP middleware, decorators and dependencies, for type checkers and editors.

`HttpCheckpoint` and `Slots` document them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict

from penstock.clock import Clock
from penstock.events import Hook
from penstock.gate import Gate
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.http_checkpoint import AnyLimits, CostFunction, CountWhen
from penstock.integrations.deciding.keys import KeyFunction
from penstock.integrations.deciding.refusals import Defer
from penstock.integrations.deciding.request import Request
from penstock.limits import Limit
from penstock.stores.base import Store


class SiteOptions(TypedDict, total=False):
    """Of a site: each view's limit inherits them."""

    store: Store | str | None
    trusted: Iterable[str]
    hops: int
    forwarded: str
    count_preflight: bool
    shadow: bool
    on_failure: str | None
    fields: str
    hook: Hook | None
    clock: Clock
    enabled: bool | None


class LimitOptions(SiteOptions, total=False):
    """Of one limit, of an application or a view."""

    gate: Gate | str | Path | None
    key: KeyFunction
    cost: int | CostFunction
    name: str
    domain: str | None
    dimensions: Mapping[str, Dimension[Request] | str] | None
    watch: bool
    exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]]
    count_when: CountWhen | None


class MiddlewareOptions(LimitOptions, total=False):
    """Of a limit for a whole application."""

    limit: AnyLimits
    from_env: bool


class ViewOptions(LimitOptions, total=False):
    """Of a limit before a view, which may have an alternative to a 429."""

    fallback: Callable[..., Any] | None
    defer: Defer | None
    defer_body: int


class ExtensionOptions(ViewOptions, total=False):
    """Of a site whose views may have limits of their own."""

    from_env: bool


class RouteOptions(ViewOptions, total=False):
    """Of a limit that is written at its view, where it may replace that of the site."""

    override: bool


class SlotOptions(TypedDict, total=False):
    """Of how many requests run at once."""

    key: str | Callable[[Request], Any]
    priority: int | Callable[[Request], Any]
    by: Callable[[Request], Any] | None
    timeout: float | None
    enabled: bool | None
    exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]]
    trusted: Iterable[str]
    hops: int
    forwarded: str


# What options are called elsewhere, where no similar spelling leads to ours.
_OTHER_NAMES = {
    "rate": "limit", "rates": "limit", "quota": "limit", "throttle": "limit",
    "rules": "gate", "rules_file": "gate", "config": "gate",
    "identifier": "key", "get_key": "key", "weight": "cost",
    "default_limits": "limit", "application_limits": "limit",
    "storage": "store", "storage_uri": "store", "backend": "store", "redis": "store",
    "redis_url": "store", "storage_url": "store", "uri": "store", "url": "store",
    "skip": "exempt", "exclude": "exempt", "whitelist": "exempt", "proxies": "trusted",
}  # fmt: skip


# The same for what is written in another place, or is not needed.
_NOTES = {
    **dict.fromkeys(
        ["times", "seconds", "minutes", "hours", "milliseconds", "per", "period", "window", "rate"],
        "the limit is one text, such as '2/5s'",
    ),
    **dict.fromkeys(
        ["burst", "algorithm", "strategy", "lockout"],
        "it is written in the limit, such as '10/second sliding_window' or '10/second burst 30'",
    ),
    **dict.fromkeys(
        ["per_method", "method", "methods"],
        "the method is a part of the key: key=combined(by_ip, lambda request: request.method)",
    ),
    **dict.fromkeys(["group", "scope"], "limits are counted apart by name="),
    "block": "a request above the limit is always refused, unless shadow=True",
    "swallow_errors": "on_failure= says what happens while the store is down",
}


def check_app(app: object, example: str) -> None:
    """An error if a limit was given in place of the application."""
    if isinstance(app, (str, Limit)):
        raise TypeError(f"the first argument is the application: write {example.format(str(app))}")


def with_limit(
    owner: str, positional: tuple[AnyLimits, ...], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options, with a limit that was given without its name."""
    if not positional:
        return dict(options)
    if len(positional) > 1 or "limit" in options:
        raise TypeError(
            f"{owner} takes one limit, and all else by name: {owner}(app, '100/minute')"
        )
    return {**options, "limit": positional[0]}


def check_options(owner: str, options: Mapping[str, Any], kind: type, *more: str) -> None:
    """Raise for an unknown option, with the one that was probably meant."""
    known = [*kind.__annotations__, *more]  # those of its bases, too
    for name in options:
        if name not in known:
            raise TypeError(f"{owner} has no option {name!r:.100}{_suggestion(name, known)}")


def _suggestion(name: str, known: Collection[str]) -> str:
    spelt = name.lower()
    meant = _OTHER_NAMES.get(spelt, spelt)
    if spelt in _NOTES and meant not in known:
        return f": {_NOTES[spelt]}"
    close = [meant] if meant in known else get_close_matches(spelt, known, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else f"; it has {', '.join(sorted(known))}"
