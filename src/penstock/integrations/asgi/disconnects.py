"""Whether a client has left, as seen by an ASGI application that reads the request."""

from __future__ import annotations

from penstock.integrations.asgi.types import Message, Receive


class WatchedClient:
    """A ``receive`` that notes whether the client left, or kept the application waiting.

    ``absent``: the client has disconnected, or the handler gave up while it waited for the rest
    of the body. If the handler failed, that was not its fault.
    """

    __slots__ = ("_complete", "_left", "_receive", "_waiting")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False
        self._complete = False
        self._waiting = 0

    async def __call__(self) -> Message:
        self._waiting += 1  # it stays so if this is cancelled
        message = await self._receive()
        self._waiting -= 1
        kind = message["type"]
        if kind == "http.request":
            if not message.get("more_body"):
                self._complete = True
        elif kind in ("http.disconnect", "websocket.disconnect"):
            self._left = True
        return message

    @property
    def absent(self) -> bool:
        return self._left or (self._waiting > 0 and not self._complete)
