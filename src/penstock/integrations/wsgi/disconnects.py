"""Whether a client has left, as seen by a WSGI application that reads the body.

If a client leaves in the middle of its body, servers raise an exception or end the stream early:
gunicorn does either, depending on how the body was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from penstock.integrations.wsgi.types import Environ

T = TypeVar("T")
# In the environ: the stream that replaces the server's.
WATCHED = "penstock.input"


class WatchedInput:
    """A stream that notes whether the whole body arrived. ``absent``: it did not."""

    def __init__(self, stream: Any, length: int | None) -> None:
        self._stream = stream
        self._missing = length
        self._failed = False
        self._ended = False
        # Not every server's stream has it, and frameworks test for it.
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
        except (TypeError, ValueError):  # wrong arguments
            raise
        except BaseException:
            self._failed = True
            raise

    def _count(self, received: int, requested: int | None) -> None:
        """Fewer bytes than requested are the last ones."""
        if self._missing is not None:
            self._ended = received < min(requested or 0, self._missing)
            self._missing = max(0, self._missing - received)


def watch_client(environ: Environ) -> None:
    """From now on, note whether the whole body of the request arrives."""
    stream = environ.get("wsgi.input")
    if WATCHED not in environ and stream is not None:
        environ["wsgi.input"] = environ[WATCHED] = WatchedInput(stream, content_length(environ))


def client_absent(environ: Environ) -> bool:
    """Whether the application got only a part of the body."""
    watched: WatchedInput | None = environ.get(WATCHED)
    return watched is not None and watched.absent


def content_length(environ: Environ) -> int | None:
    """The length of the body by the request's headers; None if unknown."""
    text = environ.get("CONTENT_LENGTH") or ""
    return int(text) if text.isascii() and text.isdecimal() else None
