"""BreakerMiddleware: an application that keeps failing is left alone for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from penstock import switch
from penstock.breaker import CircuitBreaker
from penstock.integrations.asgi.disconnects import WatchedClient
from penstock.integrations.asgi.headers import LimitFields
from penstock.integrations.asgi.request import AsgiRequest, send_answer
from penstock.integrations.asgi.types import App, Message, Receive, Scope, Send
from penstock.integrations.deciding.breaker_call import BreakerCall
from penstock.integrations.deciding.error_responses import circuit_open
from penstock.integrations.deciding.exempt import as_exempt
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.waiting import finish_async, value


class BreakerMiddleware:
    """Answers 503 with ``Retry-After`` while the breaker is open.

    ``app.add_middleware(BreakerMiddleware, breaker=CircuitBreaker(failures=20))``

    A request failed if the application raised, or answered 5xx, unless its client had left
    before. ``exempt`` are paths that neither count nor are refused, such as ``"/health"``.
    With ``enabled=False`` the breaker is neither asked nor told.
    """

    def __init__(
        self,
        app: App,
        breaker: CircuitBreaker,
        *,
        exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]] = (),
        enabled: bool | None = None,
    ) -> None:
        if not isinstance(breaker, CircuitBreaker):
            raise TypeError(f"breaker is a CircuitBreaker, not {breaker!r:.100}")
        self._app = LimitFields(app)
        self._breaker = breaker
        self._enabled = switch.is_enabled(enabled)
        self._exempt = as_exempt(exempt)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._enabled or switch.off:
            return await self._app(scope, receive, send)
        request = AsgiRequest(scope)
        if self._exempt is not None and await finish_async(value(self._exempt(request))):
            return await self._app(scope, receive, send)
        permit = self._breaker.allows()
        if permit is None:
            answer = circuit_open(self._breaker.retry_after, request.header("accept") or "")
            return await send_answer(answer, scope, send)
        call = BreakerCall(self._breaker, permit)
        client = WatchedClient(receive)
        status = 500  # until the response begins
        abandoned: bool | None = None  # unknown until the response begins

        async def watch(message: Message) -> None:
            nonlocal status, abandoned
            if message["type"] == "http.response.start":
                status, abandoned = message["status"], client.absent
            try:
                await send(message)
            except OSError:  # raised by servers whose client has left
                abandoned = True
                raise

        try:
            await self._app(scope, client, watch)
        except Exception as error:
            call.raised(error, client.absent if abandoned is None else abandoned)
            raise
        except BaseException:  # cancelled: that says nothing about the application
            call.gave_up()
            raise
        call.answered(status, client.absent if abandoned is None else abandoned)
        return None
