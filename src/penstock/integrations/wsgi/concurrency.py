"""ConcurrencyWSGI: so many requests at once, for any WSGI application."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Unpack

from penstock.concurrency import ConcurrencyLimiter, Size
from penstock.errors import NoSlot
from penstock.integrations.deciding.options import SlotOptions, check_options
from penstock.integrations.deciding.slots import Slots
from penstock.integrations.wsgi.raised import ErrorAnswers
from penstock.integrations.wsgi.request import (
    App,
    Environ,
    StartResponse,
    WsgiRequest,
    start_answer,
)

# What a server says that is itself waiting for too much: a size that adapts counts it.
OVERLOADED = ("503", "504")


class ConcurrencyWSGI:
    """At most ``limit`` requests run at once; more wait in a line, or are refused.

    ``app.wsgi_app = ConcurrencyWSGI(app.wsgi_app, limit=10, waiting=50, timeout=5)``

    ``limit`` is a number, a `Size` that adapts, or a `ConcurrencyLimiter`; ``waiting`` is the
    length of the line. Takes all that `Slots` does. A request holds its slot until its
    response is closed. Who waits holds a thread of the server: have more threads than slots.
    """

    def __init__(
        self,
        app: App,
        limit: int | Size | ConcurrencyLimiter,
        *,
        waiting: int | None = None,
        **options: Unpack[SlotOptions],
    ) -> None:
        self._app = ErrorAnswers(app)
        if isinstance(limit, ConcurrencyLimiter):
            if waiting is not None:
                raise TypeError("waiting is the limiter's own")
            self._limiter = limit
        else:
            self._limiter = ConcurrencyLimiter(limit, waiting=waiting or 0)
        check_options("ConcurrencyWSGI", options, SlotOptions, "limit", "waiting")
        self._slots = Slots(**options)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = WsgiRequest(environ)
        needed = self._slots.needed(request)
        if needed is None:
            return self._app(environ, start_response)
        key, priority, by = needed
        slot = self._limiter.slot(key, priority=priority, by=by, timeout=self._slots.timeout)
        with ExitStack() as stack:
            try:
                hold = stack.enter_context(slot)
            except NoSlot as error:
                return start_answer(self._slots.refusal(error, request), environ, start_response)

            def watch(status: str, headers: Any, *exc_info: Any) -> Any:
                if status.startswith(OVERLOADED):
                    hold.drop()
                return start_response(status, headers, *exc_info)

            response = self._app(environ, watch)
            # Not before the last byte was sent.
            return Held(response, stack.pop_all())


class Held:
    """A response, and what is let go of when the server closes it."""

    def __init__(self, response: Iterable[bytes], stack: ExitStack) -> None:
        self._response = response
        self._stack = stack

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._response)

    def close(self) -> None:
        with self._stack:
            close = getattr(self._response, "close", None)
            if close is not None:
                close()
