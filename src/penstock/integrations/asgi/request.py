"""An ASGI scope as a `Request`, and how a response is sent."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.integrations.asgi.route import route_of
from penstock.integrations.asgi.types import Receive, Scope, Send
from penstock.integrations.deciding.identity import NOBODY_TRUSTED
from penstock.integrations.deciding.refusals import Deferred
from penstock.integrations.deciding.request import Request, identity_of
from penstock.integrations.deciding.responses import Answer, Header


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
    def query_string(self) -> str:
        query: bytes = self.native.get("query_string", b"")
        return query.decode("latin-1")

    @property
    def user(self) -> str | None:
        """Of Starlette's ``AuthenticationMiddleware``, or ``request.state.user``."""
        scope = self.native
        user, state = identity_of(scope.get("user")), scope.get("state")
        if user is None and isinstance(state, dict):
            return identity_of(state.get("user"))
        return user

    @property
    def route(self) -> str | None:
        return route_of(self.native)


async def read_request(request: AsgiRequest, longest: int, receive: Receive) -> Deferred | None:
    """The whole request; None if its body is longer, or the client left."""
    scope: Scope = request.native
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > longest:
            return None
        more = message.get("more_body", False)
    headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]]
    query = request.query_string
    return Deferred(request.method, request.path, query, headers, bytes(body), request.client)


# There are about a dozen names: each is encoded once.
_NAMES: dict[str, bytes] = {}


def encoded(headers: Iterable[Header]) -> list[tuple[bytes, bytes]]:
    """In the form of ASGI: bytes, names in lower case."""
    return [(_NAMES.get(n) or _encoded_name(n), v.encode("latin-1")) for n, v in headers]


def _encoded_name(name: str) -> bytes:
    _NAMES[name] = name.lower().encode("latin-1")
    return _NAMES[name]


async def send_answer(answer: Answer, scope: Scope, send: Send) -> None:
    """The whole response; without its body if the request was a HEAD."""
    headers = encoded(answer.headers)
    headers.append((b"content-length", str(len(answer.body)).encode()))
    kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    body = b"" if scope.get("method") == "HEAD" else answer.body
    await send({"type": f"{kind}.body", "body": body})
