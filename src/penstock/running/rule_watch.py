"""RuleWatch: logs that the requests of a domain match no rule at all.

The keys of the rules are then not those that callers send, and nothing is limited. Each domain
is reported once, after enough requests to rule out a caller that only tries it.
"""

from __future__ import annotations

import logging

from penstock.metrics import Snapshot
from penstock.metrics.families import OTHER

logger = logging.getLogger("penstock.server")

# Requests without a rule before a domain is reported.
ENOUGH = 100
_NO_RULE = (
    "no request of domain %s has matched a rule: %d descriptors were allowed without one;"
    " penstock explain shows why a request matches no rule"
)
_NO_DOMAIN = "%d descriptors were allowed because they name a domain without rules"


class RuleWatch:
    """Looks at the metrics."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def look(self, snapshot: Snapshot) -> None:
        matched = {domain for domain, _, _ in _counts(snapshot, "penstock_decisions_total")}
        for (domain, reason), count in _counts(snapshot, "penstock_without_rule_total").items():
            if reason != "unmatched" or count < ENOUGH or domain in matched | self._reported:
                continue
            self._reported.add(domain)
            if domain == OTHER:
                logger.warning(_NO_DOMAIN, count)
            else:
                logger.warning(_NO_RULE, domain, count)


def _counts(snapshot: Snapshot, family: str) -> dict[tuple[str, ...], float]:
    """Those that are not zero."""
    values = snapshot.values.get(family, {})
    return {key: value for key, value in values.items() if not isinstance(value, list) and value}
