"""``@limit``: a limit for one view."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from penstock.async_gate import AnyGate, AsyncGate
from penstock.integrations.deciding.deciders import Limits
from penstock.integrations.deciding.http_checkpoint import LimitFunction
from penstock.integrations.deciding.options import ViewOptions, check_options
from penstock.integrations.deciding.views import Options, for_view, scope_of
from penstock.integrations.deciding.waiting import finish, finish_async
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.django.settings import of_the_site
from penstock.integrations.django.view_limit import DjangoLimit, Turn, await_all, wait, wait_for_all
from penstock.stores.memory import MemoryStore

View = TypeVar("View", bound=Callable[..., Any])


def limit(
    limit: Limits | LimitFunction = None, **options: Unpack[ViewOptions]
) -> Callable[[View], View]:
    """A decorator for a view; for a class, by Django's ``method_decorator``.

    Takes all that `HttpCheckpoint` does, and ``fallback`` (a view that answers instead, with the
    same arguments), ``defer`` and ``defer_body``. The store, trusted proxies and whatever
    else is true of a site are taken from ``settings.PENSTOCK`` if they are not given.

    Each view is counted for itself. To have several share a limit, name it and decorate them
    all with the same: ``searches = limit("10/second", name="searches")``.
    """
    check_options("limit", options, ViewOptions)
    view_limits = _ViewLimits(for_view(limit, options, of_the_site()))
    name = options.get("name")

    def decorate(view: View) -> View:
        if not callable(view):
            raise TypeError(f"limit decorates a view function, not {view!r:.100}")
        scope = name or scope_of(view)
        wrap = _asynchronous if _is_async(view) else _synchronous
        return cast(View, wrap(view, view_limits, scope))

    return decorate


def _synchronous(
    view: Callable[..., Any], view_limits: _ViewLimits, scope: str
) -> Callable[..., Any]:
    view_limit = view_limits.of(asynchronous=False)

    @wraps(view)
    def limited(native: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        turn = Turn(native)
        try:
            request = DjangoRequest(native, scope)
            flow = view_limit.flow(request, turn.pending, native, *args, **kwargs)
            response = finish(flow, wait)
            if response is None:
                response = view(native, *args, **kwargs)
        except Exception as error:
            wait_for_all(turn.failed(error))
            raise
        except BaseException:
            wait_for_all(turn.abandoned())
            raise
        wait_for_all(turn.done(response))
        return response

    return limited


def _asynchronous(
    view: Callable[..., Any], view_limits: _ViewLimits, scope: str
) -> Callable[..., Any]:
    view_limit = view_limits.of(asynchronous=True)

    @wraps(view)
    async def limited(native: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        turn = Turn(native)
        try:
            request = DjangoRequest(native, scope)
            flow = view_limit.flow(request, turn.pending, native, *args, **kwargs)
            response = await finish_async(flow)
            if response is None:
                response = await view(native, *args, **kwargs)
        except Exception as error:
            await await_all(turn.failed(error))
            raise
        except BaseException:
            await await_all(turn.abandoned())
            raise
        await await_all(turn.done(response))
        return response

    return limited


def _is_async(view: Callable[..., Any]) -> bool:
    """Whether it returns a coroutine: also ``dispatch`` of a class with async methods."""
    if iscoroutinefunction(view):
        return True
    bound = view.func if isinstance(view, partial) else view
    owner = getattr(bound, "__self__", None)
    named = getattr(view, "__name__", "") == "dispatch"
    return named and getattr(owner, "view_is_async", False) is True


class _ViewLimits:
    """One limit, for views of both kinds. Both count in one store."""

    def __init__(self, options: Options) -> None:
        gate = options.get("gate")
        if not isinstance(gate, AnyGate) and options.get("store") is None:
            options = {**options, "store": MemoryStore()}
        self._options = options
        self._made: dict[bool, DjangoLimit] = {}
        self._making = threading.Lock()
        self.of(asynchronous=isinstance(gate, AsyncGate))  # so that mistakes are found now

    def of(self, *, asynchronous: bool) -> DjangoLimit:
        view_limit = self._made.get(asynchronous)
        if view_limit is None:
            with self._making:
                view_limit = self._made.get(asynchronous)
                if view_limit is None:
                    view_limit = DjangoLimit(asynchronous=asynchronous, **self._options)
                    self._made[asynchronous] = view_limit
        return view_limit
