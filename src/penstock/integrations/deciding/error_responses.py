"""The responses to Penstock's errors that a handler raises and nobody catches.

`LimitExceeded` is answered as a limit of the middleware would answer, `NoSlot` as the
concurrency middleware does, and `CircuitOpen` as the breaker middleware does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from penstock.clock import WALL
from penstock.durations import SECOND
from penstock.errors import CircuitOpen, LimitExceeded, LineFull, NoSlot, WaitedTooLong
from penstock.integrations.deciding import responses
from penstock.integrations.deciding.applied_limits import AppliedLimits
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.responses import NamedDecision

ANSWERED = (LimitExceeded, NoSlot, CircuitOpen)
# Of these, what is answered with 429.
REFUSED = (LimitExceeded, LineFull)


class Exceeded(Outcome):
    """The refusal of a limit that the handler checked itself."""

    __slots__ = ("_decision",)

    def __init__(self, error: LimitExceeded) -> None:
        super().__init__(False, error.key)
        self._decision = named_decision(error)

    @property
    def named_decisions(self) -> Sequence[NamedDecision]:
        return (self._decision,)


def answer_to(
    error: BaseException, applied: AppliedLimits, accept: str, style: str = responses.BOTH
) -> responses.Answer | None:
    """The response; None if the error is not one of Penstock's.

    Where limits were applied before, the exceeded one is appended: whoever adds their headers
    to the response adds its headers, too.
    """
    if isinstance(error, LimitExceeded):
        if applied:
            applied.append((applied[0][0], Exceeded(error)))
            style = responses.NONE
        return responses.refusal([named_decision(error)], WALL.now() / SECOND, style, accept)
    if isinstance(error, NoSlot):
        return no_slot(error, accept)
    if isinstance(error, CircuitOpen):
        return circuit_open(error.retry_after, accept)
    return None


def named_decision(error: LimitExceeded) -> NamedDecision:
    return error.decision.limit.counted_as, error.decision


def no_slot(error: NoSlot, accept: str) -> responses.Answer:
    """429 if the queue is full, 504 if the wait was too long, 503 if slots cannot be counted."""
    if isinstance(error, LineFull):
        return responses.unavailable(429, "Too many requests at once", 1, accept)
    if isinstance(error, WaitedTooLong):
        return responses.unavailable(504, "Waited too long for a slot", 1, accept)
    return responses.unavailable(503, "Slots cannot be counted", 1, accept)


def circuit_open(retry_after: float, accept: str) -> responses.Answer:
    after = max(1, ceil(retry_after))
    return responses.unavailable(503, "Temporarily unavailable", after, accept)
