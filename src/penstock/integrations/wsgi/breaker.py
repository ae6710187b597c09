"""BreakerWSGI: an application that keeps failing is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock import switch
from penstock.breaker import CircuitBreaker
from penstock.integrations.deciding.breaker_call import BreakerCall
from penstock.integrations.deciding.error_responses import circuit_open
from penstock.integrations.deciding.exempt import as_exempt
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.waiting import finish, value
from penstock.integrations.wsgi.disconnects import client_absent, watch_client
from penstock.integrations.wsgi.headers import LimitFields
from penstock.integrations.wsgi.request import WatchedBody, WsgiRequest, start_answer
from penstock.integrations.wsgi.types import App, Environ, StartResponse


class BreakerWSGI:
    """Answers 503 with ``Retry-After`` while the breaker is open.

    ``app.wsgi_app = BreakerWSGI(app.wsgi_app, CircuitBreaker(failures=20))``

    A request failed if the application raised, or answered 5xx, unless its client had left
    before its body was read. ``exempt`` are paths that neither count nor are refused, such as
    ``"/health"``. With ``enabled=False`` the breaker is neither asked nor told.
    """

    def __init__(
        self,
        app: App,
        breaker: CircuitBreaker,
        *,
        exempt: Iterable[str] | Callable[[Request], bool] = (),
        enabled: bool | None = None,
    ) -> None:
        if not isinstance(breaker, CircuitBreaker):
            raise TypeError(f"breaker is a CircuitBreaker, not {breaker!r:.100}")
        self._app = LimitFields(app)
        self._breaker = breaker
        self._enabled = switch.is_enabled(enabled)
        self._exempt = as_exempt(exempt)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if not self._enabled or switch.off:
            return self._app(environ, start_response)
        request = WsgiRequest(environ)
        if self._exempt is not None and finish(value(self._exempt(request))):
            return self._app(environ, start_response)
        permit = self._breaker.allows()
        if permit is None:
            answer = circuit_open(self._breaker.retry_after, request.header("accept") or "")
            return start_answer(answer, environ, start_response)
        watch_client(environ)
        call = BreakerCall(self._breaker, permit)

        def start(status: str, headers: Any, *exc_info: Any) -> Any:
            call.answered(int(status[:3]), client_absent(environ))
            return start_response(status, headers, *exc_info)

        def failed(error: Exception) -> None:
            call.raised(error, client_absent(environ))

        try:
            body = self._app(environ, start)
        except Exception as error:
            failed(error)
            raise
        except BaseException:
            call.gave_up()
            raise
        # An application that is a generator begins when it is iterated, and may fail then.
        return body if call.reported else WatchedBody(body, failed, call.gave_up)
