"""A limit before Flask's views, and the headers of their responses."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

import flask
from flask import current_app, got_request_exception

from penstock.integrations.deciding.applied_limits import (
    APPLIED,
    AppliedLimits,
    fields_of,
    release,
    settle,
    settles,
)
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.refusals import Deferred
from penstock.integrations.deciding.request import Request, Response
from penstock.integrations.deciding.responses import NAMES, Answer, Header
from penstock.integrations.deciding.views import ViewLimit
from penstock.integrations.deciding.waiting import Flow, awaited, finish, finish_async
from penstock.integrations.flask.exceptions import BY_STATUS, respond
from penstock.integrations.flask.request import FlaskRequest
from penstock.integrations.wsgi.disconnects import client_absent, watch_client
from penstock.integrations.wsgi.types import Environ

# The key of the `_Headers` in the environ.
_HEADERS = "penstock.flask"


class FlaskLimit(ViewLimit):
    """A limit of an application, a blueprint or a view."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.checkpoint.count_when is not None:
            got_request_exception.connect(_settle_unhandled)

    def enter(self, scope: str, /, *args: Any, **kwargs: Any) -> Any:
        """The response to send instead of the view's; None if the view may be called."""
        return finish(self._enter(scope, *args, **kwargs), _wait)

    async def enter_async(self, scope: str, /, *args: Any, **kwargs: Any) -> Any:
        return await finish_async(self._enter(scope, *args, **kwargs))

    def _enter(self, scope: str, /, *args: Any, **kwargs: Any) -> Flow[Any]:
        return self.flow(FlaskRequest(scope), _applied_limits(), *args, **kwargs)

    def view_of(self, request: Request) -> Any:
        rule: Any = flask.request.url_rule
        if rule is None or (rule.provide_automatic_options and request.method == "OPTIONS"):
            return None  # Flask responds itself
        return current_app.view_functions.get(rule.endpoint)

    def note(self, request: Request, outcome: Outcome) -> None:
        request.native.environ["penstock.outcome"] = outcome

    def watch(self, request: Request) -> None:
        watch_client(request.native.environ)

    def mark(self, response: Any, header: Header) -> flask.Response:
        marked = current_app.make_response(response)
        marked.headers.add(*header)
        return marked

    def read(self, request: FlaskRequest, longest: int) -> Deferred | None:
        native = request.native
        length = native.content_length
        if length is None:
            body = native.stream.read(longest + 1)  # chunked, so of unknown length
        elif length <= longest:
            body = native.get_data()
        else:
            return None
        if len(body) > longest or len(body) < (length or 0):
            return None
        return request.deferred(body)

    def refuse(self, answer: Answer, outcome: Outcome) -> flask.Response:
        exception = BY_STATUS.get(answer.status)
        if exception is None:  # it was deferred
            return respond(answer)
        after = dict(answer.headers).get("Retry-After")
        if after is not None:
            flask.after_this_request(partial(_with_retry_after, after))
        raise exception.of(answer, outcome)


def _with_retry_after(after: str, response: flask.Response) -> flask.Response:
    """Also on the response of an error handler that does not set it."""
    if response.status_code in (429, 503):
        response.headers.setdefault("Retry-After", after)
    return response


def _wait(waiting: Awaitable[Any]) -> Any:
    return current_app.async_to_sync(awaited)(waiting)


class _Headers:
    """Adds the headers of limits to the application's response, and settles by its status."""

    def __init__(self, applied: AppliedLimits, environ: Environ) -> None:
        self._applied = applied
        self._environ = environ
        self._error: BaseException | None = None

    def add(self, response: flask.Response) -> flask.Response:
        if not self._applied:
            return response
        for name in NAMES:
            response.headers.remove(name)
        response.headers.extend(fields_of(self._applied))
        if settles(self._applied):
            headers = {name.lower(): value for name, value in response.headers}
            self._settle(Response(response.status_code, headers, self._error))
        release(self._applied)
        return response

    def failed(self, error: BaseException) -> None:
        """There may be no response: in debug mode the server gets the exception itself."""
        self._error = error
        self._settle(Response(500, {}, error))
        release(self._applied)

    def _settle(self, response: Response) -> None:
        settle(self._applied, response, client_absent(self._environ))


def _applied_limits() -> AppliedLimits:
    environ = flask.request.environ
    applied: AppliedLimits | None = environ.get(APPLIED)
    if applied is None:
        applied = environ[APPLIED] = []
        headers = environ[_HEADERS] = _Headers(applied, environ)
        flask.after_this_request(headers.add)
    return applied


def _settle_unhandled(sender: flask.Flask, exception: BaseException, **extra: Any) -> None:
    headers: _Headers | None = flask.request.environ.get(_HEADERS)
    if headers is not None:
        headers.failed(exception)
