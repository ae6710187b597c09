"""BreakerWSGI: an application that keeps failing is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import Any

from penstock.breaker import CircuitBreaker
from penstock.integrations import http
from penstock.integrations.exempt import as_exempt
from penstock.integrations.request import Request
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

    A request failed if the application raised, or answered 5xx. ``exempt`` are paths that
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
        self._app = app
        self._breaker = breaker
        self._exempt = as_exempt(exempt)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = WsgiRequest(environ)
        if self._exempt is not None and self._exempt(request):
            return self._app(environ, start_response)
        breaker = self._breaker
        permit = breaker.allows()
        if permit is None:
            after = max(1, ceil(breaker.retry_after))
            accept = request.header("accept") or ""
            answer = http.unavailable(503, "Out of order for a while", after, accept)
            return start_answer(answer, environ, start_response)
        told = False

        def watch(status: str, headers: Any, *exc_info: Any) -> Any:
            nonlocal told
            if not told:
                told = True
                if status.startswith("5"):
                    breaker.failed(permit, f"it answered {status[:3]}")
                else:
                    breaker.succeeded(permit)
            return start_response(status, headers, *exc_info)

        try:
            return self._app(environ, watch)
        except Exception as error:
            if not told:
                breaker.failed(permit, f"{type(error).__name__}: {error}"[:200])
            raise
        except BaseException:
            if not told:
                breaker.gave_up(permit)
            raise
