"""PenstockWSGI: rate limits for any WSGI application.

Only ``start_response`` is wrapped. What the application returns is handed on as it is, so that
the server still knows a file when it sees one, and closes what has to be closed. With a
``count_when``, the body of the request is wrapped, too, to see whether it comes in full. So is the
response of an application that will only begin when it is iterated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import isawaitable
from typing import Any, Unpack

from penstock.integrations.deciding import http
from penstock.integrations.deciding.defer import Defer, Deferred, check_defer, place_of
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.options import MiddlewareOptions, check_options
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.pending import (
    PENDING,
    Pending,
    Settling,
    abandoned,
    with_fields,
    withdraw,
)
from penstock.integrations.deciding.request import Response
from penstock.integrations.deciding.waiting import cannot_wait
from penstock.integrations.wsgi.client import client_absent, watch_client
from penstock.integrations.wsgi.raised import error_answer
from penstock.integrations.wsgi.request import (
    App,
    Environ,
    StartResponse,
    WsgiRequest,
    headers_of,
    read_body,
    start_answer,
)


class PenstockWSGI:
    """Limits requests: ``app.wsgi_app = PenstockWSGI(app.wsgi_app, limit="100/minute")``.

    Takes all that `HttpCheckpoint` does, and

    - ``fallback``: a WSGI application that answers instead of 429, such as from a cache
    - ``defer``: a function that puts a refused request into a queue, and says where to ask
      for it; see `penstock.integrations.deciding.defer`. ``defer_body``: the longest body to keep

    A handler finds the `Outcome` in ``environ["penstock.outcome"]``. Workers that are processes
    share a limit through a store: `SharedMemoryStore` on one host, or Redis.
    """

    def __init__(
        self,
        app: App,
        *,
        fallback: App | None = None,
        defer: Defer | None = None,
        defer_body: int = 1_048_576,
        **options: Unpack[MiddlewareOptions],
    ) -> None:
        self._app = app
        check_options(
            "PenstockWSGI", options, MiddlewareOptions,
            "fallback", "defer", "defer_body",
        )  # fmt: skip
        self._checkpoint = HttpCheckpoint(asynchronous=False, **options)
        if fallback is not None and not callable(fallback):
            raise TypeError(f"fallback is a WSGI application, not {fallback!r:.100}")
        if fallback is not None and defer is not None:
            raise TypeError("give fallback or defer: a body that was kept cannot be read again")
        self._fallback = fallback
        self._defer, self._defer_body = check_defer(defer, defer_body)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = WsgiRequest(environ)
        outcome = self._checkpoint.check(request)
        style = self._checkpoint.fields
        if outcome is None:
            if PENDING in environ:
                return self._app(environ, start_response)
            return _telling(self._app, environ, [], start_response, style)
        environ["penstock.outcome"] = outcome
        if self._checkpoint.count_when is not None:
            watch_client(environ)
        pending: Pending | None = environ.get(PENDING)
        if pending is not None:  # another of us is further out, and tells
            pending.append((self._checkpoint, outcome))
        if not outcome.allowed:
            withdraw(pending[:-1] if pending else ())
            return self._refuse(outcome, request, start_response)
        if pending is not None:
            return self._app(environ, start_response)
        pending = [(self._checkpoint, outcome)]
        return _telling(self._app, environ, pending, start_response, style)

    def _refuse(
        self, outcome: Outcome, request: WsgiRequest, start_response: StartResponse
    ) -> Iterable[bytes]:
        checkpoint, environ = self._checkpoint, request.environ
        if outcome.final:  # neither a place in the queue nor a cheaper answer
            return start_answer(checkpoint.answer(outcome, request), environ, start_response)
        if self._defer is not None:
            location = self._put_off(self._defer, request)
            if location is not None:
                answer = http.deferred(location, outcome.told, checkpoint.now(), checkpoint.fields)
                return start_answer(answer, environ, start_response)
        if self._fallback is not None:
            start = _marking(http.FALLBACK, start_response)
            if PENDING in environ:
                return self._fallback(environ, start)
            pending = [(checkpoint, outcome)]
            return _telling(self._fallback, environ, pending, start, checkpoint.fields)
        return start_answer(checkpoint.answer(outcome, request), environ, start_response)

    def _put_off(self, defer: Defer, request: WsgiRequest) -> str | None:
        environ = request.environ
        body = read_body(environ, self._defer_body)
        if body is None:
            return None
        query = environ.get("QUERY_STRING", "")
        kept = Deferred(
            request.method, request.path, query, headers_of(environ), body, request.client
        )
        location = defer(kept)
        if isawaitable(location):
            cannot_wait(location)
        return place_of(location)


def _telling(
    app: App, environ: Environ, pending: Pending, start_response: StartResponse, style: str
) -> Iterable[bytes]:
    """Run the application, add headers to the start of its response, and settle.

    If it raises an error of ours before it has answered, the answer is ours.
    """
    environ[PENDING] = pending
    tell = _Teller(pending, environ, start_response, style)
    try:
        body = app(environ, tell)
    except Exception as error:
        answer = tell.failed(error)
        if answer is None:
            raise
        return answer
    except BaseException:
        abandoned(pending)
        raise
    return body if tell.started else _Watched(body, tell)


class _Teller:
    """A ``start_response`` that adds the headers, and settles by the status."""

    def __init__(
        self, pending: Pending, environ: Environ, start_response: StartResponse, style: str
    ) -> None:
        self._pending = pending
        self._environ = environ
        self._settling = Settling(pending)
        self._start_response = start_response
        self._style = style
        self.started = False

    def __call__(
        self, status: str, headers: list[tuple[str, str]], *exc_info: Any
    ) -> Callable[[bytes], object]:
        self.started = True
        all_headers = with_fields(headers, self._pending)
        write = self._start_response(status, all_headers, *exc_info)
        # With exc_info it is for the second time, and nothing was sent of the first.
        if self._settling.wanted:
            by_name = {name.lower(): value for name, value in headers}
            self._settle(Response(int(status[:3]), by_name, _error(status, *exc_info)))
        return write

    def failed(self, error: Exception) -> list[bytes] | None:
        """The body of our answer to an error of ours; None for all others."""
        if self.started:
            return None
        answer = error_answer(error, self._pending, self._environ, self, self._style)
        if answer is None:
            self._settle(Response(500, {}, error))
        return answer

    def closed(self) -> None:
        if not self.started:
            abandoned(self._pending)

    def _settle(self, response: Response) -> None:
        self._settling.settle(response, client_absent(self._environ))


class _Watched:
    """The body of an application that has not begun, and may yet fail."""

    def __init__(self, body: Iterable[bytes], tell: _Teller) -> None:
        self._body = body
        self._tell = tell

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._body:  # noqa: UP028 - `yield from` would close it, too
                yield piece
        except Exception as error:
            answer = self._tell.failed(error)
            if answer is None:
                raise
            yield from answer

    def close(self) -> None:
        self._tell.closed()
        close = getattr(self._body, "close", None)
        if close is not None:
            close()


def _marking(mark: http.Header, start_response: StartResponse) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        return start_response(status, [*headers, mark], *exc_info)

    return start


def _error(status: str, exc_info: Any = None) -> BaseException | None:
    error: BaseException | None = exc_info[1] if exc_info else None
    return error if status >= "500" else None
