"""BreakerWSGI: an application that keeps failing is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import isawaitable
from typing import Any

from penstock.breaker import CircuitBreaker, Permit
from penstock.integrations.deciding.exempt import as_exempt
from penstock.integrations.deciding.raised import REFUSED, circuit_open
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.waiting import cannot_wait
from penstock.integrations.wsgi.client import client_absent, watch_client
from penstock.integrations.wsgi.raised import ErrorAnswers
from penstock.integrations.wsgi.request import (
    App,
    Environ,
    StartResponse,
    WsgiRequest,
    start_answer,
)


class BreakerWSGI:
    """Answers 503 with ``Retry-After`` while the breaker is open.

    ``app.wsgi_app = BreakerWSGI(app.wsgi_app, CircuitBreaker(failures=20))``

    A request failed if the application raised, or answered 5xx, unless its client had left
    before its body was read. ``exempt`` are paths that
    neither count nor are refused, such as ``"/health"``.
    """

    def __init__(
        self,
        app: App,
        breaker: CircuitBreaker,
        *,
        exempt: Iterable[str] | Callable[[Request], bool] = (),
    ) -> None:
        if not isinstance(breaker, CircuitBreaker):
            raise TypeError(f"breaker is a CircuitBreaker, not {breaker!r:.100}")
        self._app = ErrorAnswers(app)
        self._breaker = breaker
        self._exempt = as_exempt(exempt)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = WsgiRequest(environ)
        if self._exempt is not None:
            exempt = self._exempt(request)
            if isawaitable(exempt):
                cannot_wait(exempt)
            if exempt:
                return self._app(environ, start_response)
        breaker = self._breaker
        permit = breaker.allows()
        if permit is None:
            answer = circuit_open(breaker.retry_after, request.header("accept") or "")
            return start_answer(answer, environ, start_response)
        watch_client(environ)
        call = _Call(breaker, permit, environ, start_response)
        try:
            body = self._app(environ, call.start)
        except Exception as error:
            call.failed(error)
            raise
        except BaseException:
            call.gave_up()
            raise
        return body if call.reported else _Unbegun(body, call)


class _Call:
    """What the breaker is told of one request, once."""

    def __init__(
        self,
        breaker: CircuitBreaker,
        permit: Permit,
        environ: Environ,
        start_response: StartResponse,
    ) -> None:
        self._breaker = breaker
        self._permit = permit
        self._environ = environ
        self._start_response = start_response
        self.reported = False

    def start(self, status: str, headers: Any, *exc_info: Any) -> Any:
        if status.startswith("5"):
            self._failed(f"it answered {status[:3]}")
        else:
            self._succeeded()
        return self._start_response(status, headers, *exc_info)

    def failed(self, error: Exception) -> None:
        if isinstance(error, REFUSED):  # it did not fail: the client came too often
            self._succeeded()
        else:
            self._failed(f"{type(error).__name__}: {error}"[:200])

    def _failed(self, why: str) -> None:
        if client_absent(self._environ):  # which says nothing about the application
            self.gave_up()
        elif not self.reported:
            self.reported = True
            self._breaker.failed(self._permit, why)

    def _succeeded(self) -> None:
        if not self.reported:
            self.reported = True
            self._breaker.succeeded(self._permit)

    def gave_up(self) -> None:
        if not self.reported:
            self.reported = True
            self._breaker.gave_up(self._permit)


class _Unbegun:
    """The body of an application that will begin when it is iterated, and may yet fail."""

    def __init__(self, body: Iterable[bytes], call: _Call) -> None:
        self._body = body
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._body:  # noqa: UP028 - `yield from` would close it, too
                yield piece
        except Exception as error:
            self._call.failed(error)
            raise

    def close(self) -> None:
        self._call.gave_up()
        close = getattr(self._body, "close", None)
        if close is not None:
            close()
