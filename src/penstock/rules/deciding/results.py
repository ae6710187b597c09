"""From the results for each descriptor to the verdict on a request.

`is_allowed` says whether a request is allowed: if all its results are, where one result in quota
mode is enough. It is evaluated before anything is taken, to know what to leave in the store, and
again for the verdict. Requests that are decided by a `Plan` have no quotas, shadow mode, lists or
debits: they are allowed if all decisions are.

The limit reported for a request is the one that refused it, or the one with the least remaining.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.decision import Decision
from penstock.keys import slots_key
from penstock.rules.deciding import verdict
from penstock.rules.deciding.lineage import Inherited
from penstock.rules.deciding.verdict import Descriptor, Pair, Status, Verdict, decisive
from penstock.rules.model import Rule
from penstock.stores.base import Counters, pick


class DescriptorResult:
    """One descriptor on its way to a `Status`."""

    __slots__ = (
        "account", "allowed", "cost", "counted", "debit", "decisions", "envoy", "former",
        "held_before", "held_until", "heritages", "hits", "holds", "key", "name", "pairs", "quota",
        "reason", "rule", "shadow",
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
        self.debit = False  # the hits have been used already
        self.key = ""
        self.counted: list[tuple[Counters, str]] = []  # counters and the limit's name
        self.envoy: list[bool] = []  # for each of them, whether it is in Envoy's format
        self.heritages: list[Inherited | None] = []  # and what it inherits
        self.account: str | None = None  # of the quota, which is the last but for a concurrency
        self.holds = False  # the last of them is the rule's concurrency
        self.former: list[Counters] = []  # of limits that this one has replaced
        self.held_before = 0  # slots of those, and when the last of them is free
        self.held_until = 0
        self.decisions: list[Decision] = []
        self.name: str | None = None

    def count(
        self, counters: Counters, name: str, envoy: bool, inherited: Inherited | None = None
    ) -> None:
        """Let a limit decide on it."""
        self.counted.append((counters, name))
        self.envoy.append(envoy)
        self.heritages.append(inherited)
        self.reason = verdict.LIMIT

    def take_from(self, counters: Counters, name: str, account: str) -> None:
        """Let the quota of an account decide on it."""
        self.count(counters, name, envoy=False)
        self.account = account

    def hold(self, counters: Counters, name: str, former: list[Counters]) -> None:
        """Let it hold a slot; ``former`` are the counters of limits that this one has replaced."""
        self.count(counters, name, envoy=False)
        self.holds = True
        self.former = former

    def places(self) -> list[tuple[Counters, str]]:
        """The counters that decide on it, each with the key to count under."""
        places = [(counters, self.key) for counters, _ in self.counted]
        if self.account is not None:
            at = -2 if self.holds else -1
            places[at] = places[at][0], self.account
        if self.holds:
            places[-1] = places[-1][0], slots_key(self.key)
        return places

    def refuse(self, reason: str) -> None:
        """Refuse without a limit, except in shadow mode or if hits are given back.

        A look is refused, too: it tells callers whether to let the request in.
        """
        self.reason = reason
        self.allowed = self.shadow or self.hits < 0

    def is_denied(self) -> bool:
        """Whether a deny list refuses it."""
        return self.reason == verdict.DENIED and not self.allowed

    def is_kept(self) -> bool:
        """Whether it stays counted even if the request is refused."""
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


def listed_results(descriptors: Sequence[Descriptor], reason: str) -> list[DescriptorResult]:
    """The results of a request that is on an allow or a deny list."""
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
    """Whether a look finds more booked than fits, or the key locked out.

    A window that is exactly full is not over, as in Envoy's service: callers that look first and
    debit after rely on it.
    """
    return not look.allowed and (look._room < 0 or look.limit.lockout_ns > 0)


def is_allowed(results: Iterable[DescriptorResult]) -> bool:
    """Whether the request may go ahead, as far as its results are decided.

    All results must pass, except that of those in quota mode one is enough. Closed and denied
    results do not pass. Results that are unlimited, switched off, in shadow mode or on an allow
    list do. A quota that is replaced no longer counts as one: see `Check`.
    """
    quotas = passed = False
    for result in results:
        if result.quota:
            quotas, passed = True, passed or result.allowed
        elif not result.allowed:
            return False
    return passed or not quotas


def verdict_on(results: Sequence[DescriptorResult], enforced: bool) -> Verdict:
    """The verdict on all results together; always allowed if the rules are not enforced."""
    statuses = tuple([result.status() for result in results])
    allowed = is_allowed(results) or not enforced
    best: Status | None = None
    for status in decisive(statuses):
        best = _strictest(best, status)
    if best is None:
        return Verdict(allowed, None, None, statuses)
    return Verdict(allowed, best.decision, best.rule, statuses)


def _strictest(best: Status | None, status: Status) -> Status | None:
    """Which of two statuses is reported for the request."""
    if status.decision is None and status.allowed:
        return best
    if best is None or (best.allowed and not status.allowed):
        return status
    if status.allowed and not best.allowed:
        return best
    if best.decision is None or status.decision is None:
        return best
    return best if pick(best.decision, status.decision) is best.decision else status
