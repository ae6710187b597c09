"""The headers of a response, told by all who had a say in its request; see `pending`."""

from __future__ import annotations

from penstock.integrations.asgi.request import App, Message, Receive, Scope, Send, encoded
from penstock.integrations.pending import OURS, PENDING, Pending, Settling, fields_of
from penstock.integrations.request import Response

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


async def telling(pending: Pending, app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the application, add headers to the start of its response, and settle."""
    scope[PENDING] = pending
    started = False

    async def tell(message: Message) -> None:
        nonlocal started
        if started or message["type"] not in _STARTS:
            return await send(message)
        started = True
        try:
            return await send(with_fields(message, pending))
        finally:  # also if the client has left: the application has answered
            await settle(pending, message)

    try:
        await app(scope, receive, tell)
    except Exception as error:
        if not started:
            await _settle(pending, Response(500, {}, error))
        raise


def with_fields(message: Message, pending: Pending) -> Message:
    """The message, telling of all limits, and of none twice."""
    if not pending or message["type"] == "websocket.close":
        return message
    headers = message.get("headers", ())
    if len(pending) > 1 or not pending[-1][1].allowed:
        headers = [header for header in headers if header[0].lower() not in _OURS]
    return {**message, "headers": [*headers, *encoded(fields_of(pending))]}


async def settle(pending: Pending, message: Message) -> None:
    """By the status of the response, for those who asked."""
    for checkpoint, _ in pending:
        if checkpoint.count_when is not None:
            break
    else:
        return
    if message["type"] in _WITHOUT_STATUS:
        await _settle(pending, Response(_WITHOUT_STATUS[message["type"]], {}))
        return
    pairs = message.get("headers", ())
    headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in pairs}
    await _settle(pending, Response(message["status"], headers))


async def _settle(pending: Pending, response: Response) -> None:
    for waiting in Settling(pending).settle(response):
        await waiting
