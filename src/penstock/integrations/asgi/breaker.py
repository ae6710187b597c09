"""BreakerMiddleware: an application that keeps failing is left alone for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from math import ceil

from penstock.breaker import CircuitBreaker
from penstock.integrations import http
from penstock.integrations.asgi.request import (
    App,
    AsgiRequest,
    Message,
    Receive,
    Scope,
    Send,
    send_answer,
)
from penstock.integrations.exempt import as_exempt
from penstock.integrations.request import Request


class BreakerMiddleware:
    """Answers 503 with ``Retry-After`` while the breaker is open.

    ``app.add_middleware(BreakerMiddleware, breaker=CircuitBreaker(failures=20))``

    A request failed if the application raised, or answered 5xx. ``exempt`` are paths that
    neither count nor are refused, such as ``"/health"``.
    """

    def __init__(
        self,
        app: App,
        breaker: CircuitBreaker,
        *,
        exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]] = (),
    ) -> None:
        if not isinstance(breaker, CircuitBreaker):
            raise TypeError(f"breaker is a CircuitBreaker, not {breaker!r:.100}")
        self._app = app
        self._breaker = breaker
        self._exempt = as_exempt(exempt)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = AsgiRequest(scope)
        if self._exempt is not None:
            exempt = self._exempt(request)
            if await exempt if isawaitable(exempt) else exempt:
                return await self._app(scope, receive, send)
        breaker = self._breaker
        permit = breaker.allows()
        if permit is None:
            after = max(1, ceil(breaker.retry_after))
            accept = request.header("accept") or ""
            answer = http.unavailable(503, "Out of order for a while", after, accept)
            return await send_answer(answer, scope, send)
        status = 500  # until it says otherwise

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            breaker.failed(permit, f"{type(error).__name__}: {error}"[:200])
            raise
        except BaseException:  # cancelled: that says nothing about the application
            breaker.gave_up(permit)
            raise
        if status >= 500:
            breaker.failed(permit, f"it answered {status}")
        else:
            breaker.succeeded(permit)
        return None
