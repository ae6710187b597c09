"""The limits that were applied to one request, from the outermost middleware to the view.

A middleware may count a request, then an extension, then the decorator of a view. Each of them
appends itself to a list that the outermost one keeps. That one adds the headers of them all to
the response, and settles by its status. If a limit refuses, those before it give back what they
took: a request passes all its limits, or takes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.request import Response
from penstock.integrations.deciding.responses import NAMES, Header, fields

# The list's key in the environ or the scope.
APPLIED = "penstock.applied"
AppliedLimit = tuple[HttpCheckpoint, Outcome]
AppliedLimits = list[AppliedLimit]

LOWER_NAMES = frozenset(name.lower() for name in NAMES)


def fields_of(applied: AppliedLimits) -> list[Header]:
    """The headers for all limits, each once."""
    if not applied:
        return []
    checkpoint, outcome = applied[0]
    decisions = outcome.named_decisions
    if len(applied) > 1:
        decisions = [each for _, outcome in applied for each in outcome.named_decisions]
    return fields(decisions, checkpoint.now(), checkpoint.fields)


def with_fields(headers: Iterable[Header], applied: AppliedLimits) -> list[Header]:
    """The headers of a response, with those for the limits instead of any that it had."""
    if len(applied) > 1 or (applied and not applied[-1][1].allowed):
        headers = [header for header in headers if header[0].lower() not in LOWER_NAMES]
    return [*headers, *fields_of(applied)]


# Each of these returns what has to be awaited --------------------------------------------------


def withdraw(applied: Iterable[AppliedLimit]) -> list[Awaitable[Any]]:
    """Give back what these limits took: one that was checked after them has refused.

    A lockout that one of them began is not undone.
    """
    results = [outcome.withdraw(checkpoint.asynchronous) for checkpoint, outcome in applied]
    return [each for each in results if each is not None]


def keep_counted(applied: Iterable[AppliedLimit]) -> list[Awaitable[Any]]:
    """Count what was taken: the request has ended without a response."""
    results = [outcome.confirm(checkpoint.asynchronous) for checkpoint, outcome in applied]
    return [each for each in results if each is not None]


def release(applied: Iterable[AppliedLimit]) -> list[Awaitable[Any]]:
    """Free the slots of rules with ``concurrency``: the request has ended."""
    results: list[Awaitable[Any]] = []
    for checkpoint, outcome in applied:
        if outcome.holds_slots:
            waiting = outcome.release(checkpoint.asynchronous)
            if waiting is not None:
                results.append(waiting)
    return results


def settle(applied: AppliedLimits, response: Response, client_absent: bool) -> list[Awaitable[Any]]:
    """Give back what ``count_when`` says need not be counted.

    May be called again, for a response that replaces the first. If the application failed
    because its client left, what was taken stays counted: nobody knows what it had done by then.
    """
    if client_absent and response.failed:
        return keep_counted(applied)
    results = []
    for checkpoint, outcome in applied:
        if outcome.allowed and not outcome.returned:
            results.append(checkpoint.settle(outcome, response))
    return [each for each in results if each is not None]


def holds_slots(applied: AppliedLimits) -> bool:
    """Whether `release` has anything to do."""
    return any(outcome.holds_slots for _, outcome in applied)


def settles(applied: AppliedLimits) -> bool:
    """Whether any of the limits has a ``count_when``."""
    return any(checkpoint.count_when is not None for checkpoint, _ in applied)
