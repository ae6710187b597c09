"""Errors of ours that a WSGI application raises; see `penstock.integrations.deciding.raised`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.clock import WALL
from penstock.durations import SECOND
from penstock.integrations.deciding.http import BOTH
from penstock.integrations.deciding.pending import PENDING, Pending
from penstock.integrations.deciding.raised import ANSWERED, answer_to
from penstock.integrations.wsgi.request import (
    App,
    Environ,
    StartResponse,
    WsgiRequest,
    start_answer,
)


def error_answer(
    error: Exception,
    pending: Pending,
    environ: Environ,
    start_response: StartResponse,
    style: str = BOTH,
) -> list[bytes] | None:
    """The body of the answer to an error of ours; None for all others."""
    accept = WsgiRequest(environ).header("accept") or ""
    answer = answer_to(error, pending, accept, WALL.now() / SECOND, style)
    return None if answer is None else start_answer(answer, environ, start_response)


class ErrorAnswers:
    """An application whose errors of ours are answered, if nobody further out does so."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if PENDING in environ:
            return self._app(environ, start_response)
        start = _Start(start_response)
        try:
            body = self._app(environ, start)
        except ANSWERED as error:
            if start.started:
                raise
            return error_answer(error, [], environ, start_response) or []
        return body if start.started else _Unbegun(body, start, environ)


class _Start:
    """A ``start_response`` that notes whether it was called."""

    def __init__(self, start_response: StartResponse) -> None:
        self._start_response = start_response
        self.started = False

    def __call__(self, status: str, headers: Any, *exc_info: Any) -> Any:
        self.started = True
        return self._start_response(status, headers, *exc_info)


class _Unbegun:
    """The body of an application that will begin when it is iterated, and may yet fail."""

    def __init__(self, body: Iterable[bytes], start: _Start, environ: Environ) -> None:
        self._body = body
        self._start = start
        self._environ = environ

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._body:  # noqa: UP028 - `yield from` would close it, too
                yield piece
        except ANSWERED as error:
            if self._start.started:
                raise
            yield from error_answer(error, [], self._environ, self._start) or []

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()
