"""Later instead of never: a refused request is handed to a queue.

``defer`` is a function of a `Deferred`. It returns where the client may ask for the result,
which is told in a 202; or None if the queue is full, and then the client gets its 429. In
an asynchronous framework it may be a coroutine function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deferred:
    """All of a request, for whoever takes it up later. It can be pickled."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    client: str | None


Defer = Callable[[Deferred], str | Awaitable[str | None] | None]


def check_defer(defer: Defer | None, most: int) -> tuple[Defer | None, int]:
    if defer is not None and not callable(defer):
        raise TypeError(f"defer is a function of a deferred request, not {defer!r:.100}")
    if type(most) is not int or most < 0:
        raise ValueError(f"defer_body is a whole number of bytes, not {most!r:.100}")
    return defer, most


def place_of(location: object) -> str | None:
    """What ``defer`` returned, as a header's value."""
    if location is None:
        return None
    text = str(location)
    if not text.isascii() or not text.isprintable() or not text:
        raise ValueError(f"defer returns where to ask, an ASCII URL or path, not {location!r:.100}")
    return text
