"""Errors of ours that an ASGI application raises; see `penstock.integrations.deciding.raised`."""

from __future__ import annotations

from penstock.clock import WALL
from penstock.durations import SECOND
from penstock.integrations.asgi.request import (
    App,
    AsgiRequest,
    Message,
    Receive,
    Scope,
    Send,
    send_answer,
)
from penstock.integrations.deciding.http import BOTH
from penstock.integrations.deciding.pending import PENDING, Pending
from penstock.integrations.deciding.raised import ANSWERED, answer_to


async def answered(
    error: Exception, pending: Pending, scope: Scope, send: Send, style: str = BOTH
) -> bool:
    """Answer an error of ours; whether it was one. Nothing may have been sent yet."""
    if not isinstance(error, ANSWERED) or not _can_answer(scope):
        return False
    accept = AsgiRequest(scope).header("accept") or ""
    answer = answer_to(error, pending, accept, WALL.now() / SECOND, style)
    assert answer is not None
    await send_answer(answer, scope, send)
    return True


def _can_answer(scope: Scope) -> bool:
    """A websocket that was not accepted can be answered only where the server is able to."""
    if scope["type"] == "http":
        return True
    return "websocket.http.response" in (scope.get("extensions") or {})


class ErrorAnswers:
    """An application whose errors of ours are answered, if nobody further out does so."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or PENDING in scope:
            return await self._app(scope, receive, send)
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except ANSWERED as error:
            if started:
                raise
            await answered(error, [], scope, send)
        return None
