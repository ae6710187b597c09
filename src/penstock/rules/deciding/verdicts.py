"""What the decisions on a request come to: results in, verdict out.

`judged` says whether a request is allowed: if all its results are; of those in quota mode, one is
enough. It is asked before anything is taken, to know what to leave in the store, and for the
verdict. Requests that take the short way (`Plan`) have no quotas, shadow, lists
or debits; for them it comes to "all decisions passed".

The limit that speaks for a request is the one that refused, or the one with the least remaining.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.decision import Decision
from penstock.rules.deciding import verdict
from penstock.rules.deciding.heritage import Inherited
from penstock.rules.deciding.verdict import Descriptor, Pair, Status, Verdict, speaking
from penstock.rules.model import Rule
from penstock.stores.base import Counters, pick


class DescriptorResult:
    """One descriptor on its way to a `Status`."""

    __slots__ = (
        "allowed", "cost", "counted", "debit", "decisions", "envoy", "heritages", "hits", "key",
        "name", "pairs", "quota", "reason", "rule", "shadow",
    )  # fmt: skip

    def __init__(self, pairs: tuple[Pair, ...], rule: Rule | None = None) -> None:
        self.pairs = pairs
        self.rule = rule
        self.reason = verdict.UNMATCHED
        self.allowed = True
        self.shadow = False
        self.quota = False
        self.hits = 1
        self.cost = 1
        self.debit = False  # the hits are what has been used already
        self.key = ""
        self.counted: list[tuple[Counters, str]] = []  # counters and the limit's name
        self.envoy: list[bool] = []  # for each of them, whether it is in Envoy's words
        self.heritages: list[Inherited | None] = []  # and what it inherits
        self.decisions: list[Decision] = []
        self.name: str | None = None

    def count(
        self,
        counters: Counters,
        name: str,
        envoy: bool = False,
        inherited: Inherited | None = None,
    ) -> None:
        """Have a limit decide on it."""
        self.counted.append((counters, name))
        self.envoy.append(envoy)
        self.heritages.append(inherited)
        self.reason = verdict.LIMIT

    def refuse(self, reason: str) -> None:
        """Without a limit. Hits can be given back all the same, and shadow refuses nothing.

        A look is refused: callers that look first would be let in by it.
        """
        self.reason = reason
        self.allowed = self.shadow or self.hits < 0

    def is_kept(self) -> bool:
        """Whether it leaves something in the store even if the request is refused."""
        return self.hits > 0 and (self.shadow or (self.debit and any(self.envoy)))

    def status(self) -> Status:
        best: Decision | None = None
        for (_, name), decision in zip(self.counted, self.decisions, strict=False):
            chosen = pick(best, decision)
            if chosen is not best:
                best, self.name = chosen, name
        return Status(
            self.pairs,
            self.allowed,
            self.reason,
            self.rule,
            best,
            self.name,
            self.shadow,
            self.quota,
        )


def results_alike(descriptors: Sequence[Descriptor], reason: str) -> list[DescriptorResult]:
    """Results without any limit, refused if it is for the deny list."""
    results = []
    for descriptor in descriptors:
        result = DescriptorResult(descriptor.pairs)
        result.reason = reason
        result.allowed = reason != verdict.DENIED
        results.append(result)
    return results


def passes(result: DescriptorResult) -> bool:
    """Whether a result's decisions let the request go ahead."""
    if result.shadow or result.hits < 0:
        return True
    if result.hits == 0:
        return not any(is_over(decision) for decision in result.decisions)
    return all(result.decisions)


def is_over(look: Decision) -> bool:
    """Whether a look finds the limit over: more is booked than fits, or the key is locked out.

    A window that is just full is not over: so Envoy's service has it, and callers that look
    first and debit after rely on it.
    """
    return not look.allowed and (look._room < 0 or look.limit.lockout_ns > 0)


def judged(results: Iterable[DescriptorResult | Status]) -> bool:
    """Whether the request may go ahead, as far as its results are decided.

    Each result must pass, but of those in quota mode one is enough. A closed or denied result does
    not pass; one that is unlimited, switched off, in shadow or on an allow list does. A quota
    that is replaced is no quota any more: see `Check`.
    """
    quotas = passed = False
    for result in results:
        if result.quota:
            quotas, passed = True, passed or result.allowed
        elif not result.allowed:
            return False
    return passed or not quotas


def verdict_on(results: Sequence[DescriptorResult], enforced: bool) -> Verdict:
    """Of all results together; allowed in any case if the rules are not enforced."""
    statuses = tuple([result.status() for result in results])
    allowed = judged(results)
    best: Status | None = None
    for status in speaking(statuses):
        best = _speaks(best, status)
    return Verdict(
        allowed or not enforced,
        None if best is None else best.decision,
        None if best is None else best.rule,
        statuses,
    )


def _speaks(best: Status | None, status: Status) -> Status | None:
    """Of two statuses, the one whose limit speaks for the request."""
    if status.decision is None and status.allowed:
        return best
    if best is None or (best.allowed and not status.allowed):
        return status
    if status.allowed and not best.allowed:
        return best
    if best.decision is None or status.decision is None:
        return best
    return best if pick(best.decision, status.decision) is best.decision else status
