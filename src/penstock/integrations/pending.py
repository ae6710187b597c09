"""All who had a say in one request, told in one set of fields.

A middleware may count a request, then an extension, then the decorator of a view. Each adds
itself to the list that the outermost of them keeps; that one tells of them all, and settles.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from penstock.integrations.checkpoint import Checkpoint
from penstock.integrations.http import NAMES, Header, fields
from penstock.integrations.outcome import Outcome
from penstock.integrations.request import Response

# Where the list is: in the environ, or in the scope.
PENDING = "penstock.pending"
Entry = tuple[Checkpoint, Outcome]
Pending = list[Entry]

OURS = frozenset(name.lower() for name in NAMES)


def fields_of(pending: Pending) -> list[Header]:
    """The headers that tell of all limits, and of none twice."""
    if not pending:
        return []
    checkpoint, outcome = pending[0]
    told = outcome.told
    if len(pending) > 1:
        told = [each for _, outcome in pending for each in outcome.told]
    return fields(told, checkpoint.now(), checkpoint.fields)


def with_fields(headers: Iterable[Header], pending: Pending) -> list[Header]:
    """The headers of a response, telling of limits in our words alone."""
    if len(pending) > 1 or (pending and not pending[-1][1].allowed):
        headers = [header for header in headers if header[0].lower() not in OURS]
    return [*headers, *fields_of(pending)]


class Settling:
    """Gives back what need not be counted: by the response, and once."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self._given_back: list[Outcome] = []

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to see the response."""
        return any(checkpoint.count_when is not None for checkpoint, _ in self._pending)

    def settle(self, response: Response) -> list[Awaitable[Any]]:
        """Returns what has to be awaited. May be called again for a response that was replaced."""
        waiting: list[Awaitable[Any]] = []
        for checkpoint, outcome in self._pending:
            count_when = checkpoint.count_when
            if count_when is None or not outcome.allowed or outcome in self._given_back:
                continue
            if count_when(response):
                continue
            self._given_back.append(outcome)
            back = outcome.give_back(checkpoint._asynchronous)
            if back is not None:
                waiting.append(back)
        return waiting
