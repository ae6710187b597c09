"""What a client is answered if a handler raises one of our errors and nobody catches it.

`LimitExceeded` is a 429, as a limit of the middleware would answer. A `NoSlot` is what the
concurrency middleware answers, and `CircuitOpen` what the breaker middleware does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from penstock.errors import CircuitOpen, LimitExceeded, LineFull, NoSlot, WaitedTooLong
from penstock.integrations.deciding import http
from penstock.integrations.deciding.http import NamedDecision
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.pending import Pending

ANSWERED = (LimitExceeded, NoSlot, CircuitOpen)
# Of these, what is answered with 429.
REFUSED = (LimitExceeded, LineFull)


class Raised(Outcome):
    """A limit that a handler asked itself, and that refused."""

    __slots__ = ("_told",)

    def __init__(self, error: LimitExceeded) -> None:
        super().__init__(False, error.key)
        self._told = told_by(error)

    @property
    def told(self) -> Sequence[NamedDecision]:
        return (self._told,)


def answer_to(
    error: BaseException, pending: Pending, accept: str, now: float, style: str = http.BOTH
) -> http.Answer | None:
    """The answer; None if it is not an error of ours.

    Where other limits have had a say, whoever tells of them tells of this one, too.
    """
    if isinstance(error, LimitExceeded):
        if pending:
            pending.append((pending[0][0], Raised(error)))
            style = http.NONE
        return http.refusal([told_by(error)], now, style, accept)
    if isinstance(error, NoSlot):
        return no_slot(error, accept)
    if isinstance(error, CircuitOpen):
        return circuit_open(error.retry_after, accept)
    return None


def told_by(error: LimitExceeded) -> NamedDecision:
    return error.decision.limit.counted_as, error.decision


def no_slot(error: NoSlot, accept: str) -> http.Answer:
    """429 if the line is full, 504 if the wait was too long, 503 if nobody can tell."""
    if isinstance(error, LineFull):
        return http.unavailable(429, "Too many requests at once", 1, accept)
    if isinstance(error, WaitedTooLong):
        return http.unavailable(504, "Waited too long for a slot", 1, accept)
    return http.unavailable(503, "Slots cannot be counted", 1, accept)


def circuit_open(retry_after: float, accept: str) -> http.Answer:
    after = max(1, ceil(retry_after))
    return http.unavailable(503, "Out of order for a while", after, accept)
