"""The headers of a response, told by all who had a say in its request.

A middleware may count a request, and then a dependency of the route. Their limits are told
in one set of fields, by the outermost of us.
"""

from __future__ import annotations

from penstock.integrations.asgi.request import App, Message, Receive, Scope, Send, encoded
from penstock.integrations.checkpoint import Checkpoint
from penstock.integrations.http import NAMES, fields
from penstock.integrations.outcome import Outcome
from penstock.integrations.request import Response

# In the scope: who else had a say, since there is somebody to tell of them.
PENDING = "penstock.pending"
Pending = list[tuple[Checkpoint, Outcome]]

_OURS = frozenset(name.lower().encode() for name in NAMES)


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
        kind = message["type"]
        if started or (kind != "http.response.start" and kind != "websocket.accept"):
            return await send(message)
        started = True
        await send(with_fields(message, pending))
        await settle(pending, message)
        return None

    try:
        await app(scope, receive, tell)
    except Exception as error:
        if not started:
            await _settle(pending, Response(500, {}, error))
        raise


def with_fields(message: Message, pending: Pending) -> Message:
    """The message, telling of all limits, and of none twice."""
    headers = list(message.get("headers", ()))
    if len(pending) == 1:
        checkpoint, outcome = pending[0]
        told = outcome.told
    elif pending:
        checkpoint = pending[0][0]
        told = [each for _, outcome in pending for each in outcome.told]
    else:
        return message
    if len(pending) > 1 or not pending[-1][1].allowed:
        headers = [header for header in headers if header[0].lower() not in _OURS]
    headers += encoded(fields(told, checkpoint.now(), checkpoint.fields))
    return {**message, "headers": headers}


async def settle(pending: Pending, message: Message) -> None:
    """By the status of the response, for those who asked."""
    if all(checkpoint.count_when is None for checkpoint, _ in pending):
        return None
    if message["type"] == "websocket.accept":
        return await _settle(pending, Response(101, {}))
    pairs = message.get("headers", ())
    headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in pairs}
    return await _settle(pending, Response(message["status"], headers))


async def _settle(pending: Pending, response: Response) -> None:
    for checkpoint, outcome in pending:
        waiting = checkpoint.settle(outcome, response)
        if waiting is not None:
            await waiting
