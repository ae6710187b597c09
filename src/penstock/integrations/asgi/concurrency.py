"""ConcurrencyMiddleware: limits how many requests run at once, for any ASGI application."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Unpack

from penstock.concurrency import AsyncConcurrencyLimiter, Size
from penstock.errors import NoSlot
from penstock.integrations.asgi.headers import LimitFields
from penstock.integrations.asgi.request import AsgiRequest, send_answer
from penstock.integrations.asgi.types import App, Message, Receive, Scope, Send
from penstock.integrations.deciding.options import SlotOptions, check_options
from penstock.integrations.deciding.slots import OVERLOADED, Slots, as_limiter


class ConcurrencyMiddleware:
    """At most ``limit`` requests run at once; more wait in a queue, or are refused.

    ``app.add_middleware(ConcurrencyMiddleware, limit=100, waiting=50, timeout=5)``

    ``limit`` is a number, a `Size` that adapts, or an `AsyncConcurrencyLimiter`; ``waiting``
    is the length of the queue. Takes the options of `Slots`. A request holds its slot until
    its response is sent to the end. Websockets take none, as they last.
    """

    def __init__(
        self,
        app: App,
        limit: int | Size | AsyncConcurrencyLimiter,
        *,
        waiting: int | None = None,
        **options: Unpack[SlotOptions],
    ) -> None:
        self._app = LimitFields(app)
        self._limiter = as_limiter(AsyncConcurrencyLimiter, limit, waiting)
        check_options("ConcurrencyMiddleware", options, SlotOptions, "limit", "waiting")
        self._slots = Slots(**options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = AsgiRequest(scope)
        needed = await self._slots.needed_async(request)
        if needed is None:
            return await self._app(scope, receive, send)
        slot = self._limiter.slot(**needed)
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
