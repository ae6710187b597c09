"""The outcome of a decision: one of `OUTCOMES`."""

from __future__ import annotations

from penstock.decision import Decision
from penstock.metrics.families import ALLOWED, NEAR_LIMIT, OVERRUN, REFUSED, SHADOWED, UNCOUNTED
from penstock.rules.deciding import verdict as reasons
from penstock.rules.deciding.verdict import Status

# If a rule has several limits, the worst outcome counts.
RANK = {outcome: rank for rank, outcome in enumerate((ALLOWED, NEAR_LIMIT, OVERRUN, REFUSED))}


def outcome_of(decision: Decision) -> str:
    """The outcome of one limit, without shadow mode."""
    if not decision.allowed:
        return REFUSED
    if decision.overrun:
        return OVERRUN
    # More than 80 % used, as in Envoy's service.
    return NEAR_LIMIT if decision.remaining * 5 < decision.limit.burst else ALLOWED


def outcome_in(status: Status, allowed: bool) -> str:
    """The outcome of a descriptor's rule; ``allowed`` is that of the whole request."""
    decision = status.decision
    if not status.allowed:
        # An exhausted quota may leave the decision to another. Otherwise, if the request was
        # allowed all the same, the service is in shadow mode.
        return SHADOWED if allowed and not status.quota else REFUSED
    if decision is None:
        over = status.shadow and status.reason in (reasons.CLOSED, reasons.DENIED)
        return SHADOWED if over else UNCOUNTED
    if decision.allowed:
        return outcome_of(decision)
    # A check that consumes nothing is never refused.
    return SHADOWED if status.shadow else NEAR_LIMIT
