"""PenstockWSGI: rate limits for any WSGI application.

Only ``start_response`` is wrapped. The application's response is passed on as it is, so that
the server recognises files, and closes what has to be closed. With a ``count_when``, the body of
the request is wrapped, too, to see whether it arrives in full. So is the response of an
application that is a generator, which begins when it is iterated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from penstock.integrations.deciding.applied_limits import APPLIED, AppliedLimits, withdraw
from penstock.integrations.deciding.environment import with_environment
from penstock.integrations.deciding.http_checkpoint import AnyLimits, HttpCheckpoint
from penstock.integrations.deciding.options import (
    MiddlewareOptions,
    check_app,
    check_options,
    with_limit,
)
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.refusals import KEPT_BODY, Defer, Refusals
from penstock.integrations.deciding.responses import FALLBACK
from penstock.integrations.deciding.waiting import finish
from penstock.integrations.wsgi.disconnects import watch_client
from penstock.integrations.wsgi.headers import run_with_headers
from penstock.integrations.wsgi.request import WsgiRequest, read_request, start_answer
from penstock.integrations.wsgi.types import App, Environ, StartResponse


class PenstockWSGI:
    """Limits requests: ``app.wsgi_app = PenstockWSGI(app.wsgi_app, limit="100/minute")``.

    Takes the options of `HttpCheckpoint`, and

    - ``fallback``: a WSGI application that answers instead of 429, such as from a cache
    - ``defer``: a function that puts a refused request into a queue, see
      `penstock.integrations.deciding.refusals`. ``defer_body``: the longest body to keep
    - ``from_env``: read options that are not given from the environment, such as
      ``PENSTOCK_LIMIT``

    A handler finds the `Outcome` in ``environ["penstock.outcome"]``. Workers that are processes
    share a limit through a store: `SharedMemoryStore` on one host, or Redis.
    """

    def __init__(
        self,
        app: App,
        *limits: AnyLimits,
        fallback: App | None = None,
        defer: Defer | None = None,
        defer_body: int = KEPT_BODY,
        **options: Unpack[MiddlewareOptions],
    ) -> None:
        check_app(app, "PenstockWSGI(app, limit={!r})")
        self._app = app
        more = ("fallback", "defer", "defer_body")
        check_options("PenstockWSGI", options, MiddlewareOptions, *more)
        self._checkpoint = HttpCheckpoint(
            asynchronous=False, **with_environment(with_limit("PenstockWSGI", limits, options))
        )
        self._refusals = Refusals(
            self._checkpoint, fallback, defer, defer_body, "a WSGI application"
        )

    def reset(self) -> None:
        """Forget all counts, as between tests. A store that you gave is cleared completely."""
        self._checkpoint.reset()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = WsgiRequest(environ)
        outcome = self._checkpoint.check(request)
        applied: AppliedLimits | None = environ.get(APPLIED)
        if outcome is not None:
            environ["penstock.outcome"] = outcome
            if self._checkpoint.count_when is not None:
                watch_client(environ)
            if applied is not None:
                applied.append((self._checkpoint, outcome))
            if not outcome.allowed:
                withdraw(applied[:-1] if applied else ())
                return self._refuse(outcome, request, start_response)
        if applied is not None:  # a middleware further out adds the headers
            return self._app(environ, start_response)
        applied = [] if outcome is None else [(self._checkpoint, outcome)]
        return run_with_headers(
            applied, self._app, environ, start_response, self._checkpoint.fields
        )

    def _refuse(
        self, outcome: Outcome, request: WsgiRequest, start_response: StartResponse
    ) -> Iterable[bytes]:
        environ = request.environ
        answer = finish(self._refusals.flow(outcome, request, read_request))
        if answer is not None:
            return start_answer(answer, environ, start_response)
        fallback = self._refusals.fallback
        assert fallback is not None

        def mark(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
            return start_response(status, [*headers, FALLBACK], *exc_info)

        if APPLIED in environ:
            body: Iterable[bytes] = fallback(environ, mark)
            return body
        applied = [(self._checkpoint, outcome)]
        return run_with_headers(applied, fallback, environ, mark, self._checkpoint.fields)
