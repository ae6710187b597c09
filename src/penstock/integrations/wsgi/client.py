"""Whether a client is still there: what a WSGI application found when it read the body.

A server tells of a client that left in the middle of its body by an exception, or by an early
end: gunicorn does either, by how the body was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from penstock.integrations.wsgi.request import Environ

T = TypeVar("T")
# In the environ: the stream that was put in the place of the server's.
WATCHED = "penstock.input"


class WatchedInput:
    """A stream that notes whether all that was promised came. ``absent``: it did not."""

    def __init__(self, stream: Any, length: int | None) -> None:
        self._stream = stream
        self._missing = length
        self._failed = False
        self._ended = False
        # Not every server's stream can do it, and frameworks look.
        if hasattr(stream, "readinto"):
            self.readinto = self._readinto

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            data: bytes = self._watched(self._stream.read)
            self._count(len(data), self._missing)
        else:
            data = self._watched(self._stream.read, size)
            self._count(len(data), size)
        return data

    def readline(self, size: int | None = -1) -> bytes:
        whole = size is None or size < 0
        read = self._stream.readline
        line: bytes = self._watched(read) if whole else self._watched(read, size)
        ended = line.endswith(b"\n")
        self._count(len(line), len(line) if ended else self._missing if whole else size)
        return line

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        lines: list[bytes] = []
        while line := self.readline():
            lines.append(line)
            if hint is not None and 0 < hint <= sum(map(len, lines)):
                break
        return lines

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def absent(self) -> bool:
        return self._failed or (self._ended and bool(self._missing))

    def _readinto(self, buffer: Any) -> int | None:
        count: int | None = self._watched(self._stream.readinto, buffer)
        self._count(count or 0, len(buffer))
        return count

    def _watched(self, read: Callable[..., T], *args: Any) -> T:
        try:
            return read(*args)
        except (TypeError, ValueError):  # asked for what no stream can do
            raise
        except BaseException:
            self._failed = True
            raise

    def _count(self, came: int, wanted: int | None) -> None:
        """Fewer bytes than were asked for are the last ones."""
        if self._missing is not None:
            self._ended = came < min(wanted or 0, self._missing)
            self._missing = max(0, self._missing - came)


def watch_client(environ: Environ) -> None:
    """From now on, note whether the request's body comes in full."""
    stream = environ.get("wsgi.input")
    if WATCHED not in environ and stream is not None:
        environ["wsgi.input"] = environ[WATCHED] = WatchedInput(stream, promised(environ))


def client_absent(environ: Environ) -> bool:
    """Whether the application was left alone with half a body."""
    watched: WatchedInput | None = environ.get(WATCHED)
    return watched is not None and watched.absent


def promised(environ: Environ) -> int | None:
    """The length of the body, as the request says; None if it does not."""
    text = environ.get("CONTENT_LENGTH") or ""
    return int(text) if text.isascii() and text.isdecimal() else None
