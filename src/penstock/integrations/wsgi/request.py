"""A WSGI environ as a `Request`, and how a response is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from penstock.integrations.deciding.identity import NOBODY_TRUSTED
from penstock.integrations.deciding.refusals import Deferred
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.responses import Answer
from penstock.integrations.wsgi.types import Environ, StartResponse


class WsgiRequest(Request):
    """``native`` is the environ, or the framework's request where there is one."""

    def __init__(self, environ: Environ, native: Any = None) -> None:
        self.environ = environ
        self.native = environ if native is None else native
        # Flask and others use it in upper case, however it was sent.
        self.method: str = environ.get("REQUEST_METHOD", "GET").upper()
        # The bytes, decoded as Latin-1 (PEP 3333), are UTF-8.
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
    def query_string(self) -> str:
        text: str = self.environ.get("QUERY_STRING", "")
        return text

    @property
    def user(self) -> str | None:
        return self.environ.get("REMOTE_USER") or None

    def deferred(self, body: bytes) -> Deferred:
        """The whole request, with the headers' names as far as the environ has them."""
        headers = []
        for key, value in self.environ.items():
            if key.startswith("HTTP_"):
                headers.append((key[5:].replace("_", "-").lower(), str(value)))
            elif key in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
                headers.append((key.replace("_", "-").lower(), str(value)))
        return Deferred(self.method, self.path, self.query_string, headers, body, self.client)


def read_request(request: WsgiRequest, longest: int) -> Deferred | None:
    """The whole request; None if its body is longer, or did not arrive in full."""
    environ = request.environ
    stream = environ.get("wsgi.input")
    text = environ.get("CONTENT_LENGTH") or ""
    body: bytes = b""
    if text:
        if not text.isdecimal() or int(text) > longest:
            return None
        if stream is not None and int(text):
            body = stream.read(int(text))
        return request.deferred(body) if len(body) == int(text) else None
    if "HTTP_TRANSFER_ENCODING" in environ:
        if stream is None or not environ.get("wsgi.input_terminated"):
            return None  # it is unknown where it ends
        body = stream.read(longest + 1)
    return request.deferred(body) if len(body) <= longest else None


def start_answer(answer: Answer, environ: Environ, start_response: StartResponse) -> list[bytes]:
    """The whole response; without its body if the request was a HEAD."""
    headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
    start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", headers)
    return [b""] if environ.get("REQUEST_METHOD") == "HEAD" else [answer.body]


class WatchedBody:
    """A response body that reports when it is closed, and what the application raises.

    ``failed`` may return a body to send instead; if it returns None, the error is raised.
    """

    def __init__(
        self,
        body: Iterable[bytes],
        failed: Callable[[Exception], Iterable[bytes] | None] | None = None,
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._body = body
        self._failed = failed
        self._closed = closed

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._body:  # noqa: UP028 - `yield from` would close it, too
                yield piece
        except Exception as error:
            answer = None if self._failed is None else self._failed(error)
            if answer is None:
                raise
            yield from answer

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            if self._closed is not None:
                self._closed()
