"""``@limit``: a limit for one view."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from penstock.async_gate import AnyGate, AsyncGate
from penstock.integrations.deciding.checkpoint import yes_or_no
from penstock.integrations.deciding.http_checkpoint import AnyLimits
from penstock.integrations.deciding.marked_views import OVERRIDE, mark
from penstock.integrations.deciding.misuse import check_limit_function, without_limit
from penstock.integrations.deciding.options import RouteOptions, check_options
from penstock.integrations.deciding.views import Options, for_view, scope_of
from penstock.integrations.deciding.waiting import Flow, finish, finish_async
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.django.settings import site_options
from penstock.integrations.django.view_limit import DjangoLimit, limited, wait
from penstock.stores.memory import MemoryStore

View = TypeVar("View", bound=Callable[..., Any])


def limit(limit: AnyLimits = None, **options: Unpack[RouteOptions]) -> Callable[[View], View]:
    """A decorator for a view; for a class, by Django's ``method_decorator``.

    Takes the options of `HttpCheckpoint`, ``fallback`` (a view that answers instead, with the
    same arguments), ``defer``, ``defer_body``, and ``override`` (apply in place of the
    middleware's limit). The store, trusted proxies and other options of the site are by default
    those of ``settings.PENSTOCK``.

    Each view counts on its own. To share a limit between views, name it and decorate them all
    with it: ``searches = limit("10/second", name="searches")``.
    """
    check_options("limit", options, RouteOptions)
    if callable(limit):
        check_limit_function(limit)
    override = yes_or_no(options.pop("override", False), "override")
    view_limits = _ViewLimits(for_view(limit, options, site_options()))
    override = override and view_limits.enabled
    name = options.get("name")

    def decorate(view: View) -> View:
        if isinstance(view, HttpRequest):  # this became the view, and Django calls it
            raise without_limit(limit)
        if isinstance(view, type):
            raise TypeError(
                f"limit decorates a view function, not the class {view.__name__}: "
                'write @method_decorator(limit("5/minute"), name="dispatch")'
            )
        if not callable(view):
            raise TypeError(f"limit decorates a view function, not {view!r:.100}")
        scope = name or scope_of(view)
        asynchronous = _is_async(view)
        view_limit = view_limits.of(asynchronous=asynchronous)

        def flow(native: HttpRequest, /, *args: Any, **kwargs: Any) -> Flow[Any]:
            if not hasattr(native, "META"):
                raise TypeError(
                    f"{scope} was called with {native!r:.100} in place of a request: "
                    'on a method, write @method_decorator(limit("5/minute"))'
                )
            request = DjangoRequest(native, scope)
            return limited(view_limit, view, asynchronous, request, *args, **kwargs)

        if asynchronous:

            @wraps(view)
            async def limited_async(*args: Any, **kwargs: Any) -> Any:
                return await finish_async(flow(*args, **kwargs))

            return cast(View, mark(limited_async, OVERRIDE) if override else limited_async)

        @wraps(view)
        def limited_sync(*args: Any, **kwargs: Any) -> Any:
            return finish(flow(*args, **kwargs), wait)

        return cast(View, mark(limited_sync, OVERRIDE) if override else limited_sync)

    return decorate


def _is_async(view: Callable[..., Any]) -> bool:
    """Whether it returns a coroutine: also ``dispatch`` of a class with async methods."""
    if iscoroutinefunction(view):
        return True
    bound = view.func if isinstance(view, partial) else view
    owner = getattr(bound, "__self__", None)
    named = getattr(view, "__name__", "") == "dispatch"
    return named and getattr(owner, "view_is_async", False) is True


class _ViewLimits:
    """One limit, for sync and async views, which count in one store."""

    def __init__(self, options: Options) -> None:
        gate = options.get("gate")
        if not isinstance(gate, AnyGate) and options.get("store") is None:
            options = {**options, "store": MemoryStore()}
        self._options = options
        self._limits: dict[bool, DjangoLimit] = {}
        self._lock = threading.Lock()
        first = self.of(asynchronous=isinstance(gate, AsyncGate))  # mistakes are errors now
        self.enabled = first.checkpoint.enabled

    def of(self, *, asynchronous: bool) -> DjangoLimit:
        with self._lock:
            if asynchronous not in self._limits:
                view_limit = DjangoLimit(asynchronous=asynchronous, **self._options)
                self._limits[asynchronous] = view_limit
            return self._limits[asynchronous]
