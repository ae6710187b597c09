"""What a rule said, in one of `OUTCOMES`."""

from __future__ import annotations

from penstock.decision import Decision
from penstock.metrics.families import ALLOWED, NEAR_LIMIT, OVERRUN, REFUSED, SHADOWED, UNCOUNTED
from penstock.rules import verdict as reasons
from penstock.rules.verdict import Status

# Of a rule with several limits, the gravest counts.
RANK = {outcome: rank for rank, outcome in enumerate((ALLOWED, NEAR_LIMIT, OVERRUN, REFUSED))}


def outcome_of(decision: Decision) -> str:
    """Of a limit that may refuse."""
    if not decision.allowed:
        return REFUSED
    if decision.overrun:
        return OVERRUN
    # More than 80 % used, as Envoy's service has it.
    return NEAR_LIMIT if decision.remaining * 5 < decision.limit.burst else ALLOWED


def outcome_in(status: Status, allowed: bool) -> str:
    """Of a descriptor's rule; ``allowed`` is what became of the whole request."""
    decision = status.decision
    if not status.allowed:
        # A quota that is used up may leave it to another. Else, if the request was let
        # through all the same, all rules are in shadow.
        return SHADOWED if allowed and not status.quota else REFUSED
    if decision is None:
        over = status.shadow and status.reason in (reasons.CLOSED, reasons.DENIED)
        return SHADOWED if over else UNCOUNTED
    if decision.allowed:
        return outcome_of(decision)
    # A look that takes nothing is never refused.
    return SHADOWED if status.shadow else NEAR_LIMIT
