"""ConcurrencyWSGI: limits how many requests run at once, for any WSGI application."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Unpack

from penstock.concurrency import ConcurrencyLimiter, Size
from penstock.errors import NoSlot
from penstock.integrations.deciding.options import SlotOptions, check_options
from penstock.integrations.deciding.slots import OVERLOADED, Slots, as_limiter
from penstock.integrations.wsgi.headers import LimitFields
from penstock.integrations.wsgi.request import WatchedBody, WsgiRequest, start_answer
from penstock.integrations.wsgi.types import App, Environ, StartResponse


class ConcurrencyWSGI:
    """At most ``limit`` requests run at once; more wait in a queue, or are refused.

    ``app.wsgi_app = ConcurrencyWSGI(app.wsgi_app, limit=10, waiting=50, timeout=5)``

    ``limit`` is a number, a `Size` that adapts, or a `ConcurrencyLimiter`; ``waiting`` is the
    length of the queue. Takes the options of `Slots`. A request holds its slot until its
    response is closed. A request that waits holds a thread of the server: have more threads
    than slots.
    """

    def __init__(
        self,
        app: App,
        limit: int | Size | ConcurrencyLimiter,
        *,
        waiting: int | None = None,
        **options: Unpack[SlotOptions],
    ) -> None:
        self._app = LimitFields(app)
        self._limiter = as_limiter(ConcurrencyLimiter, limit, waiting)
        check_options("ConcurrencyWSGI", options, SlotOptions, "limit", "waiting")
        self._slots = Slots(**options)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = WsgiRequest(environ)
        needed = self._slots.needed(request)
        if needed is None:
            return self._app(environ, start_response)
        slot = self._limiter.slot(**needed)
        with ExitStack() as stack:
            try:
                hold = stack.enter_context(slot)
            except NoSlot as error:
                return start_answer(self._slots.refusal(error, request), environ, start_response)

            def watch(status: str, headers: Any, *exc_info: Any) -> Any:
                if int(status[:3]) in OVERLOADED:
                    hold.drop()
                return start_response(status, headers, *exc_info)

            body = self._app(environ, watch)
            # The slot is held until the last byte was sent.
            return WatchedBody(body, closed=stack.pop_all().close)
