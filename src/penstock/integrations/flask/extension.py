"""`Penstock` for an application or a blueprint, and ``@limit`` for a view."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, Unpack
from weakref import WeakSet

import flask
from flask import current_app

from penstock.integrations.deciding.applied_limits import APPLIED
from penstock.integrations.deciding.checkpoint import yes_or_no
from penstock.integrations.deciding.environment import with_environment
from penstock.integrations.deciding.error_responses import ANSWERED, answer_to
from penstock.integrations.deciding.http_checkpoint import AnyLimits
from penstock.integrations.deciding.marked_views import OVERRIDE, exempt, mark
from penstock.integrations.deciding.misuse import check_limit_function, without_limit
from penstock.integrations.deciding.options import ExtensionOptions, RouteOptions, check_options
from penstock.integrations.deciding.responses import BOTH
from penstock.integrations.deciding.views import SITE_OPTIONS, Options, for_view, scope_of
from penstock.integrations.flask.exceptions import respond
from penstock.integrations.flask.misuse import check_view
from penstock.integrations.flask.view_limit import FlaskLimit

View = TypeVar("View", bound=Callable[..., Any])


class Penstock:
    """One limit for an application or a blueprint: ``Penstock(app, "100/minute")``.

    Takes the options of `HttpCheckpoint`, and ``fallback`` (a function without arguments that
    answers instead), ``defer``, ``defer_body``, and ``from_env``: read options that are not
    given from the environment. Without an ``app``, call `init_app` later.
    Register functions that log users in with ``before_request`` before that.

    ``@penstock.limit("10/second")`` is `limit` with the same store, trusted proxies and other
    options of the site. An extension without a ``limit`` serves only for that.
    """

    def __init__(
        self,
        app: flask.Flask | flask.Blueprint | None = None,
        limit: AnyLimits = None,
        **options: Unpack[ExtensionOptions],
    ) -> None:
        check_options("Penstock", options, ExtensionOptions, "limit")
        completed = with_environment({"limit": limit, **options})
        limit = completed.pop("limit", None)
        self._site: Options = completed
        self._name = completed.get("name")
        self._fields = completed.get("fields", BOTH)
        self._view_limit: FlaskLimit | None = None
        if limit is not None or not completed.keys() <= set(SITE_OPTIONS):
            self._view_limit = FlaskLimit(
                site=True, **for_view(limit, {"name": "default", **completed}, {})
            )
        self._view_limits = [] if self._view_limit is None else [self._view_limit]
        self._apps: WeakSet[flask.Flask | flask.Blueprint] = WeakSet()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Limit every request of the application, or of the blueprint."""
        if not isinstance(app, (flask.Flask, flask.Blueprint)):
            raise TypeError(
                f"app is a Flask application or a Blueprint, not {app!r:.100}: write Penstock(app,"
                " '100/minute'), or Penstock(limit='100/minute') and init_app(app) later"
            )
        if app in self._apps:
            raise ValueError(
                f"{app!r:.100} has this limit already, and would count every request twice: "
                "write either Penstock(app, ...) or penstock.init_app(app)"
            )
        self._apps.add(app)
        if self._view_limit is not None:
            of = "app" if isinstance(app, flask.Flask) else f"blueprint {app.name}"
            app.before_request(partial(self._view_limit.enter, self._name or of))
        for kind in ANSWERED:
            app.error_handler_spec[None][None].setdefault(kind, self._answer_error)

    def _answer_error(self, error: Exception) -> Any:
        """The response to our error: by a handler of the application, or else ours."""
        for place in (*flask.request.blueprints, None):
            handlers = current_app.error_handler_spec[place][None]
            for kind in type(error).__mro__:
                handler: Any = handlers.get(kind)
                ours = getattr(handler, "__func__", None) is Penstock._answer_error
                if handler is not None and not ours:
                    return current_app.ensure_sync(handler)(error)
        environ = flask.request.environ
        accept = environ.get("HTTP_ACCEPT", "")
        answer = answer_to(error, environ.get(APPLIED, []), accept, self._fields)
        assert answer is not None
        return respond(answer)

    def limit(
        self, limit: AnyLimits = None, **options: Unpack[RouteOptions]
    ) -> Callable[[View], View]:
        """The decorator `limit`, for this site."""
        decorator, view_limit = _decorator(limit, options, self._site)
        self._view_limits.append(view_limit)
        return decorator

    exempt = staticmethod(exempt)

    def reset(self) -> None:
        """Forget all counts of the site and of the views that it limits, as between tests.

        A store that you gave is cleared completely.
        """
        for view_limit in self._view_limits:
            view_limit.checkpoint.reset()


def limit(limit: AnyLimits = None, **options: Unpack[RouteOptions]) -> Callable[[View], View]:
    """A decorator for a view, below the one that gives it its route.

    Takes the options of `HttpCheckpoint`, ``fallback`` (a view that answers instead, with the
    same arguments), ``defer``, ``defer_body``, and ``override`` (apply in place of the limits of
    the application and the blueprint). Each view counts on its own. To share a limit between
    views, name it and decorate them all with it:
    ``searches = limit("10/second", name="searches")``.
    """
    return _decorator(limit, options, {})[0]


def _decorator(
    limit: AnyLimits, options: RouteOptions, site: Options
) -> tuple[Callable[[View], View], FlaskLimit]:
    check_options("limit", options, RouteOptions)
    if callable(limit):
        check_limit_function(limit)
    override = yes_or_no(options.pop("override", False), "override")
    view_limit = FlaskLimit(**for_view(limit, options, site))
    override = override and view_limit.checkpoint.enabled
    name = options.get("name")

    def decorate(view: Any = None, /, **arguments: Any) -> Any:
        if view is None and callable(limit):  # it became the view, and Flask calls it
            raise without_limit(limit)
        check_view(view)
        scope = name or scope_of(view)
        if iscoroutinefunction(view):

            @wraps(view)
            async def limited_async(*args: Any, **kwargs: Any) -> Any:
                instead = await view_limit.enter_async(scope, *args, **kwargs)
                return await view(*args, **kwargs) if instead is None else instead

            return mark(limited_async, OVERRIDE) if override else limited_async

        @wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            instead = view_limit.enter(scope, *args, **kwargs)
            return view(*args, **kwargs) if instead is None else instead

        return mark(limited, OVERRIDE) if override else limited

    return decorate, view_limit
