"""What a refused request gets: a 429, a fallback's response, or a place in a queue.

``defer`` is a function of a `Deferred` that puts it into a queue. It returns the URL at which
the client can ask for the result, which is sent in a 202; or None if the queue is full, and
then the client gets its 429. In an asynchronous framework it may be a coroutine function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.integrations.deciding import responses
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.responses import Answer
from penstock.integrations.deciding.waiting import Flow, value

# The longest body that is kept for later.
KEPT_BODY = 1_048_576


@dataclass(frozen=True, slots=True)
class Deferred:
    """A whole request, for whoever handles it later. It can be pickled."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    client: str | None


Defer = Callable[[Deferred], str | Awaitable[str | None] | None]
# Reads a request whose body is at most so long; None if it is longer or incomplete.
ReadRequest = Callable[[Any, int], Deferred | Awaitable[Deferred | None] | None]


class Refusals:
    """Responds to refused requests by the options ``fallback``, ``defer`` and ``defer_body``.

    ``application`` is the word for what a fallback is in this framework.
    """

    def __init__(
        self,
        checkpoint: HttpCheckpoint,
        fallback: Callable[..., Any] | None,
        defer: Defer | None,
        defer_body: int,
        application: str,
    ) -> None:
        if fallback is not None and not callable(fallback):
            raise TypeError(f"fallback is {application}, not {fallback!r:.100}")
        if fallback is not None and defer is not None:
            raise TypeError("give fallback or defer: a body that was kept cannot be read again")
        if defer is not None and not callable(defer):
            raise TypeError(f"defer is a function of a deferred request, not {defer!r:.100}")
        if type(defer_body) is not int or defer_body < 0:
            raise ValueError(f"defer_body is a whole number of bytes, not {defer_body!r:.100}")
        self._checkpoint = checkpoint
        self.fallback = fallback
        self._defer = defer
        self._defer_body = defer_body

    def flow(self, outcome: Outcome, request: Request, read: ReadRequest) -> Flow[Answer | None]:
        """The response; None if the fallback is to give it."""
        checkpoint = self._checkpoint
        if not outcome.final:
            if self.fallback is not None:
                return None
            if self._defer is not None:
                deferred = yield from value(read(request, self._defer_body))
                location = None
                if deferred is not None:
                    location = _as_header((yield from value(self._defer(deferred))))
                if location is not None:
                    now = checkpoint.now()
                    return responses.deferred(
                        location, outcome.named_decisions, now, checkpoint.fields
                    )
        return checkpoint.answer(outcome, request)


def _as_header(location: object) -> str | None:
    """What ``defer`` returned, as a header's value."""
    if location is None:
        return None
    text = str(location)
    if not text.isascii() or not text.isprintable() or not text:
        raise ValueError(f"defer returns where to ask, an ASCII URL or path, not {location!r:.100}")
    return text
