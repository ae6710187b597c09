"""The headers of a response, told by all who had a say in its request; see `pending`."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import lru_cache
from math import ceil

from penstock.integrations.asgi.client import WatchedClient
from penstock.integrations.asgi.raised import answered
from penstock.integrations.asgi.request import App, Message, Receive, Scope, Send, encoded
from penstock.integrations.deciding.http import BOTH
from penstock.integrations.deciding.http import policy as policy_of
from penstock.integrations.deciding.http import quota as quota_of
from penstock.integrations.deciding.http import quoted as quoted_name
from penstock.integrations.deciding.pending import (
    OURS,
    PENDING,
    Pending,
    Settling,
    abandoned,
    fields_of,
)
from penstock.integrations.deciding.request import Response
from penstock.limit import Limit
from penstock.numbers import reset_of

_OURS = frozenset(name.encode() for name in OURS)
# A websocket that is closed before it is accepted is answered with 403.
_WITHOUT_STATUS = {"websocket.accept": 101, "websocket.close": 403}
_STARTS = frozenset({"http.response.start", "websocket.http.response.start", *_WITHOUT_STATUS})


class LimitFields:
    """Tells of limits that are dependencies, whatever their handlers return.

    Needed only where there is no `PenstockMiddleware`.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or PENDING in scope:
            return await self._app(scope, receive, send)
        return await telling([], self._app, scope, receive, send)


async def telling(
    pending: Pending,
    app: App,
    scope: Scope,
    receive: Receive,
    send: Send,
    style: str = BOTH,
) -> None:
    """Run the application, add headers to the start of its response, and settle.

    If it raises an error of ours before it has answered, the answer is ours.
    """
    scope[PENDING] = pending
    started = False
    client = WatchedClient(receive)

    def tell(message: Message) -> Awaitable[None]:
        # No coroutine of its own: it would cost more than what it does.
        nonlocal started
        if started or message["type"] not in _STARTS:
            return send(message)
        started = True
        sending = send(with_fields(message, pending))
        for checkpoint, _ in pending:
            if checkpoint.count_when is not None:
                return _settling(sending, pending, message, client)
        return sending

    try:
        await app(scope, client, tell)
    except Exception as error:
        if started:
            raise
        if not await answered(error, pending, scope, tell, style):
            await _settle(pending, Response(500, {}, error), client)
            raise
    finally:
        if not started:  # it was cancelled, or nothing was answered
            for waiting in abandoned(pending):
                await waiting


def with_fields(message: Message, pending: Pending) -> Message:
    """The message, telling of all limits, and of none twice."""
    if not pending or message["type"] == "websocket.close":
        return message
    headers = message.get("headers", ())
    if len(pending) > 1 or not pending[-1][1].allowed:
        headers = [header for header in headers if header[0].lower() not in _OURS]
    return {**message, "headers": [*headers, *fields_in_bytes(pending)]}


def fields_in_bytes(pending: Pending) -> list[tuple[bytes, bytes]]:
    """What `fields_of` tells, as ASGI wants it; of one limit, with little ado."""
    checkpoint, outcome = pending[0]
    decisions = outcome.told
    if len(pending) > 1 or len(decisions) != 1 or checkpoint.fields != BOTH:
        return encoded(fields_of(pending))
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
    """What does not change from one answer to the next."""
    told = policy_of(name, limit).encode()
    amount = quota_of(limit)[0].encode()
    return (b"ratelimit-policy", told), quoted_name(name).encode(), (b"x-ratelimit-limit", amount)


async def _settling(
    sending: Awaitable[None], pending: Pending, message: Message, client: WatchedClient
) -> None:
    try:
        await sending
    finally:  # also if the client has left: the application has answered
        await _settle(pending, _response(message), client)


def _response(message: Message) -> Response:
    if message["type"] in _WITHOUT_STATUS:
        return Response(_WITHOUT_STATUS[message["type"]], {})
    pairs = message.get("headers", ())
    headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in pairs}
    return Response(message["status"], headers)


async def _settle(pending: Pending, response: Response, client: WatchedClient) -> None:
    for waiting in Settling(pending).settle(response, client.absent):
        await waiting
