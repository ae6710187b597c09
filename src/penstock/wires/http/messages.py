"""The request that the HTTP wire passes to a handler, and the response that it returns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

Header = tuple[str, str]

REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class HttpRequest:
    """A whole request. Header names are in lower case, values as Latin-1."""

    __slots__ = (
        "_headers", "body", "keep_alive", "method", "path", "peer", "query", "raw", "version",
    )  # fmt: skip

    def __init__(self, peer: str | None) -> None:
        self.peer = peer  # an address; None for a Unix socket
        self.method = "GET"
        self.path = "/"
        self.query = ""
        self.version = "1.1"
        self.raw: list[tuple[bytes, bytes]] = []  # headers as received
        self._headers: list[Header] | None = None
        self.body = b""
        self.keep_alive = True

    @property
    def headers(self) -> list[Header]:
        """Decoded on first use: most handlers need none."""
        if self._headers is None:
            self._headers = [
                (name.decode("latin-1").lower(), value.decode("latin-1"))
                for name, value in self.raw
            ]
        return self._headers

    @headers.setter
    def headers(self, headers: list[Header]) -> None:
        self._headers = headers

    def header(self, name: str) -> str | None:
        """A header by its name in lower case; repeated ones are joined by commas."""
        values = [value for key, value in self.headers if key == name]
        if not values:
            return None
        return values[0] if len(values) == 1 else ", ".join(values)


@dataclass(slots=True)
class HttpResponse:
    """A whole response. The wire adds ``content-length`` and the fields of the connection."""

    status: int = 200
    body: bytes = b""
    headers: list[Header] = field(default_factory=list)
    content_type: str = "application/json"


Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def as_json(content: Any, status: int = 200, headers: list[Header] | None = None) -> HttpResponse:
    return HttpResponse(status, _encode(content).encode("utf-8", "replace"), headers or [])


def as_error(status: int, error: str, headers: list[Header] | None = None) -> HttpResponse:
    """The response to every request that a wire rejects."""
    return as_json({"error": error}, status, headers)


def as_text(text: str, status: int = 200) -> HttpResponse:
    return HttpResponse(status, text.encode(), content_type="text/plain; charset=utf-8")


def encoded(response: HttpResponse, request: HttpRequest, date: bytes, keep: bool) -> bytes:
    """The bytes of a response; to HEAD without its body."""
    body = response.body
    head = b"HTTP/1.1 %d %b\r\ndate: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n" % (
        response.status,
        REASONS.get(response.status, b"Unknown"),
        date,
        response.content_type.encode("latin-1"),
        len(body),
    )
    if response.headers:
        fields = "".join([f"{name}: {value}\r\n" for name, value in response.headers])
        head += fields.encode("latin-1", "replace")
    if not keep:
        head += b"connection: close\r\n"
    elif request.version == "1.0":
        head += b"connection: keep-alive\r\n"
    return head + b"\r\n" + (b"" if request.method == "HEAD" else body)
