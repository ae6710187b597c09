"""Flask: limits for an application, a blueprint or a view.

>>> from flask import Flask
>>> from penstock.integrations.flask import Penstock, limit
>>> app = Flask("shop")
>>> _ = Penstock(app, "100/minute", exempt=["/health"])
>>> @app.get("/search")
... @limit("10/second")
... def search() -> list[str]: ...

A refusal is raised as an exception of Werkzeug's, so ``@app.errorhandler(429)`` can answer in
its own way. Limits that do not need to know routes or users can stand further out:
`penstock.integrations.wsgi.PenstockWSGI`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial, wraps
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, NoReturn, TypeVar, cast

try:
    import flask
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Flask is not installed: pip install 'penstock[flask]'", name=error.name
    ) from error

from flask import current_app, got_request_exception
from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    HTTPException,
    ServiceUnavailable,
    TooManyRequests,
)

from penstock.clock import WALL
from penstock.durations import SECOND
from penstock.integrations.checkpoint import LimitFunction, Limits
from penstock.integrations.defer import Deferred
from penstock.integrations.http import BOTH, NAMES, Answer, Header
from penstock.integrations.outcome import Outcome
from penstock.integrations.pending import PENDING, Pending, Settling, fields_of
from penstock.integrations.raised import ANSWERED, answer_to
from penstock.integrations.request import Request, Response, identity_of
from penstock.integrations.views import (
    OF_A_SITE,
    Door,
    Options,
    awaited,
    finish,
    finish_async,
    for_view,
    scope_of,
)  # fmt: skip
from penstock.integrations.wsgi.client import client_absent, watch_client
from penstock.integrations.wsgi.request import Environ, WsgiRequest, headers_of

__all__ = ["Denied", "LimitsUnavailable", "PathUnclear", "Penstock", "RateLimited", "limit"]

View = TypeVar("View", bound=Callable[..., Any])
# In the environ: who tells of limits, if that is this module.
_TELLER = "penstock.flask"


# What is raised ----------------------------------------------------------------------------


class _Refusal(HTTPException):
    answer: Answer
    outcome: Outcome

    @classmethod
    def of(cls, answer: Answer, outcome: Outcome) -> _Refusal:
        made = cls(response=_respond(answer))
        made.answer, made.outcome = answer, outcome
        return made


class RateLimited(_Refusal, TooManyRequests):
    """429. ``answer`` is ours, and ``outcome`` says what was decided."""


class Denied(_Refusal, Forbidden):
    """403: on a deny list."""


class LimitsUnavailable(_Refusal, ServiceUnavailable):
    """503: the store failed, and ``on_failure`` is ``"closed"``."""


class PathUnclear(_Refusal, BadRequest):
    """400: the path has several meanings, for which there are different rules."""


_RAISED: dict[int, type[_Refusal]] = {
    429: RateLimited, 403: Denied, 503: LimitsUnavailable, 400: PathUnclear,
}  # fmt: skip


# The request -------------------------------------------------------------------------------


class FlaskRequest(WsgiRequest):
    """``native`` is Flask's request; ``route`` is the rule, such as ``/users/<int:id>``."""

    native: flask.Request

    def __init__(self, scope: str) -> None:
        native = cast(Any, flask.request)._get_current_object()
        super().__init__(native.environ, native)
        self.scope = scope

    @property
    def user(self) -> str | None:
        """Flask-Login's user, or ``g.user``, or what the server says."""
        if hasattr(current_app, "login_manager"):
            return _logged_in(import_module("flask_login").current_user)
        return _identity(flask.g.get("user")) or super().user

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """As the view reads them."""
        return self.native.cookies.to_dict()

    @property
    def route(self) -> str | None:
        rule = self.native.url_rule
        return None if rule is None else rule.rule


def _identity(user: Any) -> str | None:
    """Of an object, a number, or a row of a database."""
    if isinstance(user, int):
        return str(user)
    if hasattr(user, "keys"):
        return str(user["id"]) if "id" in list(user.keys()) else None
    return identity_of(user)


def _logged_in(user: Any) -> str | None:
    if not user or not user.is_authenticated:
        return None
    return str(user.get_id())


# Limits ------------------------------------------------------------------------------------


