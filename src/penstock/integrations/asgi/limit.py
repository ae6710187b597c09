"""PenstockMiddleware: rate limits for any ASGI application.

It wraps ``send`` and adds headers to the start of the response. Bodies, trailers and
everything else pass as they are, so that streams stream.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from penstock.integrations.asgi.headers import run_with_headers
from penstock.integrations.asgi.request import AsgiRequest, encoded, read_request, send_answer
from penstock.integrations.asgi.route import mark_of_route, view_route_of
from penstock.integrations.asgi.types import App, Message, Receive, Scope, Send
from penstock.integrations.deciding.applied_limits import APPLIED, AppliedLimits, withdraw
from penstock.integrations.deciding.environment import with_environment
from penstock.integrations.deciding.http_checkpoint import AnyLimits, HttpCheckpoint
from penstock.integrations.deciding.marked_views import some_are_marked
from penstock.integrations.deciding.options import MiddlewareOptions, check_options, with_limit
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.refusals import KEPT_BODY, Defer, Refusals
from penstock.integrations.deciding.responses import FALLBACK, retry_after
from penstock.integrations.deciding.waiting import finish_async

POLICY_VIOLATION = 1008  # RFC 6455
NEVER_SENT = (1004, 1005, 1006, 1015)  # the same, 7.4.1


class PenstockMiddleware:
    """Limits requests: ``app.add_middleware(PenstockMiddleware, limit="100/minute")``.

    Takes the options of `HttpCheckpoint`, and

    - ``fallback``: an ASGI application that answers instead of 429, such as from a cache
    - ``defer``: a function that puts a refused request into a queue, see
      `penstock.integrations.deciding.refusals`. ``defer_body``: the longest body to keep
    - ``from_env``: read options that are not given from the environment, such as
      ``PENSTOCK_LIMIT``
    - ``websocket_code``: refused websockets are accepted and closed with it, as browsers do
      not show scripts any other reason

    A handler finds the `Outcome` in ``scope["penstock"]``.
    """

    def __init__(
        self,
        app: App,
        *limits: AnyLimits,
        fallback: App | None = None,
        defer: Defer | None = None,
        defer_body: int = KEPT_BODY,
        websocket_code: int = POLICY_VIOLATION,
        **options: Unpack[MiddlewareOptions],
    ) -> None:
        self._app = app
        more = ("fallback", "defer", "defer_body", "websocket_code")
        check_options("PenstockMiddleware", options, MiddlewareOptions, *more)
        self._checkpoint = HttpCheckpoint(
            asynchronous=True, **with_environment(with_limit("PenstockMiddleware", limits, options))
        )
        self._refusals = Refusals(
            self._checkpoint, fallback, defer, defer_body, "an ASGI application"
        )
        if type(websocket_code) is not int or not 1000 <= websocket_code < 5000:
            raise ValueError(f"websocket_code is from 1000 to 4999, not {websocket_code!r:.100}")
        if websocket_code in NEVER_SENT:
            raise ValueError(f"websocket_code {websocket_code} is reserved: it is never sent")
        self._websocket_code = websocket_code

    def reset(self) -> None:
        """Forget all counts, as between tests. A store that you gave is cleared completely."""
        self._checkpoint.reset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http" or kind == "websocket":
            request = AsgiRequest(scope)
            exempt = some_are_marked() and mark_of_route(view_route_of(scope)) is not None
            outcome = None if exempt else self._checkpoint.quick(request)
            if outcome is None:
                outcome = await finish_async(self._checkpoint.flow(request, exempt))
            applied: AppliedLimits | None = scope.get(APPLIED)
            if outcome is not None:
                scope["penstock"] = outcome
                if applied is not None:
                    applied.append((self._checkpoint, outcome))
                if not outcome.allowed:
                    for waiting in withdraw(applied[:-1] if applied else ()):
                        await waiting
                    if kind == "websocket":
                        return await self._close(outcome, scope, receive, send)
                    return await self._refuse(outcome, request, receive, send)
            if applied is not None:  # a middleware further out adds the headers
                return await self._app(scope, receive, send)
            applied = [] if outcome is None else [(self._checkpoint, outcome)]
            style = self._checkpoint.fields
            return await run_with_headers(applied, self._app, scope, receive, send, style)
        if kind == "lifespan":
            try:
                return await self._app(scope, receive, send)
            finally:
                self._checkpoint.close()
        return await self._app(scope, receive, send)

    async def _refuse(
        self, outcome: Outcome, request: AsgiRequest, receive: Receive, send: Send
    ) -> None:
        scope: Scope = request.native
        read = partial(read_request, receive=receive)
        answer = await finish_async(self._refusals.flow(outcome, request, read))
        if answer is not None:
            return await send_answer(answer, scope, send)
        marks = encoded([FALLBACK, *self._checkpoint.headers(outcome)])

        async def mark(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *marks]}
            await send(message)

        assert self._refusals.fallback is not None
        await self._refusals.fallback(scope, receive, mark)
        return None

    async def _close(self, outcome: Outcome, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        if message["type"] != "websocket.connect":
            return
        headers = encoded(self._checkpoint.headers(outcome))
        await send({"type": "websocket.accept", "headers": headers})
        after = retry_after(outcome.named_decisions)
        reason = "Rate limit exceeded" if after is None else f"Rate limit exceeded: {after} s"
        if outcome.final:
            reason = "Forbidden" if outcome.denied else "Ambiguous path"
        await send({"type": "websocket.close", "code": self._websocket_code, "reason": reason})
