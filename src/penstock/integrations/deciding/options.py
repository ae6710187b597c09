"""The options of HTTP middleware, decorators and dependencies, for type checkers and editors.

What each of them means, `HttpCheckpoint` and `Slots` say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict

from penstock.clock import Clock
from penstock.events import Hook
from penstock.gate import Gate
from penstock.integrations.deciding.deciders import Limits
from penstock.integrations.deciding.defer import Defer
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.http_checkpoint import CostFunction, CountWhen, LimitFunction
from penstock.integrations.deciding.keys import KeyFunction
from penstock.integrations.deciding.request import Request
from penstock.stores.base import Store


class SiteOptions(TypedDict, total=False):
    """What is true of a site, whatever the limit: said once, and taken over by each view."""

    store: Store | None
    trusted: Iterable[str]
    hops: int
    forwarded: str
    count_preflight: bool
    shadow: bool
    on_failure: str | None
    fields: str
    hook: Hook | None
    clock: Clock


class LimitOptions(SiteOptions, total=False):
    """Of one limit, wherever it stands."""

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

    limit: Limits | LimitFunction


class ViewOptions(LimitOptions, total=False):
    """Of a limit before a view, which may have something to answer instead of a refusal."""

    fallback: Callable[..., Any] | None
    defer: Defer | None
    defer_body: int


class SlotOptions(TypedDict, total=False):
    """Of how many requests run at once."""

    key: str | Callable[[Request], Any]
    priority: int | Callable[[Request], Any]
    by: Callable[[Request], Any] | None
    timeout: float | None
    exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]]
    trusted: Iterable[str]
    hops: int
    forwarded: str


def check_options(owner: str, options: Mapping[str, Any], kind: type, *more: str) -> None:
    """Name the option that ``owner`` does not have, and the one that was perhaps meant."""
    known = [*kind.__annotations__, *more]  # those of its bases, too
    for name in options:
        if name not in known:
            raise TypeError(f"{owner} has no option {name!r:.100}{_suggestion(name, known)}")


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else f"; it has {', '.join(sorted(known))}"