class _FlaskDoor(Door):
    """A limit, wherever it stands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.checkpoint.count_when is not None:
            got_request_exception.connect(_unhandled)

    def enter(self, scope: str, *args: Any, **kwargs: Any) -> Any:
        flow = self.flow(FlaskRequest(scope), _pending(), *args, **kwargs)
        return finish(flow, _wait)

    async def enter_async(self, scope: str, *args: Any, **kwargs: Any) -> Any:
        return await finish_async(self.flow(FlaskRequest(scope), _pending(), *args, **kwargs))

    def note(self, request: Request, outcome: Outcome) -> None:
        request.native.environ["penstock.outcome"] = outcome

    def watch(self, request: Request) -> None:
        watch_client(request.native.environ)

    def respond(self, answer: Answer) -> flask.Response:
        return _respond(answer)

    def mark(self, response: Any, header: Header) -> flask.Response:
        made = current_app.make_response(response)
        made.headers.add(*header)
        return made

    def keep(self, request: Request) -> Deferred | None:
        native: flask.Request = request.native
        length = native.content_length
        if length is None:
            body = native.stream.read(self.defer_body + 1)  # of a chunked one nobody knows
        elif length <= self.defer_body:
            body = native.get_data()
        else:
            return None
        if len(body) > self.defer_body or len(body) < (length or 0):
            return None
        query = native.environ.get("QUERY_STRING", "")
        headers = headers_of(native.environ)
        return Deferred(request.method, request.path, query, headers, body, request.client)

    def refuse(self, answer: Answer, outcome: Outcome) -> NoReturn:
        after = dict(answer.headers).get("Retry-After")
        if after is not None:
            flask.after_this_request(partial(_with_retry_after, after))
        raise _RAISED[answer.status].of(answer, outcome)


class Penstock:
    """One limit for an application or a blueprint: ``Penstock(app, "100/minute")``.

    Takes all that `Checkpoint` does, and ``fallback`` (a function without arguments that
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
        **options: Any,
    ) -> None:
        self._site = options
        self._name = options.get("name")
        self._fields = options.get("fields", BOTH)
        self._door: _FlaskDoor | None = None
        if limit is not None or not options.keys() <= set(OF_A_SITE):
            self._door = _FlaskDoor(**for_view(limit, {"name": "default", **options}, {}))
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Stand before every request of the application, or of the blueprint."""
        if not isinstance(app, (flask.Flask, flask.Blueprint)):
            raise TypeError(f"app is a Flask application or a Blueprint, not {app!r:.100}")
        if self._door is not None:
            of = "app" if isinstance(app, flask.Flask) else f"blueprint {app.name}"
            app.before_request(partial(self._door.enter, self._name or of))
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
        return _respond(answer)

    def limit(self, limit: Limits | LimitFunction = None, **options: Any) -> Callable[[View], View]:
        """The decorator `limit`, for this site."""
        return _decorator(limit, options, self._site)


def limit(limit: Limits | LimitFunction = None, **options: Any) -> Callable[[View], View]:
    """A decorator for a view, below the one that gives it its route.

    Takes all that `Checkpoint` does, and ``fallback`` (a view that answers instead, with the
    same arguments), ``defer`` and ``defer_body``. Each view is counted for itself. To have
    several share a limit, name it and decorate them all with the same:
    ``searches = limit("10/second", name="searches")``.
    """
    return _decorator(limit, options, {})


def _decorator(
    limit: Limits | LimitFunction, options: Options, site: Options
) -> Callable[[View], View]:
    door = _FlaskDoor(**for_view(limit, options, site))
    name = options.get("name")

    def decorate(view: View) -> View:
        if not callable(view):
            raise TypeError(f"limit decorates a view function, not {view!r:.100}")
        scope = name or scope_of(view)
        if iscoroutinefunction(view):

            @wraps(view)
            async def limited_async(*args: Any, **kwargs: Any) -> Any:
                instead = await door.enter_async(scope, *args, **kwargs)
                return await view(*args, **kwargs) if instead is None else instead

            return cast(View, limited_async)

        @wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            instead = door.enter(scope, *args, **kwargs)
            return view(*args, **kwargs) if instead is None else instead

        return cast(View, limited)

    return decorate


def _is_ours(handler: Any) -> bool:
    return getattr(handler, "__func__", None) is Penstock._answer_error


# Telling -----------------------------------------------------------------------------------


class _Teller:
    """Adds headers to whatever the application answers, and settles by its status."""

    def __init__(self, pending: Pending, environ: Environ) -> None:
        self._pending = pending
        self._environ = environ
        self._settling = Settling(pending)
        self._error: BaseException | None = None

    def tell(self, response: flask.Response) -> flask.Response:
        if not self._pending:
            return response
        for name in NAMES:
            response.headers.remove(name)
        response.headers.extend(fields_of(self._pending))
        if self._settling.wanted:
            headers = {name.lower(): value for name, value in response.headers}
            self._settle(Response(response.status_code, headers, self._error))
        return response

    def failed(self, error: BaseException) -> None:
        """There may be no response: in debug mode the server sees the exception itself."""
        self._error = error
        self._settle(Response(500, {}, error))

    def _settle(self, response: Response) -> None:
        self._settling.settle(response, client_absent(self._environ))


def _pending() -> Pending:
    environ = flask.request.environ
    found: Pending | None = environ.get(PENDING)
    if found is None:
        found = environ[PENDING] = []
        teller = environ[_TELLER] = _Teller(found, environ)
        flask.after_this_request(teller.tell)
    return found


def _unhandled(sender: flask.Flask, exception: BaseException, **extra: Any) -> None:
    teller: _Teller | None = flask.request.environ.get(_TELLER)
    if teller is not None:
        teller.failed(exception)


def _with_retry_after(after: str, response: flask.Response) -> flask.Response:
    """Also on the answer of an error handler that does not know of it."""
    if response.status_code in (429, 503):
        response.headers.setdefault("Retry-After", after)
    return response


def _respond(answer: Answer) -> flask.Response:
    return current_app.response_class(answer.body, answer.status, answer.headers)


def _wait(waiting: Awaitable[Any]) -> Any:
    return current_app.async_to_sync(awaited)(waiting)
