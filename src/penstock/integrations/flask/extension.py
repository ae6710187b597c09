"""`Penstock` for an application or a blueprint, and ``@limit`` for a view."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, Unpack, cast

import flask
from flask import current_app

from penstock.clock import WALL
from penstock.durations import SECOND
from penstock.integrations.deciding.deciders import Limits
from penstock.integrations.deciding.http import BOTH
from penstock.integrations.deciding.http_checkpoint import LimitFunction
from penstock.integrations.deciding.options import ViewOptions, check_options
from penstock.integrations.deciding.pending import PENDING
from penstock.integrations.deciding.raised import ANSWERED, answer_to
from penstock.integrations.deciding.views import OF_A_SITE, for_view, scope_of
from penstock.integrations.flask.refusals import respond
from penstock.integrations.flask.view_limit import FlaskLimit

View = TypeVar("View", bound=Callable[..., Any])


class Penstock:
    """One limit for an application or a blueprint: ``Penstock(app, "100/minute")``.

    Takes all that `HttpCheckpoint` does, and ``fallback`` (a function without arguments that
    answers instead), ``defer`` and ``defer_body``. Without an ``app``, call `init_app` later.
    Functions that find out who is logged in, and run before the request, come first.

    ``@penstock.limit("10/second")`` is `limit` with the same store, the same trusted
    proxies, and whatever else is true of a site. Without a ``limit`` of its own, an
    extension is there for that alone.
    """

    def __init__(
        self,
        app: flask.Flask | flask.Blueprint | None = None,
        limit: Limits | LimitFunction = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        check_options("Penstock", options, ViewOptions, "limit")
        self._site = options
        self._name = options.get("name")
        self._fields = options.get("fields", BOTH)
        self._view_limit: FlaskLimit | None = None
        if limit is not None or not options.keys() <= set(OF_A_SITE):
            self._view_limit = FlaskLimit(**for_view(limit, {"name": "default", **options}, {}))
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Stand before every request of the application, or of the blueprint."""
        if not isinstance(app, (flask.Flask, flask.Blueprint)):
            raise TypeError(f"app is a Flask application or a Blueprint, not {app!r:.100}")
        if self._view_limit is not None:
            of = "app" if isinstance(app, flask.Flask) else f"blueprint {app.name}"
            app.before_request(partial(self._view_limit.enter, self._name or of))
        for kind in ANSWERED:
            app.error_handler_spec[None][None].setdefault(kind, self._answer_error)

    def _answer_error(self, error: Exception) -> Any:
        """To an error of ours that a view raised: as the application says, or as we do."""
        for place in (*flask.request.blueprints, None):
            handlers = current_app.error_handler_spec[place][None]
            for kind in type(error).__mro__:
                handler: Any = handlers.get(kind)
                if handler is not None and not _is_ours(handler):
                    return current_app.ensure_sync(handler)(error)
        environ = flask.request.environ
        accept = environ.get("HTTP_ACCEPT", "")
        now = WALL.now() / SECOND
        answer = answer_to(error, environ.get(PENDING, []), accept, now, self._fields)
        assert answer is not None
        return respond(answer)

    def limit(
        self, limit: Limits | LimitFunction = None, **options: Unpack[ViewOptions]
    ) -> Callable[[View], View]:
        """The decorator `limit`, for this site."""
        return _decorator(limit, options, self._site)


def limit(
    limit: Limits | LimitFunction = None, **options: Unpack[ViewOptions]
) -> Callable[[View], View]:
    """A decorator for a view, below the one that gives it its route.

    Takes all that `HttpCheckpoint` does, and ``fallback`` (a view that answers instead, with the
    same arguments), ``defer`` and ``defer_body``. Each view is counted for itself. To have
    several share a limit, name it and decorate them all with the same:
    ``searches = limit("10/second", name="searches")``.
    """
    return _decorator(limit, options, {})


def _decorator(
    limit: Limits | LimitFunction, options: ViewOptions, site: ViewOptions
) -> Callable[[View], View]:
    check_options("limit", options, ViewOptions)
    view_limit = FlaskLimit(**for_view(limit, options, site))
    name = options.get("name")

    def decorate(view: View) -> View:
        if not callable(view):
            raise TypeError(f"limit decorates a view function, not {view!r:.100}")
        scope = name or scope_of(view)
        if iscoroutinefunction(view):

            @wraps(view)
            async def limited_async(*args: Any, **kwargs: Any) -> Any:
                instead = await view_limit.enter_async(scope, *args, **kwargs)
                return await view(*args, **kwargs) if instead is None else instead

            return cast(View, limited_async)

        @wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            instead = view_limit.enter(scope, *args, **kwargs)
            return view(*args, **kwargs) if instead is None else instead

        return cast(View, limited)

    return decorate


def _is_ours(handler: Any) -> bool:
    return getattr(handler, "__func__", None) is Penstock._answer_error
