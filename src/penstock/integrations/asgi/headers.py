"""The headers of a response, for all limits of its request; and responses to our errors."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import lru_cache
from math import ceil

from penstock.integrations.asgi.disconnects import WatchedClient
from penstock.integrations.asgi.request import AsgiRequest, encoded, send_answer
from penstock.integrations.asgi.types import App, Message, Receive, Scope, Send
from penstock.integrations.deciding import responses
from penstock.integrations.deciding.applied_limits import (
    APPLIED,
    LOWER_NAMES,
    AppliedLimits,
    fields_of,
    keep_counted,
    release,
    settle,
)
from penstock.integrations.deciding.error_responses import answer_to
from penstock.integrations.deciding.request import Response
from penstock.integrations.deciding.responses import BOTH
from penstock.limits import Limit
from penstock.numbers import reset_of

_LIMIT_NAMES = frozenset(name.encode() for name in LOWER_NAMES)
# A websocket that is closed before it is accepted is answered with 403.
_WITHOUT_STATUS = {"websocket.accept": 101, "websocket.close": 403}
_STARTS = frozenset({"http.response.start", "websocket.http.response.start", *_WITHOUT_STATUS})


class LimitFields:
    """Adds the headers of limits further in, and answers errors, unless a middleware does.

    For dependencies of FastAPI, whatever their handlers return. `PenstockMiddleware` and the
    other middleware do the same.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or APPLIED in scope:
            return await self._app(scope, receive, send)
        return await run_with_headers([], self._app, scope, receive, send)


async def run_with_headers(
    applied: AppliedLimits,
    app: App,
    scope: Scope,
    receive: Receive,
    send: Send,
    style: str = BOTH,
) -> None:
    """Run the application, add headers to the start of its response, and settle.

    If the application raises one of our errors before its response begins, answer that.
    """
    scope[APPLIED] = applied
    started = False
    client = WatchedClient(receive)

    def send_with_headers(message: Message) -> Awaitable[None]:
        # Not a coroutine function: that would cost more than what it does.
        nonlocal started
        if started or message["type"] not in _STARTS:
            return send(message)
        started = True
        sending = send(with_fields(message, applied))
        for checkpoint, _ in applied:
            if checkpoint.count_when is not None:
                return _settle_after(sending, applied, message, client)
        return sending

    try:
        await app(scope, client, send_with_headers)
    except Exception as error:
        answer = None
        if not started and _can_answer(scope):
            accept = AsgiRequest(scope).header("accept") or ""
            answer = answer_to(error, applied, accept, style)
        if answer is not None:
            await send_answer(answer, scope, send_with_headers)
            return
        if not started:
            await _settle(applied, Response(500, {}, error), client)
        raise
    finally:
        if not started:  # it was cancelled, or sent no response
            for waiting in keep_counted(applied):
                await waiting
        for waiting in release(applied):
            await waiting


def _can_answer(scope: Scope) -> bool:
    """Not every server can send a response to a websocket that was not accepted."""
    if scope["type"] == "http":
        return True
    return "websocket.http.response" in (scope.get("extensions") or {})


def with_fields(message: Message, applied: AppliedLimits) -> Message:
    """The start of a response, with the headers of all limits, each once."""
    if not applied or message["type"] == "websocket.close":
        return message
    headers = message.get("headers", ())
    if len(applied) > 1 or not applied[-1][1].allowed:
        headers = [header for header in headers if header[0].lower() not in _LIMIT_NAMES]
    return {**message, "headers": [*headers, *fields_in_bytes(applied)]}


def fields_in_bytes(applied: AppliedLimits) -> list[tuple[bytes, bytes]]:
    """`fields_of` in the form of ASGI, with a fast path for a single limit."""
    checkpoint, outcome = applied[0]
    decisions = outcome.named_decisions
    if len(applied) > 1 or len(decisions) != 1 or checkpoint.fields != BOTH:
        return encoded(fields_of(applied))
    name, decision = decisions[0]
    policy, quoted, limit = _prepared(name, decision.limit)
    now = checkpoint.now()
    left, after = decision.shown_remaining(), reset_of(decision, now)
    return [
        policy,
        (b"ratelimit", b"%b;r=%d;t=%d" % (quoted, left, after)),
        limit,
        (b"x-ratelimit-remaining", b"%d" % left),
        (b"x-ratelimit-reset", b"%d" % (ceil(now) + after)),
    ]


@lru_cache(4096)
def _prepared(name: str, limit: Limit) -> tuple[tuple[bytes, bytes], bytes, tuple[bytes, bytes]]:
    """What does not change from one response to the next."""
    policy = (b"ratelimit-policy", responses.policy(name, limit).encode())
    amount = (b"x-ratelimit-limit", responses.quota(limit)[0].encode())
    return policy, responses.quoted(name).encode(), amount


async def _settle_after(
    sending: Awaitable[None], applied: AppliedLimits, message: Message, client: WatchedClient
) -> None:
    try:
        await sending
    finally:  # also if the client has left: the application has responded
        await _settle(applied, _response(message), client)


def _response(message: Message) -> Response:
    if message["type"] in _WITHOUT_STATUS:
        return Response(_WITHOUT_STATUS[message["type"]], {})
    pairs = message.get("headers", ())
    headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in pairs}
    return Response(message["status"], headers)


async def _settle(applied: AppliedLimits, response: Response, client: WatchedClient) -> None:
    for waiting in settle(applied, response, client.absent):
        await waiting
