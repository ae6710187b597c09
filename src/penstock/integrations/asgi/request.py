"""An ASGI scope as a `Request`, and what is sent from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from penstock.integrations.deciding.http import Answer, Header
from penstock.integrations.deciding.identity import NOBODY_TRUSTED
from penstock.integrations.deciding.request import Request, identity_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiRequest(Request):
    """``native`` is the scope."""

    def __init__(self, scope: Scope) -> None:
        self.native = scope
        # A websocket's opening is a GET.
        self.method: str = scope.get("method", "GET").upper()
        self.path: str = scope["path"]
        self.trust = NOBODY_TRUSTED

    @property
    def peer(self) -> str | None:
        client = self.native.get("client")
        return None if client is None else (client[0] or None)

    @property
    def client(self) -> str | None:
        client = self.native.get("client")
        peer = None if client is None else (client[0] or None)
        trust = self.trust
        return peer if trust.nobody else trust.client(peer, self.header)

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode("latin-1")
        values = [value for key, value in self.native["headers"] if key == wanted]
        if not values:
            return None
        separator = b"; " if wanted == b"cookie" else b", "  # HTTP/2 may split cookies
        whole: bytes = values[0] if len(values) == 1 else separator.join(values)
        return whole.decode("latin-1")

    def first(self, name: str) -> str | None:
        wanted = name.lower().encode("latin-1")
        for key, value in self.native["headers"]:
            if key == wanted:
                text: str = value.decode("latin-1")
                return text
        return None

    @property
    def user(self) -> str | None:
        return identity_of(self.native.get("user"))

    @property
    def route(self) -> str | None:
        from penstock.integrations.asgi.route import route_of

        return route_of(self.native)


# A dozen names, again and again: made ready once.
_NAMES: dict[str, bytes] = {}


def encoded(headers: Iterable[Header]) -> list[tuple[bytes, bytes]]:
    """As ASGI wants them: bytes, names in lower case."""
    return [(_NAMES.get(n) or _encoded_name(n), v.encode("latin-1")) for n, v in headers]


def _encoded_name(name: str) -> bytes:
    _NAMES[name] = name.lower().encode("latin-1")
    return _NAMES[name]


async def send_answer(answer: Answer, scope: Scope, send: Send) -> None:
    """The whole answer; to HEAD, without its body."""
    headers = encoded(answer.headers)
    headers.append((b"content-length", str(len(answer.body)).encode()))
    kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    body = b"" if scope.get("method") == "HEAD" else answer.body
    await send({"type": f"{kind}.body", "body": body})
