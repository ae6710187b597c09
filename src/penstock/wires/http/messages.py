"""What the HTTP wire hands to a handler, and what it gets back."""

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
        self.raw: list[tuple[bytes, bytes]] = []  # headers as they came
        self._headers: list[Header] | None = None
        self.body = b""
        self.keep_alive = True

    @property
    def headers(self) -> list[Header]:
        """Made when somebody looks: most handlers look at none."""
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
        """By its name in lower case; joined by commas if it came more than once."""
        found = [value for key, value in self.headers if key == name]
        if not found:
            return None
        return found[0] if len(found) == 1 else ", ".join(found)


@dataclass(slots=True)
class HttpAnswer:
    """A whole answer. The wire adds ``content-length`` and what belongs to the connection."""

    status: int = 200
    body: bytes = b""
    headers: list[Header] = field(default_factory=list)
    content_type: str = "application/json"


Handler = Callable[[HttpRequest], HttpAnswer | Awaitable[HttpAnswer]]


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def as_json(content: Any, status: int = 200, headers: list[Header] | None = None) -> HttpAnswer:
    return HttpAnswer(status, _encode(content).encode("utf-8", "replace"), headers or [])


def as_error(status: int, error: str, headers: list[Header] | None = None) -> HttpAnswer:
    """Every refusal of a wire looks like this."""
    return as_json({"error": error}, status, headers)


def as_text(text: str, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, text.encode(), content_type="text/plain; charset=utf-8")


def encoded(answer: HttpAnswer, request: HttpRequest, date: bytes, keep: bool) -> bytes:
    """The answer on the wire; to HEAD without its body."""
    body = answer.body
    head = b"HTTP/1.1 %d %b\r\ndate: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n" % (
        answer.status,
        REASONS.get(answer.status, b"Unknown"),
        date,
        answer.content_type.encode("latin-1"),
        len(body),
    )
    if answer.headers:
        told = "".join([f"{name}: {value}\r\n" for name, value in answer.headers])
        head += told.encode("latin-1", "replace")
    if not keep:
        head += b"connection: close\r\n"
    elif request.version == "1.0":
        head += b"connection: keep-alive\r\n"
    return head + b"\r\n" + (b"" if request.method == "HEAD" else body)
