"""A limit before Flask's views."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any, NoReturn

import flask
from flask import current_app, got_request_exception

from penstock.integrations.deciding.defer import Deferred
from penstock.integrations.deciding.http import Answer, Header
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.views import ViewLimit
from penstock.integrations.deciding.waiting import awaited, finish, finish_async
from penstock.integrations.flask.refusals import BY_STATUS, respond
from penstock.integrations.flask.request import FlaskRequest
from penstock.integrations.flask.telling import pending_of_request, unhandled
from penstock.integrations.wsgi.client import watch_client
from penstock.integrations.wsgi.request import headers_of


class FlaskLimit(ViewLimit):
    """A limit, wherever it stands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.checkpoint.count_when is not None:
            got_request_exception.connect(unhandled)

    def enter(self, scope: str, *args: Any, **kwargs: Any) -> Any:
        flow = self.flow(FlaskRequest(scope), pending_of_request(), *args, **kwargs)
        return finish(flow, _wait)

    async def enter_async(self, scope: str, *args: Any, **kwargs: Any) -> Any:
        return await finish_async(
            self.flow(FlaskRequest(scope), pending_of_request(), *args, **kwargs)
        )

    def note(self, request: Request, outcome: Outcome) -> None:
        request.native.environ["penstock.outcome"] = outcome

    def watch(self, request: Request) -> None:
        watch_client(request.native.environ)

    def respond(self, answer: Answer) -> flask.Response:
        return respond(answer)

    def mark(self, response: Any, header: Header) -> flask.Response:
        marked = current_app.make_response(response)
        marked.headers.add(*header)
        return marked

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
        raise BY_STATUS[answer.status].of(answer, outcome)


def _with_retry_after(after: str, response: flask.Response) -> flask.Response:
    """Also on the answer of an error handler that does not know of it."""
    if response.status_code in (429, 503):
        response.headers.setdefault("Retry-After", after)
    return response


def _wait(waiting: Awaitable[Any]) -> Any:
    return current_app.async_to_sync(awaited)(waiting)
