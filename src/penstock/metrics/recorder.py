"""Recorder: counts what is decided. It is told, and nothing it listens to knows of it.

`decided` runs for every request, so it does little: three plain counters on the ordinary
way. Texts, sums and everything with a name are made when somebody looks.

A request that went the short way (see `penstock.rules.compiled.Lane`) carries what its
statuses would be made from. They are not made here: that would cost more than all the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import Protocol, runtime_checkable

from penstock.clock import WALL, Clock
from penstock.decision import Decision
from penstock.events import Event, Hook
from penstock.gate import Gate
from penstock.metrics import labels
from penstock.metrics.cells import MOST_LABELS, DomainCell, RuleCell, Shown, Table
from penstock.metrics.families import BOUNDS, OTHER, REFUSED
from penstock.metrics.happenings import Happenings
from penstock.metrics.labels import Pair
from penstock.metrics.outcomes import RANK, outcome_in, outcome_of
from penstock.metrics.ruled import rule_ids, shown_by
from penstock.metrics.snapshot import RefusedKey, Snapshot
from penstock.metrics.telling import (
    tell_details,
    tell_domains,
    tell_limits,
    tell_process,
    tell_rules,
    tell_store,
)
from penstock.metrics.top import CAPACITY, Top
from penstock.metrics.top import merge as merge_tops
from penstock.rules import verdict as reasons
from penstock.rules.model import Rule, RuleSet
from penstock.rules.verdict import Status, Verdict


@runtime_checkable
class Source(Protocol):
    """What tells events: a gate, a store, a circuit breaker."""

    def subscribe(self, hook: Hook) -> None: ...
    def unsubscribe(self, hook: Hook) -> None: ...


class Recorder:
    """Counts the decisions of one process.

    - ``worker``: its name, where several processes are added up
    - ``most_labels``: how many rules, domains or values a family may tell apart
    - ``salt``: if given, values of keys are shown as digests that are made with it
    - ``most_keys``: counters for the keys that are refused most

    `decided` is called by one thread at a time; everything else by any.
    """

    def __init__(
        self,
        *,
        worker: str = "0",
        most_labels: int = MOST_LABELS,
        most_keys: int = CAPACITY,
        salt: str | bytes | None = None,
        clock: Clock = WALL,
    ) -> None:
        if type(most_labels) is not int or most_labels < 1:
            raise ValueError(f"most_labels is a whole number above 0, not {most_labels!r:.100}")
        self._worker = worker
        self._most_labels = most_labels
        self._clock = clock
        self._text = labels.plain if salt is None else labels.Hashed(salt)
        self._domains: Table[str, DomainCell] = Table(most_labels, DomainCell, DomainCell(OTHER))
        self._rules: Table[str, RuleCell] = Table(
            most_labels, lambda rule: RuleCell(OTHER, rule), RuleCell(OTHER, OTHER)
        )
        self._details: Table[tuple[str, str], RuleCell] = Table(
            most_labels, lambda key: RuleCell(OTHER, *key), RuleCell(OTHER, OTHER, OTHER)
        )
        self._refused: Top[RefusedKey] = Top(most_keys)
        self._happenings = Happenings(clock, self._look_at_rules)
        self._shown: dict[str, Shown] = {}
        self._gate: Gate | None = None
        self._seen: RuleSet | None = None
        self._sources: list[Source] = []

    # Whom it listens to --------------------------------------------------------------------

    def follow(self, gate: Gate) -> None:
        """Hear of a gate's rules and of its store, and tell of its limits. Of one gate."""
        if self._gate is not None:
            raise ValueError("a recorder follows one gate: make another one")
        self._gate = gate
        self._look_at_rules()
        self._happenings.rules_loaded()
        self.listen(gate)
        store: object = gate.store
        if isinstance(store, Source):
            self.listen(store)

    def listen(self, source: Source) -> None:
        """Hear of another store, or of a circuit breaker, until `close`."""
        source.subscribe(self.happened)
        self._sources.append(source)
        name = getattr(source, "name", None)
        if isinstance(name, str) and not isinstance(source, Gate):
            self._happenings.known(source, name)

    def happened(self, event: Event) -> None:
        """An event: see `penstock.events`."""
        self._happenings.happened(event)

    def close(self) -> None:
        """Hear no more."""
        sources, self._sources = self._sources, []
        for source in sources:
            source.unsubscribe(self.happened)

    def _look_at_rules(self) -> None:
        """Forget rules that are gone: their places are for those that came."""
        if self._gate is None:
            return
        rules = self._gate.rules
        if rules is self._seen:
            return
        self._seen = rules
        self._shown = shown_by(rules)
        ids = dict(rule_ids(rules))
        self._rules.keep(ids.__contains__)
        self._details.keep(lambda key: key[0] in ids)
        self._domains.keep(rules.domains.__contains__)
        for rule, cell in list(self._rules.found.items()):
            cell.shown = self._shown.get(rule)
        for domain in rules.domains:
            if domain not in self._domains.found:
                self._domains.cell(domain)
        for rule, domain in ids.items():
            if rule not in self._rules.found and len(self._rules.found) < self._most_labels:
                self._new_rule(domain, rule)

    # What is decided -----------------------------------------------------------------------

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        """A request was decided, in so many seconds."""
        at = self._domains.found.get(domain)
        if at is None:
            at = self._new_domain(domain)
        at.latency[bisect_left(BOUNDS, seconds)] += 1
        at.seconds += seconds
        if not verdict.allowed:
            at.refused += 1
        short_way = verdict._statuses
        if type(short_way) is not partial:
            for status in verdict.statuses:
                self._count_status(domain, at, status, verdict.allowed)
            return
        told, decisions = short_way.args
        cells, at_decision = self._rules.found, 0
        for pairs, rule, counted in told:
            if rule is None:
                at.unmatched += 1
            elif len(counted) == 1:
                decision = decisions[at_decision]
                at_decision += 1
                cell = cells.get(rule.id)
                # What most requests are: far below their limit.
                if (
                    cell is not None
                    and cell.shown is None
                    and decision.allowed
                    and decision.remaining * 5 >= decision.limit.burst
                    and not decision.degraded
                ):
                    cell.allowed += 1
                else:
                    self._count(domain, rule, pairs, outcome_of(decision), decision.degraded)
            else:
                mine = decisions[at_decision : at_decision + len(counted)]
                at_decision += len(counted)
                gravest = max(map(outcome_of, mine), key=RANK.__getitem__)
                self._count(domain, rule, pairs, gravest, any(one.degraded for one in mine))

    def decided_one(
        self, domain: str, rule: Rule, pairs: tuple[Pair, ...], decision: Decision, seconds: float
    ) -> None:
        """The same for one rule with one limit, by who has no verdict and needs none."""
        at = self._domains.found.get(domain)
        if at is None:
            at = self._new_domain(domain)
        at.latency[bisect_left(BOUNDS, seconds)] += 1
        at.seconds += seconds
        cell = self._rules.found.get(rule.id)
        if (
            cell is not None
            and cell.shown is None
            and decision.allowed
            and decision.remaining * 5 >= decision.limit.burst
            and not decision.degraded
        ):
            cell.allowed += 1
            return
        if not decision.allowed:
            at.refused += 1
        self._count(domain, rule, pairs, outcome_of(decision), decision.degraded)

    def _count_status(self, domain: str, at: DomainCell, status: Status, allowed: bool) -> None:
        rule, decision = status.rule, status.decision
        if rule is not None:
            degraded = decision is not None and decision.degraded
            self._count(domain, rule, status.pairs, outcome_in(status, allowed), degraded)
            return
        if status.reason == reasons.UNMATCHED:
            at.unmatched += 1
            return
        at.reasons[status.reason] = at.reasons.get(status.reason, 0) + 1
        if not status.allowed and not allowed:
            self._refused.add((status.reason, self._text(status.pairs)))

    def _count(
        self, domain: str, rule: Rule, pairs: tuple[Pair, ...], outcome: str, degraded: bool
    ) -> None:
        cell = self._rules.found.get(rule.id)
        if cell is None:
            cell = self._new_rule(domain, rule.id)
        setattr(cell, outcome, getattr(cell, outcome) + 1)
        if degraded:
            cell.degraded += 1
        shown = self._shown.get(rule.id) if cell.shown is None else cell.shown
        if shown is not None:
            pairs = shown.pairs(pairs)
            if shown.indexes is not None:
                values = self._text([pairs[index] for index in shown.indexes])
                detail = self._details.found.get((rule.id, values))
                if detail is None:
                    detail = self._details.cell((rule.id, values))
                    if detail is not self._details.other:
                        detail.domain = cell.domain
                setattr(detail, outcome, getattr(detail, outcome) + 1)
        if outcome == REFUSED:
            self._refused.add((rule.id, self._text(pairs)))

    def _new_domain(self, domain: str) -> DomainCell:
        """Where rules are known, a domain that they do not have is somebody's invention."""
        known = self._seen is None or domain in self._seen.domains
        return self._domains.cell(domain, known and len(domain) <= labels.LONGEST)

    def _new_rule(self, domain: str, rule: str) -> RuleCell:
        cell = self._rules.cell(rule)
        if cell is not self._rules.other:
            cell.domain = domain
            cell.shown = self._shown.get(rule)
        return cell

    # What is told --------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All of it at this moment; ``to_bytes`` of it for another process."""
        self._look_at_rules()
        out = Snapshot(self._clock.now(), merge_tops([self._refused]))
        tell_domains(out, self._domains.cells())
        tell_rules(out, self._rules.cells())
        tell_details(out, self._details.cells())
        out.set("penstock_folded_total", ("penstock_requests_total",), self._domains.folded)
        out.set("penstock_folded_total", ("penstock_decisions_total",), self._rules.folded)
        out.set(
            "penstock_folded_total", ("penstock_detailed_decisions_total",), self._details.folded
        )
        if self._seen is not None:
            tell_limits(out, self._seen, self._most_labels)
        self._happenings.tell(out)
        if self._gate is not None:
            tell_store(out, self._gate.store)
        tell_process(out, self._worker)
        return out
