"""PenstockMiddleware: rate limits for any ASGI application.

It wraps ``send`` and adds headers to the start of the response. Bodies, trailers and
everything else pass as they are, so that streams stream.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Unpack

from penstock.integrations.asgi.fields import telling
from penstock.integrations.asgi.request import (
    App,
    AsgiRequest,
    Message,
    Receive,
    Scope,
    Send,
    encoded,
    send_answer,
)
from penstock.integrations.deciding import http
from penstock.integrations.deciding.defer import Defer, Deferred, check_defer, place_of
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.options import MiddlewareOptions, check_options
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.pending import PENDING, Pending, withdraw

POLICY_VIOLATION = 1008  # RFC 6455
NEVER_SENT = (1004, 1005, 1006, 1015)  # the same, 7.4.1


class PenstockMiddleware:
    """Limits requests: ``app.add_middleware(PenstockMiddleware, limit="100/minute")``.

    Takes all that `HttpCheckpoint` does, and

    - ``fallback``: an ASGI application that answers instead of 429, such as from a cache
    - ``defer``: a function that puts a refused request into a queue, and says where to ask
      for it; see `penstock.integrations.deciding.defer`. ``defer_body``: the longest body to keep
    - ``websocket_code``: refused websockets are accepted and closed with it, as browsers
      show scripts no other reason

    A handler finds the `Outcome` in ``scope["penstock"]``.
    """

    def __init__(
        self,
        app: App,
        *,
        fallback: App | None = None,
        defer: Defer | None = None,
        defer_body: int = 1_048_576,
        websocket_code: int = POLICY_VIOLATION,
        **options: Unpack[MiddlewareOptions],
    ) -> None:
        self._app = app
        check_options(
            "PenstockMiddleware", options, MiddlewareOptions,
            "fallback", "defer", "defer_body", "websocket_code",
        )  # fmt: skip
        self._checkpoint = HttpCheckpoint(asynchronous=True, **options)
        if fallback is not None and not callable(fallback):
            raise TypeError(f"fallback is an ASGI application, not {fallback!r:.100}")
        if fallback is not None and defer is not None:
            raise TypeError("give fallback or defer: a body that was kept cannot be read again")
        self._fallback = fallback
        self._defer, self._defer_body = check_defer(defer, defer_body)
        if type(websocket_code) is not int or not 1000 <= websocket_code < 5000:
            raise ValueError(f"websocket_code is from 1000 to 4999, not {websocket_code!r:.100}")
        if websocket_code in NEVER_SENT:
            raise ValueError(f"websocket_code {websocket_code} is reserved: it is never sent")
        self._websocket_code = websocket_code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http" or kind == "websocket":
            request = AsgiRequest(scope)
            outcome = self._checkpoint.quick(request)
            if outcome is None:
                outcome = await self._checkpoint.check_async(request)
                if outcome is None:
                    return await self._uncounted(scope, receive, send)
            scope["penstock"] = outcome
            pending: Pending | None = scope.get(PENDING)
            if pending is not None:  # another of us is further out, and tells
                pending.append((self._checkpoint, outcome))
            if outcome.allowed:
                if pending is not None:
                    return await self._app(scope, receive, send)
                pending = [(self._checkpoint, outcome)]
                style = self._checkpoint.fields
                return await telling(pending, self._app, scope, receive, send, style)
            if pending is not None:
                for waiting in withdraw(pending[:-1]):
                    await waiting
            if kind == "websocket":
                return await self._close(outcome, scope, receive, send)
            return await self._refuse(outcome, request, receive, send)
        if kind == "lifespan":
            return await self._live(scope, receive, send)
        return await self._app(scope, receive, send)

    async def _uncounted(self, scope: Scope, receive: Receive, send: Send) -> None:
        if PENDING in scope:
            return await self._app(scope, receive, send)
        return await telling([], self._app, scope, receive, send, self._checkpoint.fields)

    # Refused -----------------------------------------------------------------------------

    async def _refuse(
        self, outcome: Outcome, request: AsgiRequest, receive: Receive, send: Send
    ) -> None:
        scope: Scope = request.native
        if outcome.final:  # neither a place in the queue nor a cheaper answer
            return await send_answer(self._checkpoint.answer(outcome, request), scope, send)
        if self._defer is not None:
            location = await self._put_off(self._defer, request, receive)
            if location is not None:
                now, style = self._checkpoint.now(), self._checkpoint.fields
                answer = http.deferred(location, outcome.told, now, style)
                return await send_answer(answer, scope, send)
        if self._fallback is not None:
            return await self._fall_back(self._fallback, outcome, scope, receive, send)
        return await send_answer(self._checkpoint.answer(outcome, request), scope, send)

    async def _fall_back(
        self, fallback: App, outcome: Outcome, scope: Scope, receive: Receive, send: Send
    ) -> None:
        marks = encoded([http.FALLBACK, *self._checkpoint.headers(outcome)])

        async def mark(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *marks]}
            await send(message)

        await fallback(scope, receive, mark)

    async def _put_off(self, defer: Defer, request: AsgiRequest, receive: Receive) -> str | None:
        scope: Scope = request.native
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None  # the client has left
            body += message.get("body", b"")
            if len(body) > self._defer_body:
                return None
            if not message.get("more_body"):
                break
        headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]]
        query = scope.get("query_string", b"").decode("latin-1")
        kept = Deferred(request.method, request.path, query, headers, bytes(body), request.client)
        location = defer(kept)
        return place_of(await location if isawaitable(location) else location)

    async def _close(self, outcome: Outcome, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        if message["type"] != "websocket.connect":
            return
        headers = encoded(self._checkpoint.headers(outcome))
        await send({"type": "websocket.accept", "headers": headers})
        after = http.retry_after(outcome.told)
        reason = "Rate limit exceeded" if after is None else f"Rate limit exceeded: {after} s"
        if outcome.final:
            reason = "Forbidden" if outcome.denied else "Ambiguous path"
        await send({"type": "websocket.close", "code": self._websocket_code, "reason": reason})

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the application shuts down."""
        try:
            await self._app(scope, receive, send)
        finally:
            self._checkpoint.close()
