"""The length of bodies, the Host field, and the rejection of ambiguous messages.

A proxy and the server behind it must see the same requests. A client that can make them disagree
about where a body ends can smuggle a second, uncounted request inside the first. So everything
ambiguous is rejected; httptools, which is strict, rejects most of it before::

    Transfer-Encoding: chunked      chunks, until the last
    Content-Length: n               n bytes
    neither                         a request: none; a response: until the connection ends
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import httptools

from penstock.errors import PenstockError

# A name as received, and a value.
Field = tuple[bytes, bytes]

NONE = 0
CHUNKED = -1
UNTIL_CLOSE = -2

# The overhead of a chunk: a size of at most 16 digits, and two line ends.
AROUND_A_CHUNK = 20
# Bytes of empty lines before a request: RFC 9112 2.2 allows one.
MOST_BLANK = 4_096

_BODILESS = frozenset({204, 304})
# uri-host [":" port], RFC 9110 7.2; it may be empty.
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[0-9A-Za-z._~!$&'()*+,;=%-]*)(?::[0-9]*)?")


class BadMessage(PenstockError):
    """A message that is rejected; ``status`` is the response to its sender."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def check_version(version: str, hosts: int) -> None:
    """Check the HTTP version and the number of Host fields (RFC 9112, 3.2)."""
    if version == "0.9":
        raise BadMessage(400, "the request line has no version: send HTTP/1.1")
    if version not in ("1.0", "1.1"):
        raise BadMessage(505, f"only HTTP/1.1 is supported, not {version}")
    if hosts > 1:
        raise BadMessage(400, "a request must have one Host field, not several")
    if hosts == 0 and version == "1.1":
        raise BadMessage(400, "the Host field is missing")


def check_host(value: bytes) -> None:
    if not is_host(value):
        raise BadMessage(400, f"Host must be HOST or HOST:PORT, not {value!r:.100}")


def is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


def resumed_parser(protocol: object, length: int) -> httptools.HttpRequestParser:
    """A new parser that continues in the middle of a request, at the start of its body."""
    resumed = _Resumed(protocol)
    parser = httptools.HttpRequestParser(resumed)
    if length != NONE:
        framing = b"Content-Length: %d" % length
        if length == CHUNKED:
            framing = b"Transfer-Encoding: chunked"
        parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
    resumed.muted = False
    return parser


class _Resumed:
    """Passes on the callbacks of a parser, except those of its made-up head."""

    def __init__(self, protocol: object) -> None:
        self.muted = True
        for name in ("on_message_begin", "on_url", "on_header", "on_headers_complete"):
            setattr(self, name, self._unless_muted(getattr(protocol, name)))
        for name in ("on_body", "on_message_complete"):
            setattr(self, name, getattr(protocol, name))

    def _unless_muted(self, callback: Callable[..., None]) -> Callable[..., None]:
        return lambda *arguments: None if self.muted else callback(*arguments)


def request_length(version: str, fields: Sequence[Field]) -> int:
    """The length of a request's body, or CHUNKED."""
    codings, length = _body_fields(fields, 400)
    if codings is None:
        return NONE if length is None else length
    if length is not None:
        raise BadMessage(400, "both Content-Length and Transfer-Encoding")
    if version != "1.1":
        raise BadMessage(400, f"Transfer-Encoding in HTTP/{version}")
    if codings != b"chunked":
        raise BadMessage(501, "the only supported Transfer-Encoding is chunked")
    return CHUNKED


def response_length(method: str, status: int, version: str, fields: Sequence[Field]) -> int:
    """The length of a response's body, CHUNKED or UNTIL_CLOSE."""
    codings, length = _body_fields(fields, 502)
    if codings is not None and length is not None:
        raise BadMessage(502, "both Content-Length and Transfer-Encoding")
    if codings is not None and (codings != b"chunked" or version != "1.1"):
        raise BadMessage(502, f"Transfer-Encoding: {codings!r:.40} in HTTP/{version}")
    if method == "HEAD" or status in _BODILESS or status < 200:
        return NONE
    if codings is not None:
        return CHUNKED
    return UNTIL_CLOSE if length is None else length


def _body_fields(fields: Sequence[Field], status: int) -> tuple[bytes | None, int | None]:
    """The values of Transfer-Encoding and Content-Length."""
    codings: bytes | None = None
    length: int | None = None
    for name, value in fields:
        lower = name.lower()
        if lower == b"transfer-encoding":
            coding = value.strip().lower()
            codings = coding if codings is None else codings + b", " + coding
        elif lower == b"content-length":
            if not value.isdigit() or len(value) > 18:
                raise BadMessage(status, f"Content-Length: {value!r:.40}")
            if length is not None and length != int(value):
                raise BadMessage(status, "two Content-Lengths that differ")
            length = int(value)
    return codings, length


def chunk(piece: bytes) -> tuple[bytes, bytes, bytes]:
    return b"%x\r\n" % len(piece), piece, b"\r\n"


def last_chunk(trailers: Sequence[Field]) -> bytes:
    return b"0\r\n" + written(trailers) + b"\r\n"


def written(fields: Sequence[Field]) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in fields])
