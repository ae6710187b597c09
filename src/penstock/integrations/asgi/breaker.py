"""BreakerMiddleware: an application that keeps failing is left alone for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable

from penstock.breaker import CircuitBreaker
from penstock.integrations.asgi.client import WatchedClient
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
from penstock.integrations.deciding.exempt import as_exempt
from penstock.integrations.deciding.raised import REFUSED, circuit_open
from penstock.integrations.deciding.request import Request


class BreakerMiddleware:
    """Answers 503 with ``Retry-After`` while the breaker is open.

    ``app.add_middleware(BreakerMiddleware, breaker=CircuitBreaker(failures=20))``

    A request failed if the application raised, or answered 5xx, unless its client had left
    before. ``exempt`` are paths that neither count nor are refused, such as ``"/health"``.
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
        self._app = ErrorAnswers(app)
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
            answer = circuit_open(breaker.retry_after, request.header("accept") or "")
            return await send_answer(answer, scope, send)
        client = WatchedClient(receive)
        status = 500  # until it says otherwise
        abandoned: bool | None = None  # nobody knows before the response begins

        async def watch(message: Message) -> None:
            nonlocal status, abandoned
            if message["type"] == "http.response.start":
                status, abandoned = message["status"], client.absent
            try:
                await send(message)
            except OSError:  # so says a server whose client has left
                abandoned = True
                raise

        try:
            await self._app(scope, client, watch)
        except REFUSED:  # it did not fail: the client came too often
            breaker.succeeded(permit)
            raise
        except Exception as error:
            if client.absent if abandoned is None else abandoned:
                breaker.gave_up(permit)
            else:
                breaker.failed(permit, f"{type(error).__name__}: {error}"[:200])
            raise
        except BaseException:  # cancelled: that says nothing about the application
            breaker.gave_up(permit)
            raise
        if status < 500:
            breaker.succeeded(permit)
        elif client.absent if abandoned is None else abandoned:
            breaker.gave_up(permit)
        else:
            breaker.failed(permit, f"it answered {status}")
        return None
