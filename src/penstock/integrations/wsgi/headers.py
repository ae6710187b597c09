"""The headers of a response, for all limits of its request; and responses to our errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.integrations.deciding.applied_limits import (
    APPLIED,
    AppliedLimits,
    holds_slots,
    keep_counted,
    release,
    settle,
    settles,
    with_fields,
)
from penstock.integrations.deciding.error_responses import answer_to
from penstock.integrations.deciding.request import Response
from penstock.integrations.deciding.responses import BOTH
from penstock.integrations.wsgi.disconnects import client_absent
from penstock.integrations.wsgi.request import WatchedBody, start_answer
from penstock.integrations.wsgi.types import App, Environ, StartResponse


class LimitFields:
    """Adds the headers of limits further in, and answers errors, unless a middleware does."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if APPLIED in environ:
            return self._app(environ, start_response)
        return run_with_headers([], self._app, environ, start_response)


def run_with_headers(
    applied: AppliedLimits,
    app: App,
    environ: Environ,
    start_response: StartResponse,
    style: str = BOTH,
) -> Iterable[bytes]:
    """Run the application, add headers to the start of its response, and settle.

    If the application raises one of our errors before its response begins, answer that.
    """
    environ[APPLIED] = applied
    start = _Start(applied, environ, start_response, style)
    try:
        body = app(environ, start)
    except Exception as error:
        answer = start.failed(error)
        release(applied)
        if answer is None:
            raise
        return answer
    except BaseException:
        keep_counted(applied)
        release(applied)
        raise
    # An application that is a generator begins when it is iterated, and may fail then. Slots are
    # held until the body has been sent.
    if start.started and not holds_slots(applied):
        return body
    return WatchedBody(body, start.failed, start.closed)


class _Start:
    """A ``start_response`` that adds the headers, and settles by the status."""

    def __init__(
        self, applied: AppliedLimits, environ: Environ, start_response: StartResponse, style: str
    ) -> None:
        self._applied = applied
        self._environ = environ
        self._start_response = start_response
        self._style = style
        self.started = False

    def __call__(
        self, status: str, headers: list[tuple[str, str]], *exc_info: Any
    ) -> Callable[[bytes], object]:
        self.started = True
        write = self._start_response(status, with_fields(headers, self._applied), *exc_info)
        # With exc_info it is called again, and nothing of the first response was sent.
        if settles(self._applied):
            by_name = {name.lower(): value for name, value in headers}
            self._settle(Response(int(status[:3]), by_name, _error(status, *exc_info)))
        return write

    def failed(self, error: Exception) -> list[bytes] | None:
        """The body of our response to one of our errors; None for all others."""
        if self.started:
            return None
        accept = self._environ.get("HTTP_ACCEPT", "")
        answer = answer_to(error, self._applied, accept, self._style)
        if answer is None:
            self._settle(Response(500, {}, error))
            return None
        return start_answer(answer, self._environ, self)

    def closed(self) -> None:
        if not self.started:
            keep_counted(self._applied)
        release(self._applied)

    def _settle(self, response: Response) -> None:
        settle(self._applied, response, client_absent(self._environ))


def _error(status: str, exc_info: Any = None) -> BaseException | None:
    error: BaseException | None = exc_info[1] if exc_info else None
    return error if status >= "500" else None
