"""ConcurrencyMiddleware: so many requests at once, for any ASGI application."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Unpack

from penstock.concurrency import AsyncConcurrencyLimiter, Size
from penstock.errors import NoSlot
from penstock.integrations.asgi.raised import ErrorAnswers
from penstock.integrations.asgi.request import (
    App,
    AsgiRequest,
    Message,
    Receive,
    Scope,
    Send,
    send_answer,
)
from penstock.integrations.deciding.options import SlotOptions, check_options
from penstock.integrations.deciding.slots import Slots

# What a server says that is itself waiting for too much: a size that adapts counts it.
OVERLOADED = (503, 504)


class ConcurrencyMiddleware:
    """At most ``limit`` requests run at once; more wait in a line, or are refused.

    ``app.add_middleware(ConcurrencyMiddleware, limit=100, waiting=50, timeout=5)``

    ``limit`` is a number, a `Size` that adapts, or an `AsyncConcurrencyLimiter`; ``waiting``
    is the length of the line. Takes all that `Slots` does. A request holds its slot until its
    response is sent to the end. Websockets take none, as they last.
    """

    def __init__(
        self,
        app: App,
        limit: int | Size | AsyncConcurrencyLimiter,
        *,
        waiting: int | None = None,
        **options: Unpack[SlotOptions],
    ) -> None:
        self._app = ErrorAnswers(app)
        if isinstance(limit, AsyncConcurrencyLimiter):
            if waiting is not None:
                raise TypeError("waiting is the limiter's own")
            self._limiter = limit
        else:
            self._limiter = AsyncConcurrencyLimiter(limit, waiting=waiting or 0)
        check_options("ConcurrencyMiddleware", options, SlotOptions, "limit", "waiting")
        self._slots = Slots(**options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = AsgiRequest(scope)
        needed = await self._slots.needed_async(request)
        if needed is None:
            return await self._app(scope, receive, send)
        key, priority, by = needed
        slot = self._limiter.slot(key, priority=priority, by=by, timeout=self._slots.timeout)
        async with AsyncExitStack() as stack:
            try:
                hold = await stack.enter_async_context(slot)
            except NoSlot as error:
                return await send_answer(self._slots.refusal(error, request), scope, send)

            async def watch(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] in OVERLOADED:
                    hold.drop()
                await send(message)

            return await self._app(scope, receive, watch)
