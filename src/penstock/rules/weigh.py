"""What the decisions on a request come to: lines in, verdict out.

A request is allowed if all its lines are; of those in quota mode, one is enough. The limit
that speaks for it is the one that refused, or the one with the least remaining.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.decision import Decision
from penstock.rules import verdict
from penstock.rules.compiled import Heritage, Told
from penstock.rules.model import Rule
from penstock.rules.verdict import Descriptor, Pair, Status, Verdict
from penstock.stores.base import Counters, pick


class Line:
    """One descriptor on its way to a `Status`."""

    __slots__ = (
        "allowed", "cost", "counted", "decisions", "heritages", "hits", "key", "name", "pairs",
        "quota", "reason", "rule", "shadow",
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
        self.key = ""
        self.counted: list[tuple[Counters, str]] = []  # counters and the limit's name
        self.heritages: list[Heritage | None] = []
        self.decisions: list[Decision] = []
        self.name: str | None = None

    def status(self) -> Status:
        best: Decision | None = None
        for (_, name), decision in zip(self.counted, self.decisions, strict=False):
            chosen = pick(best, decision)
            if chosen is not best:
                best, self.name = chosen, name
        return Status(
            self.pairs, self.allowed, self.reason, self.rule, best, self.name, self.shadow
        )


def lines_alike(descriptors: Sequence[Descriptor], reason: str) -> list[Line]:
    """Lines without any limit, refused if it is for the deny list."""
    lines = []
    for descriptor in descriptors:
        line = Line(descriptor.pairs)
        line.reason = reason
        line.allowed = reason != verdict.DENIED
        lines.append(line)
    return lines


def passes(line: Line) -> bool:
    """Whether a line's decisions let the request go ahead."""
    if line.shadow or line.hits < 0:
        return True
    if line.hits == 0:
        # A look is over its limit only if more was counted than fits, which never is: a
        # refused request takes nothing. Who is locked out is locked out.
        return all(d.allowed or not d.limit.lockout_ns for d in line.decisions)
    return all(line.decisions)


def verdict_on(lines: Sequence[Line], enforced: bool) -> Verdict:
    """Of all lines together; allowed in any case if the rules are not enforced."""
    statuses = tuple([line.status() for line in lines])
    quotas = [s for s, line in zip(statuses, lines, strict=True) if line.quota]
    allowed = all(s.allowed for s, line in zip(statuses, lines, strict=True) if not line.quota)
    if quotas and not any(status.allowed for status in quotas):
        allowed = False
    best: Status | None = None
    for status in statuses:
        best = _speaks(best, status)
    return Verdict(
        allowed or not enforced,
        None if best is None else best.decision,
        None if best is None else best.rule,
        statuses,
    )


def _speaks(best: Status | None, status: Status) -> Status | None:
    """Of two statuses, the one whose limit speaks for the request."""
    if status.shadow or (status.decision is None and status.allowed):
        return best
    if best is None or (best.allowed and not status.allowed):
        return status
    if status.allowed and not best.allowed:
        return best
    if best.decision is None or status.decision is None:
        return best
    return best if pick(best.decision, status.decision) is best.decision else status


def quick_verdict(told: Sequence[Told], decisions: Sequence[Decision]) -> Verdict:
    """Of a request that went the short way: see `Lane`."""
    if len(decisions) == 1:
        best = decisions[0]
        rule = next(rule for _, rule, counted in told if counted)
    elif not decisions:
        return Verdict(True, None, None, partial(_told_statuses, told, decisions))
    else:
        at = 0
        best, rule = decisions[0], None
        for _, found, counted in told:
            for _ in counted:
                chosen = pick(best, decisions[at])
                if rule is None or chosen is not best:
                    best, rule = chosen, found
                at += 1
    return Verdict(best.allowed, best, rule, partial(_told_statuses, told, decisions))


def _told_statuses(told: Sequence[Told], decisions: Sequence[Decision]) -> tuple[Status, ...]:
    statuses, at = [], 0
    for pairs, rule, counted in told:
        line = Line(pairs, rule)
        line.counted = [(one.counters, one.name) for one in counted]
        line.decisions = list(decisions[at : at + len(counted)])
        at += len(counted)
        if counted:
            line.reason = verdict.LIMIT
            line.allowed = all(line.decisions)
        statuses.append(line.status())
    return tuple(statuses)
