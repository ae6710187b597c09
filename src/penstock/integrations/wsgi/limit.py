"""PenstockWSGI: rate limits for any WSGI application.

Only ``start_response`` is wrapped. What the application returns is handed on as it is, so that
the server still knows a file when it sees one, and closes what has to be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import isawaitable
from typing import Any

from penstock.integrations import http
from penstock.integrations.checkpoint import Checkpoint
from penstock.integrations.defer import Defer, Deferred, check_defer, place_of
from penstock.integrations.descriptors import no_waiting
from penstock.integrations.outcome import Outcome
from penstock.integrations.request import Response
from penstock.integrations.wsgi.request import (
    App,
    Environ,
    StartResponse,
    WsgiRequest,
    headers_of,
    start_answer,
)  # fmt: skip


class PenstockWSGI:
    """Limits requests: ``app.wsgi_app = PenstockWSGI(app.wsgi_app, limit="100/minute")``.

    Takes all that `Checkpoint` does, and

    - ``fallback``: a WSGI application that answers instead of 429, such as from a cache
    - ``defer``: a function that puts a refused request into a queue, and says where to ask
      for it; see `penstock.integrations.defer`. ``defer_body``: the longest body to keep

    A handler finds the `Outcome` in ``environ["penstock"]``. Workers that are processes
    share a limit through a store: `SharedMemoryStore` on one host, or Redis.
    """

    def __init__(
        self,
        app: App,
        *,
        fallback: App | None = None,
        defer: Defer | None = None,
        defer_body: int = 1_048_576,
        **options: Any,
    ) -> None:
        self._app = app
        self._checkpoint = Checkpoint(asynchronous=False, **options)
        if fallback is not None and not callable(fallback):
            raise TypeError(f"fallback is a WSGI application, not {fallback!r:.100}")
        if fallback is not None and defer is not None:
            raise TypeError("give fallback or defer: a body that was kept cannot be read again")
        self._fallback = fallback
        self._defer, self._defer_body = check_defer(defer, defer_body)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = WsgiRequest(environ)
        outcome = self._checkpoint.check(request)
        if outcome is None:
            return self._app(environ, start_response)
        environ["penstock"] = outcome
        if not outcome.allowed:
            return self._refuse(outcome, request, start_response)
        tell = _Teller(self._checkpoint, outcome, start_response)
        try:
            return self._app(environ, tell)
        except Exception as error:
            tell.failed(error)
            raise

    def _refuse(
        self, outcome: Outcome, request: WsgiRequest, start_response: StartResponse
    ) -> Iterable[bytes]:
        checkpoint, environ = self._checkpoint, request.environ
        if self._defer is not None:
            location = self._put_off(self._defer, request)
            if location is not None:
                answer = http.deferred(location, outcome.told, checkpoint.now(), checkpoint.fields)
                return start_answer(answer, environ, start_response)
        if self._fallback is not None:
            marks = [http.FALLBACK, *checkpoint.headers(outcome)]
            return self._fallback(environ, _adding(marks, start_response))
        return start_answer(checkpoint.answer(outcome, request), environ, start_response)

    def _put_off(self, defer: Defer, request: WsgiRequest) -> str | None:
        environ = request.environ
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
        except ValueError:
            return None
        if length > self._defer_body:
            return None
        body = environ["wsgi.input"].read(length) if length > 0 else b""
        query = environ.get("QUERY_STRING", "")
        kept = Deferred(
            request.method, request.path, query, headers_of(environ), body, request.client
        )
        found = defer(kept)
        if isawaitable(found):
            raise no_waiting(found)
        return place_of(found)


class _Teller:
    """A ``start_response`` that adds the headers, and settles by the status."""

    def __init__(
        self, checkpoint: Checkpoint, outcome: Outcome, start_response: StartResponse
    ) -> None:
        self._checkpoint = checkpoint
        self._outcome = outcome
        self._start_response = start_response
        self._settled = checkpoint.count_when is None

    def __call__(
        self, status: str, headers: list[tuple[str, str]], *exc_info: Any
    ) -> Callable[[bytes], object]:
        told = self._checkpoint.headers(self._outcome)
        write = self._start_response(status, [*headers, *told], *exc_info)
        if not self._settled:
            found = {name.lower(): value for name, value in headers}
            self._settle(Response(int(status[:3]), found))
        return write

    def failed(self, error: BaseException) -> None:
        if not self._settled:
            self._settle(Response(500, {}, error))

    def _settle(self, response: Response) -> None:
        self._settled = True
        self._checkpoint.settle(self._outcome, response)


def _adding(extra: list[http.Header], start_response: StartResponse) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        return start_response(status, [*headers, *extra], *exc_info)

    return start
