"""Which limit applies to a bucket: by the rules and switches of the gate, as for any request.

::

    a rule with limits           divided, if all of them can be: the strictest rate and burst
    a deny list, a limit of 0    DENY_ALL
    no rule, an allow list,      ALLOW_ALL: as a request would be allowed
    `unlimited`, shadow, off
    limits that cannot be        no assignment: Envoy follows its no_assignment_behavior, and the
    divided                      log says which rule it is

The pairs of a bucket are a map in Envoy, so they are matched in the order of their keys.
"""

from __future__ import annotations

import hashlib
import logging
from typing import NamedTuple

from penstock.async_gate import AsyncGate
from penstock.keys import descriptor_key
from penstock.rules.deciding.verdict import Descriptor
from penstock.rules.model import Rule
from penstock.service.rlqs import shares
from penstock.service.rlqs.messages import ALLOW_ALL, DENY_ALL, Blanket, Pairs
from penstock.service.rlqs.shares import Terms

logger = logging.getLogger("penstock.rlqs")

ALLOW, DENY = Blanket(ALLOW_ALL), Blanket(DENY_ALL)


class BucketRule(NamedTuple):
    """``terms`` to divide, or a ``blanket`` for every Envoy, or neither.

    ``account`` is the key of the limit's counter: buckets with the same key share the limit.
    ``part`` tells them apart, and is empty if there is only one.
    """

    terms: Terms | None = None
    blanket: Blanket | None = None
    account: str = ""
    rule: str = ""
    part: str = ""


class BucketRules:
    """Of a gate."""

    def __init__(self, gate: AsyncGate) -> None:
        self._gate = gate
        self._warned: set[tuple[str, str]] = set()

    def find(self, domain: str, pairs: Pairs) -> BucketRule:
        matcher = self._gate.matchers.get(domain)
        if matcher is None or not pairs:
            return BucketRule(blanket=ALLOW)
        match = matcher.match(pairs)
        treatment = self._gate.treatment(Descriptor(pairs), domain=domain)
        rule, _, allowed, shadow, counters = treatment
        name = "" if rule is None else rule.id
        if shadow or not self._gate.enforces or (allowed and not counters):
            return BucketRule(blanket=ALLOW, rule=name)
        if not allowed:
            return BucketRule(blanket=DENY, rule=name)
        assert rule is not None, "only rules have limits"
        assert match is not None
        limits = [each.limit for each in counters]
        if any(limit.amount == 0 for limit in limits):
            return BucketRule(blanket=DENY, rule=name)
        problem = why_not(rule) or next(filter(None, map(shares.undividable, limits)), None)
        if problem is None:
            terms = shares.terms_of(limits, rule.cost)
            if terms.burst < 1:
                return BucketRule(blanket=DENY, rule=name)
            key = descriptor_key(domain, pairs)
            digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8)
            part = "" if key == match.key else f"#{digest.hexdigest()}"
            return BucketRule(terms, account=match.key, rule=name, part=part)
        self._warn(name, problem)
        return BucketRule(rule=name)

    def _warn(self, rule: str, problem: str) -> None:
        if (rule, problem) not in self._warned and len(self._warned) < 10_000:
            self._warned.add((rule, problem))
            logger.warning(
                "rule %s gets no assignments by RLQS, and Envoy follows its"
                " no_assignment_behavior: %s", rule, problem,
            )  # fmt: skip


def why_not(rule: Rule) -> str | None:
    """Why a rule cannot be divided, whatever its limits are."""
    if rule.concurrency:
        return "a concurrency cannot be divided among Envoys"
    return None
