"""A limit on one view: what the decorators of Flask and Django have in common.

A `ViewLimit` is a limit that stands before a view. `ViewLimit.flow` is written once for threads and
coroutines: it yields what has to be awaited. It returns None if the view may be called, or
what is answered instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any

from penstock.async_gate import AnyGate
from penstock.integrations.deciding import http
from penstock.integrations.deciding.defer import Defer, Deferred, check_defer, place_of
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.keys import by_ip, combined
from penstock.integrations.deciding.options import SiteOptions
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.pending import Pending, withdraw
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.waiting import Flow
from penstock.limit import Limit, as_limit

Options = dict[str, Any]

# What is true of a site, whatever the limit: said once, and taken over by each view's limit.
OF_A_SITE = tuple(SiteOptions.__annotations__)
# The longest body that is kept for later.
KEPT_BODY = 1_048_576


class ViewLimit:
    """Takes what a `HttpCheckpoint` takes, a ``fallback``, a ``defer`` and its ``defer_body``.

    A framework says how its answers are made: `respond`, `mark`, `keep` and `refuse`.
    """

    def __init__(
        self,
        *,
        asynchronous: bool = False,
        fallback: Callable[..., Any] | None = None,
        defer: Defer | None = None,
        defer_body: int = KEPT_BODY,
        **options: Any,
    ) -> None:
        self.checkpoint = HttpCheckpoint(asynchronous=asynchronous, **options)
        if fallback is not None and not callable(fallback):
            raise TypeError(f"fallback is a view function, not {fallback!r:.100}")
        if fallback is not None and defer is not None:
            raise TypeError("give fallback or defer: a body that was kept cannot be read again")
        self.fallback = fallback
        self._defer, self.defer_body = check_defer(defer, defer_body)

    def flow(self, request: Request, pending: Pending, *args: Any, **kwargs: Any) -> Flow[Any]:
        """``args`` are the view's; the fallback is given the same."""
        outcome = yield from self.decide(request)
        if outcome is None:
            return None
        self.note(request, outcome)
        pending.append((self.checkpoint, outcome))
        if self.checkpoint.count_when is not None:
            self.watch(request)
        if outcome.allowed:
            return None
        for waiting in withdraw(pending[:-1]):  # noqa: UP028 - what was awaited is sent here
            yield waiting
        checkpoint = self.checkpoint
        if outcome.final:  # neither a place in the queue nor a cheaper answer
            return self.refuse(checkpoint.answer(outcome, request), outcome)
        if self._defer is not None:
            location = yield from self._put_off(self._defer, request)
            if location is not None:
                now, style = checkpoint.now(), checkpoint.fields
                return self.respond(http.deferred(location, outcome.told, now, style))
        if self.fallback is not None:
            response = self.fallback(*args, **kwargs)
            if isawaitable(response):
                response = yield response
            return self.mark(response, http.FALLBACK)
        return self.refuse(checkpoint.answer(outcome, request), outcome)

    def _put_off(self, defer: Defer, request: Request) -> Flow[str | None]:
        kept = self.keep(request)
        if kept is None:
            return None
        location: Any = defer(kept)
        if isawaitable(location):
            location = yield location
        return place_of(location)

    # What each framework does in its own way -----------------------------------------------

    def decide(self, request: Request) -> Flow[Outcome | None]:
        return self.checkpoint.flow(request)

    def note(self, request: Request, outcome: Outcome) -> None:
        """Leave the outcome where a handler finds it."""
        raise NotImplementedError

    def watch(self, request: Request) -> None:
        """From now on, note whether the client stays until it is answered."""
        raise NotImplementedError

    def respond(self, answer: http.Answer) -> Any:
        raise NotImplementedError

    def mark(self, response: Any, header: http.Header) -> Any:
        raise NotImplementedError

    def keep(self, request: Request) -> Deferred | None:
        """All of the request; None if its body is too long."""
        raise NotImplementedError

    def refuse(self, answer: http.Answer, outcome: Outcome) -> Any:
        """Answer, or raise what the framework makes an answer of."""
        raise NotImplementedError


# What is counted together -------------------------------------------------------------------


def for_view(limit: Any, options: Mapping[str, Any], site: Mapping[str, Any]) -> Options:
    """A checkpoint's options, so that a limit counts for its view alone.

    In a store that is shared, equal limits count together. So the key begins with the
    view; or with ``name``, if one is given: views with the same name share. Without a
    name, clients are told the limit's own text.
    """
    merged = with_site(options, site)
    merged["limit"] = limit
    if merged.get("gate") is None:
        key = merged.get("key", by_ip)
        if not callable(key):
            raise TypeError(f"key is a function from a request to a key, not {key!r:.100}")
        merged["key"] = combined(lambda request: getattr(request, "scope", "") or "-", key)
        if "name" not in merged and isinstance(limit, (str, Limit)):
            merged["name"] = as_limit(limit).counted_as
    return merged


def with_site(options: Mapping[str, Any], site: Mapping[str, Any]) -> Options:
    """The options, and for those that are absent what is true of the whole site."""
    taken = {name: site[name] for name in OF_A_SITE if name in site}
    if isinstance(options.get("gate"), AnyGate):
        taken.pop("store", None)  # it has its own
    if not {"trusted", "hops"}.isdisjoint(options):
        taken = {n: v for n, v in taken.items() if n not in ("trusted", "hops", "forwarded")}
    return {**taken, **options}


def scope_of(view: Any) -> str:
    """A name for a view, the same in every process."""
    made_of = getattr(view, "view_class", None)  # what as_view() returns
    if made_of is not None:
        return f"{made_of.__module__}.{made_of.__qualname__}"
    bound = view.func if isinstance(view, partial) else view
    owner = getattr(bound, "__self__", None)
    name = getattr(view, "__name__", None) or type(view).__name__
    if owner is not None:  # a method is named by its own class, not by where it was inherited
        return f"{type(owner).__module__}.{type(owner).__qualname__}.{name}"
    path = getattr(view, "__qualname__", name)
    if not path.endswith(name):
        path = f"{path}.{name}"
    return f"{getattr(view, '__module__', '')}.{path}"
