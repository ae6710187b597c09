"""Limits before single views: what the decorators of Flask and Django have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock.async_gate import AnyGate
from penstock.integrations.deciding import responses
from penstock.integrations.deciding.applied_limits import AppliedLimits, withdraw
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.keys import KeyFunction, as_key, as_keys, by_ip, combined
from penstock.integrations.deciding.marked_views import mark_of
from penstock.integrations.deciding.options import SiteOptions
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.refusals import KEPT_BODY, Defer, Deferred, Refusals
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.waiting import Flow, value
from penstock.limits import Limit, limits_of

Options = dict[str, Any]

# Options of a site, which each view's limit inherits.
SITE_OPTIONS = tuple(SiteOptions.__annotations__)


class ViewLimit:
    """A limit before a view, for threads and coroutines.

    Takes the options of a `HttpCheckpoint`, ``fallback``, ``defer`` and ``defer_body``. A
    framework's subclass says how to make its responses. ``site``: it is the limit of all views,
    and passes over those that are marked.
    """

    def __init__(
        self,
        *,
        asynchronous: bool = False,
        site: bool = False,
        fallback: Callable[..., Any] | None = None,
        defer: Defer | None = None,
        defer_body: int = KEPT_BODY,
        **options: Any,
    ) -> None:
        self.checkpoint = HttpCheckpoint(asynchronous=asynchronous, **options)
        self._site = site
        self.refusals = Refusals(self.checkpoint, fallback, defer, defer_body, "a view function")

    def flow(
        self, request: Request, applied: AppliedLimits, /, *args: Any, **kwargs: Any
    ) -> Flow[Any]:
        """Yields what has to be awaited; returns the response to send instead of the view's.

        None: the view may be called. ``args`` are the view's, for the fallback.
        """
        exempt = self._site and mark_of(self.view_of(request)) is not None
        outcome = yield from self.decide(request, exempt)
        if outcome is None:
            return None
        self.note(request, outcome)
        applied.append((self.checkpoint, outcome))
        if self.checkpoint.count_when is not None:
            self.watch(request)
        if outcome.allowed:
            return None
        for waiting in withdraw(applied[:-1]):  # noqa: UP028 - what was awaited is sent here
            yield waiting
        answer = yield from self.refusals.flow(outcome, request, self.read)
        if answer is not None:
            return self.refuse(answer, outcome)
        assert self.refusals.fallback is not None
        response = yield from value(self.refusals.fallback(*args, **kwargs))
        return self.mark(response, responses.FALLBACK)

    # What each framework does in its own way -----------------------------------------------

    def decide(self, request: Request, exempt: bool) -> Flow[Outcome | None]:
        return self.checkpoint.flow(request, exempt)

    def view_of(self, request: Request) -> Any:
        """The view that will be called; None if there is none, or no view is marked."""
        raise NotImplementedError

    def note(self, request: Request, outcome: Outcome) -> None:
        """Leave the outcome where a handler finds it."""
        raise NotImplementedError

    def watch(self, request: Request) -> None:
        """From now on, note whether the client stays until the response."""
        raise NotImplementedError

    def mark(self, response: Any, header: responses.Header) -> Any:
        """Add a header to a view's response."""
        raise NotImplementedError

    def read(self, request: Any, longest: int) -> Deferred | None:
        """The whole request; None if its body is longer or incomplete."""
        raise NotImplementedError

    def refuse(self, answer: responses.Answer, outcome: Outcome) -> Any:
        """Return the framework's response, or raise an exception that becomes one."""
        raise NotImplementedError


# What is counted together -------------------------------------------------------------------


def for_view(limit: Any, options: Mapping[str, Any], site: Mapping[str, Any]) -> Options:
    """A checkpoint's options, so that a limit counts for its view alone.

    In a shared store, equal limits count together. So the key begins with the view, or with
    ``name`` if there is one: views with the same name share. Without a name, headers show the
    limit's text.
    """
    merged = with_site(options, site)
    merged["limit"] = limit
    if merged.get("gate") is None:
        begin_keys(merged, lambda request: getattr(request, "scope", "") or "-")
        if "name" not in merged and isinstance(limit, (str, Limit)):
            merged["name"] = limits_of(limit)[0].counted_as
    return merged


def begin_keys(options: Options, start: KeyFunction) -> None:
    """Let all keys of a checkpoint begin with what this one returns."""
    limit = options.get("limit")
    if isinstance(limit, Mapping):
        if "key" in options:
            raise TypeError("limit is a dict from keys to limits: give no other key")
        keys = as_keys(limit)
        options["limit"] = {combined(start, key): limits for key, limits in keys.items()}
    else:
        options["key"] = combined(start, as_key(options.get("key", by_ip)))


def with_site(options: Mapping[str, Any], site: Mapping[str, Any]) -> Options:
    """The options, and those of the site where they are absent."""
    inherited = {name: site[name] for name in SITE_OPTIONS if name in site}
    if isinstance(options.get("gate"), AnyGate):
        inherited.pop("store", None)  # a gate has its own
    if not {"trusted", "hops"}.isdisjoint(options):
        for name in ("trusted", "hops", "forwarded"):
            inherited.pop(name, None)
    return {**inherited, **options}


def scope_of(view: Any) -> str:
    """A name for a view, the same in every process."""
    view_class = getattr(view, "view_class", None)  # of what as_view() returns
    if view_class is not None:
        return f"{view_class.__module__}.{view_class.__qualname__}"
    bound = view.func if isinstance(view, partial) else view
    owner = getattr(bound, "__self__", None)
    name = getattr(view, "__name__", None) or type(view).__name__
    if owner is not None:  # a method is named by its own class, not by where it was inherited
        return f"{type(owner).__module__}.{type(owner).__qualname__}.{name}"
    path = getattr(view, "__qualname__", name)
    if not path.endswith(name):
        path = f"{path}.{name}"
    return f"{getattr(view, '__module__', '')}.{path}"
