"""All who had a say in one request, told in one set of fields.

A middleware may count a request, then an extension, then the decorator of a view. Each adds
itself to the list that the outermost of them keeps; that one tells of them all, and settles.
If one refuses, those that were asked before it give back what they took: all limits of a request
pass, or nothing is taken, wherever they are written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from penstock.integrations.deciding.http import NAMES, Header, fields
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.request import Response

# Where the list is: in the environ, or in the scope.
PENDING = "penstock.pending"
Entry = tuple[HttpCheckpoint, Outcome]
Pending = list[Entry]

OURS = frozenset(name.lower() for name in NAMES)


def fields_of(pending: Pending) -> list[Header]:
    """The headers that tell of all limits, and of none twice."""
    if not pending:
        return []
    checkpoint, outcome = pending[0]
    decisions = outcome.told
    if len(pending) > 1:
        decisions = [each for _, outcome in pending for each in outcome.told]
    return fields(decisions, checkpoint.now(), checkpoint.fields)


def with_fields(headers: Iterable[Header], pending: Pending) -> list[Header]:
    """The headers of a response, telling of limits in our words alone."""
    if len(pending) > 1 or (pending and not pending[-1][1].allowed):
        headers = [header for header in headers if header[0].lower() not in OURS]
    return [*headers, *fields_of(pending)]


def withdraw(pending: Iterable[Entry]) -> list[Awaitable[Any]]:
    """The request was refused by a limit that was asked after these: they give back theirs.

    Returns what has to be awaited. A lockout that one of them began is not undone.
    """
    waiting = [outcome.withdraw(checkpoint.asynchronous) for checkpoint, outcome in pending]
    return [each for each in waiting if each is not None]


def abandoned(pending: Iterable[Entry]) -> list[Awaitable[Any]]:
    """The request has ended without an answer: what was taken for it counts.

    Returns what has to be awaited.
    """
    waiting = [outcome.confirm(checkpoint.asynchronous) for checkpoint, outcome in pending]
    return [each for each in waiting if each is not None]


class Settling:
    """Gives back what need not be counted: by the response, and once."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to see the response."""
        return any(checkpoint.count_when is not None for checkpoint, _ in self._pending)

    def settle(self, response: Response, client_absent: bool) -> list[Awaitable[Any]]:
        """Returns what has to be awaited. May be called again for a response that was replaced.

        A failure that a client brought about by leaving is no answer of the application, and
        nobody knows what it had done by then: what was taken stays counted.
        """
        if client_absent and response.failed:
            return abandoned(self._pending)
        waiting = []
        for checkpoint, outcome in self._pending:
            count_when = checkpoint.count_when
            if count_when is None or not outcome.allowed or outcome.returned:
                continue
            settle = outcome.confirm if count_when(response) else outcome.give_back
            waiting.append(settle(checkpoint.asynchronous))
        return [each for each in waiting if each is not None]
