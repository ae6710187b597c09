"""A WSGI environ as a `Request`, and what is answered from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from penstock.integrations.deciding.http import Answer
from penstock.integrations.deciding.identity import NOBODY_TRUSTED
from penstock.integrations.deciding.request import Request

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class WsgiRequest(Request):
    """``native`` is the environ, or the framework's request where there is one."""

    def __init__(self, environ: Environ, native: Any = None) -> None:
        self.environ = environ
        self.native = environ if native is None else native
        # Flask and others go by it in upper case, however it was sent.
        self.method: str = environ.get("REQUEST_METHOD", "GET").upper()
        # Bytes that were read as Latin-1 (PEP 3333) are UTF-8 in truth.
        raw = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        self.path: str = raw if raw.isascii() else raw.encode("latin-1").decode("utf-8", "replace")
        self.trust = NOBODY_TRUSTED

    @property
    def peer(self) -> str | None:
        return self.environ.get("REMOTE_ADDR") or None

    def header(self, name: str) -> str | None:
        key = name.upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = "HTTP_" + key
        value: str | None = self.environ.get(key)
        return value

    @property
    def user(self) -> str | None:
        return self.environ.get("REMOTE_USER") or None


def start_answer(answer: Answer, environ: Environ, start_response: StartResponse) -> list[bytes]:
    """The whole answer; to HEAD, without its body."""
    headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
    start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", headers)
    return [b""] if environ.get("REQUEST_METHOD") == "HEAD" else [answer.body]


def read_body(environ: Environ, most: int) -> bytes | None:
    """The whole body; None if it is longer than that, or did not come as promised."""
    stream = environ.get("wsgi.input")
    text = environ.get("CONTENT_LENGTH") or ""
    if not text:
        if "HTTP_TRANSFER_ENCODING" not in environ:
            return b""
        if stream is None or not environ.get("wsgi.input_terminated"):
            return None  # nobody says where it ends
        whole: bytes = stream.read(most + 1)
        return whole if len(whole) <= most else None
    if not text.isdecimal() or int(text) > most:
        return None
    body: bytes = stream.read(int(text)) if stream is not None and int(text) else b""
    return body if len(body) == int(text) else None


def headers_of(environ: Environ) -> list[tuple[str, str]]:
    """The request's headers, by the names that can still be told."""
    found = []
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            found.append((key[5:].replace("_", "-").lower(), str(value)))
        elif key in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            found.append((key.replace("_", "-").lower(), str(value)))
    return found
