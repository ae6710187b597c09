"""ResponseWriter: the bytes of a forwarded response, for the client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.proxy.fields import to_client, trailers
from penstock.proxy.request import ProxyRequest
from penstock.proxy.upstream import ResponseHead
from penstock.wires.http.framing import CHUNKED, UNTIL_CLOSE, Field, chunk, last_chunk, written
from penstock.wires.http.messages import REASONS

Headers = Iterable[tuple[str, str]]


class ResponseWriter:
    """``framed`` says that the client sees where the response ends."""

    def __init__(self, request: ProxyRequest) -> None:
        self._request = request
        self.framed = True
        self._chunked = False
        self._out: list[bytes] = []  # since the last `take`
        self._pieces: list[bytes] = []  # of the body

    def interim(self, head: ResponseHead, ours: Headers) -> None:
        upgraded = head.status == 101
        out = to_client(head.fields, head.version, ours if upgraded else (), upgraded)
        self._put_head(head, out)

    def head(self, head: ResponseHead, ours: Headers, keeps: bool) -> bool:
        """Returns whether the connection is kept: not if its end is the end of the response."""
        out = to_client(head.fields, head.version, ours)
        if head.length in (CHUNKED, UNTIL_CLOSE):
            self._chunked = self.framed = self._request.version == "1.1"
            if self._chunked:
                out.append((b"Transfer-Encoding", b"chunked"))
        else:
            # In a response to HEAD, and with 304, it describes a body that is not sent.
            out += [field for field in head.fields if field[0].lower() == b"content-length"][:1]
        keeps = keeps and self.framed
        if not keeps:
            out.append((b"Connection", b"close"))
        elif self._request.version == "1.0":
            out.append((b"Connection", b"keep-alive"))
        self._put_head(head, out)
        return keeps

    def _put_head(self, head: ResponseHead, fields: Sequence[Field]) -> None:
        reason = head.reason or REASONS.get(head.status, b"")
        line = b"HTTP/1.1 %d %b\r\n" % (head.status, reason)
        self._out += [line, written(fields), b"\r\n"]

    def piece(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def end(self, fields: Iterable[Field]) -> None:
        self._put_pieces()
        if self._chunked:
            self._out.append(last_chunk(trailers(fields)))

    def _put_pieces(self) -> None:
        """Send one chunk, however small the server's are."""
        pieces, self._pieces = self._pieces, []
        if pieces and self._chunked:
            self._out += chunk(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        else:
            self._out += pieces

    def take(self) -> list[bytes]:
        self._put_pieces()
        out, self._out = self._out, []
        return out

    def replace(self, response: bytes) -> None:
        """Send this instead of what was written since the last `take`."""
        self._out, self._pieces = [response], []
