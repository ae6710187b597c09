"""How calls end: status, message and trailing metadata. Pure.

Every call that was counted has the fields of the IETF draft for HTTP::

    ratelimit-policy: "default";q=100;w=60      100 in 60 seconds
    ratelimit: "default";r=42;t=35              42 are left; more in 35 seconds

A refusal also has ``retry-after``, in whole seconds, rounded up; a `google.rpc.Status` with the
exact delay and the limits that refused; and ``grpc-retry-pushback-ms``: clients with a retry
policy wait that long instead of guessing, or do not try again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import QuotaFailure, RetryInfo  # type: ignore[import-untyped]  # it has types, but does not say so
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # as above

from penstock.clock import WALL
from penstock.decision import Decision
from penstock.durations import MILLISECOND, SECOND
from penstock.errors import CircuitOpen, LimitExceeded, LineFull, NoSlot, WaitedTooLong
from penstock.integrations.deciding import responses
from penstock.integrations.deciding.error_responses import named_decision
from penstock.integrations.deciding.outcome import Outcome, Undecided
from penstock.integrations.deciding.responses import NamedDecision

Metadata = tuple[tuple[str, str | bytes], ...]

PUSHBACK = "grpc-retry-pushback-ms"
# A longer wait is for the caller to decide: its call would hang that long within gRPC.
LONGEST_PUSHBACK = 60 * SECOND
DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a refused call ends."""

    code: grpc.StatusCode
    message: str
    metadata: Metadata = ()


UNAVAILABLE = Refusal(grpc.StatusCode.UNAVAILABLE, "Rate limits cannot be checked at the moment")
DENIED = Refusal(grpc.StatusCode.PERMISSION_DENIED, "Denied")


def fields(decisions: Sequence[NamedDecision]) -> Metadata:
    """The metadata of every counted call."""
    now = WALL.now() / SECOND
    return tuple(
        [(name.lower(), value) for name, value in responses.fields(decisions, now, responses.IETF)]
    )


def refusal(decisions: Sequence[NamedDecision]) -> Refusal:
    """For a call that one of these limits refused, or that could not be checked."""
    after = responses.retry_after(decisions)
    refused = responses.strictest_first([each for each in decisions if not each[1].allowed])
    if refused and all(is_shut(decision) for _, decision in refused):
        code, message = UNAVAILABLE.code, UNAVAILABLE.message
    else:
        code, message = grpc.StatusCode.RESOURCE_EXHAUSTED, "Rate limit exceeded"
    delay = 0
    if after is None:
        message += "; no waiting helps"
    else:
        message += f"; retry after {after} s"
        delay = max(decision._retry for _, decision in refused)
    violations = [_violation(*each) for each in refused]
    return _refusal(code, message, after, delay, fields(decisions), violations)


def _refusal(
    code: grpc.StatusCode,
    message: str,
    after: int | None,
    delay: int,
    added: Metadata,
    violations: Sequence[QuotaFailure.Violation],
) -> Refusal:
    """``after`` is in whole seconds, None if no waiting helps; ``delay`` in nanoseconds."""
    details: list[Message] = []
    metadata: Metadata
    if after is None:
        metadata = ((PUSHBACK, "-1"),)
    else:
        wait = -(-delay // MILLISECOND) if delay <= LONGEST_PUSHBACK else -1
        metadata = (("retry-after", str(after)), (PUSHBACK, str(wait)))
        exact = Duration()
        exact.FromNanoseconds(delay)
        details.append(RetryInfo(retry_delay=exact))
    if violations:
        details.append(QuotaFailure(violations=violations))
    status = Status(code=code.value[0], message=message, details=[_pack(d) for d in details])
    packed = ((DETAILS, status.SerializeToString()),)
    return Refusal(code, message, (*metadata, *added, *packed))


def to_outcome(outcome: Outcome) -> Refusal:
    """For an outcome that is not allowed."""
    if isinstance(outcome, Undecided):
        return UNAVAILABLE
    return DENIED if outcome.denied else refusal(outcome.named_decisions)


def to_error(error: BaseException | None) -> Refusal | None:
    """For one of our errors that a handler raised; None for all others."""
    if isinstance(error, LimitExceeded):
        return refusal([named_decision(error)])
    if isinstance(error, CircuitOpen):
        return _later(grpc.StatusCode.UNAVAILABLE, "Temporarily unavailable", error.retry_after)
    if isinstance(error, LineFull):
        return _later(grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many calls at once", 1)
    if isinstance(error, WaitedTooLong):
        return _later(grpc.StatusCode.DEADLINE_EXCEEDED, "Waited too long for a slot", 1)
    if isinstance(error, NoSlot):
        return _later(grpc.StatusCode.UNAVAILABLE, "Slots cannot be counted", 1)
    return None


def _later(code: grpc.StatusCode, message: str, after: float) -> Refusal:
    seconds = max(1, ceil(after))
    delay = max(MILLISECOND, ceil(after * SECOND))
    return _refusal(code, f"{message}; retry after {seconds} s", seconds, delay, (), [])


def is_shut(decision: Decision) -> bool:
    """Refused only because the store is not available, by a limit that fails closed."""
    # With another mark it was decided: by a site that is cut off.
    return decision.degraded and decision._mark < 0 and decision.limit.on_failure == "closed"


def _violation(name: str, decision: Decision) -> QuotaFailure.Violation:
    return QuotaFailure.Violation(subject=name, description=f"limit of {decision.limit.counted_as}")


def _pack(message: Message) -> Packed:
    packed = Packed()
    packed.Pack(message)
    return packed
