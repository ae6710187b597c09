"""Recorder: counts decisions and events. The core does not know of it.

`decided` runs for every request, so it does little: usually it increments three counters.
Texts, sums and everything with a name are made when metrics are read.

A request that was decided by a plan (see `penstock.rules.deciding.plan`) is counted by the plan
and its decisions: to create its statuses would take longer than everything else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from penstock.async_gate import AnyGate
from penstock.clock import SECOND, WALL, Clock
from penstock.decision import Decision
from penstock.events import Event, Hook
from penstock.metrics import labels
from penstock.metrics.collect import (
    collect_details,
    collect_domains,
    collect_leases,
    collect_limits,
    collect_process,
    collect_region,
    collect_rules,
    collect_store,
)
from penstock.metrics.counters import MOST_LABELS, DomainCounters, KeyLabels, RuleCounters, Table
from penstock.metrics.event_counters import EventCounters
from penstock.metrics.families import BOUNDS, OTHER, REFUSED
from penstock.metrics.flight import FlightRecorder
from penstock.metrics.labels import Pair
from penstock.metrics.outcomes import RANK, outcome_in, outcome_of
from penstock.metrics.refusals import RecentRefusals
from penstock.metrics.rule_labels import RuleLimits, labels_by_rule, rule_ids
from penstock.metrics.snapshot import RefusedKey, Snapshot
from penstock.metrics.top import CAPACITY, Top
from penstock.metrics.top import merge as merge_tops
from penstock.rules.deciding import verdict as reasons
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.verdict import Status, Verdict, decisive
from penstock.rules.model import Rule, RuleSet


@runtime_checkable
class EventSource(Protocol):
    """A gate, a store or a circuit breaker."""

    def subscribe(self, hook: Hook) -> None: ...
    def unsubscribe(self, hook: Hook) -> None: ...


class Recorder:
    """Counts the decisions of one process.

    - ``worker``: its name, if several processes are summed
    - ``most_labels``: how many rules, domains or values a family may distinguish
    - ``salt``: if given, values of keys are shown as digests with this salt
    - ``most_keys``: counters for the keys that are refused most
    - ``flight``: keeps the requests themselves, to try other rules on

    `decided` must be called by one thread at a time; the other methods by any.
    """

    def __init__(
        self,
        *,
        worker: str = "0",
        most_labels: int = MOST_LABELS,
        most_keys: int = CAPACITY,
        salt: str | bytes | None = None,
        flight: FlightRecorder | None = None,
        clock: Clock = WALL,
    ) -> None:
        if type(most_labels) is not int or most_labels < 1:
            raise ValueError(f"most_labels is a whole number above 0, not {most_labels!r:.100}")
        self._worker = worker
        self._most_labels = most_labels
        self._clock = clock
        self._flight = flight
        self._text = labels.plain if salt is None else labels.Hashed(salt)
        self._domains: Table[str, DomainCounters] = Table(
            most_labels, DomainCounters, DomainCounters(OTHER)
        )
        self._rules: Table[str, RuleCounters] = Table(
            most_labels, lambda rule: RuleCounters(OTHER, rule), RuleCounters(OTHER, OTHER)
        )
        self._details: Table[tuple[str, str], RuleCounters] = Table(
            most_labels, lambda key: RuleCounters(OTHER, *key), RuleCounters(OTHER, OTHER, OTHER)
        )
        self._refused: Top[RefusedKey] = Top(most_keys)
        self.refusals = RecentRefusals()
        self._event_counters = EventCounters(clock, self._look_at_rules)
        self._key_labels: dict[str, KeyLabels] = {}
        self._gate: AnyGate | None = None
        self._seen: RuleSet | None = None
        self._limits = RuleLimits()
        self._sources: list[EventSource] = []

    # Event sources --------------------------------------------------------------------

    def follow(self, gate: AnyGate) -> None:
        """Record the rules, limits and events of one gate, and the events of its store."""
        if self._gate is not None:
            raise ValueError("a recorder follows one gate: create another recorder")
        self._gate = gate
        self._look_at_rules()
        self._event_counters.rules_loaded()
        self.listen(gate)
        store: object = gate.store
        if isinstance(store, EventSource):
            self.listen(store)

    def listen(self, source: EventSource) -> None:
        """Record the events of another store or of a circuit breaker, until `close`."""
        source.subscribe(self.on_event)
        self._sources.append(source)
        name = getattr(source, "name", None)
        if isinstance(name, str) and not isinstance(source, AnyGate):
            self._event_counters.register(source, name)

    def on_event(self, event: Event) -> None:
        """Count an event: see `penstock.events`."""
        self._event_counters.count(event)

    def close(self) -> None:
        """Stop recording events."""
        sources, self._sources = self._sources, []
        for source in sources:
            source.unsubscribe(self.on_event)

    def _look_at_rules(self) -> None:
        """Drop the counters of rules that were removed, to make room for new ones."""
        if self._gate is None:
            return
        rules = self._gate.rules
        if rules is self._seen:
            return
        self._seen = rules
        self._key_labels = labels_by_rule(rules)
        self._limits = RuleLimits.of(rules, self._most_labels)
        ids = dict(rule_ids(rules))
        self._rules.keep(ids.__contains__)
        self._details.keep(lambda key: key[0] in ids)
        self._domains.keep(rules.domains.__contains__)
        for rule, counters in list(self._rules.by_key.items()):
            counters.key_labels = self._key_labels.get(rule)
        for domain in rules.domains:
            if domain not in self._domains.by_key:
                self._domains.add(domain)
        for rule, domain in ids.items():
            if rule not in self._rules.by_key and len(self._rules.by_key) < self._most_labels:
                self._new_rule(domain, rule)

    # Decisions -----------------------------------------------------------------------------

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        """Count a decided request, and how many seconds the decision took."""
        if isinstance(verdict.plan, Plan):
            self.planned(verdict.plan, verdict.decisions, seconds, domain)
            return
        at = self._domains.by_key.get(domain) or self._new_domain(domain)
        at.latency[bisect_left(BOUNDS, seconds)] += 1
        at.seconds += seconds
        if not verdict.allowed:
            at.refused += 1
        for status in verdict.statuses:
            self._count_status(domain, at, status, verdict.allowed)
        if self._flight is not None:
            pairs = [status.pairs for status in verdict.statuses]
            self._flight.decided(domain, pairs, not verdict.allowed)
        if not verdict.allowed:
            self._note_refusal(domain, verdict)

    def planned(
        self,
        plan: Plan,
        decisions: Sequence[Decision],
        seconds: float,
        domain: str | None = None,
    ) -> None:
        """The same for a request that was decided by a plan, if the caller needs no verdict."""
        if domain is None:
            domain = plan.domain
        at = self._domains.by_key.get(domain) or self._new_domain(domain)
        at.latency[bisect_left(BOUNDS, seconds)] += 1
        at.seconds += seconds
        by_rule, single = self._rules.by_key, plan.single
        index, number, refused = 0, -1, False
        for plain in plan.rules:
            number += 1
            if plain is None:
                at.unmatched += 1
                continue
            rule, count = plain.rule, 1 if single else len(plain.counters)
            if count == 1:
                decision, counters = decisions[index], by_rule.get(rule.id)
                index += 1
                # Most requests are far below their limit.
                if (
                    counters is not None
                    and counters.key_labels is None
                    and decision.allowed
                    and decision.remaining * 5 >= decision.limit.burst
                    and not decision.degraded
                ):
                    counters.allowed += 1
                    continue
                by_limit: Sequence[Decision] = (decision,)
            else:
                by_limit = decisions[index : index + count]
                index += count
            if not all(by_limit):
                refused = True
                limit = next(each for each in by_limit if not each.allowed)
                pairs = plan.descriptors[number]
                self.refusals.add(
                    domain, rule.id, tuple(plan.descriptors), pairs, reasons.LIMIT, limit.limit,
                    _wait(limit), self._clock.now(),
                )  # fmt: skip
            worst = max(map(outcome_of, by_limit), key=RANK.__getitem__)
            degraded = any(each.degraded for each in by_limit)
            self._count(domain, rule, plan.descriptors[number], worst, degraded)
        if refused:
            at.refused += 1
        if self._flight is not None:
            self._flight.planned(plan, refused)

    def _count_status(self, domain: str, at: DomainCounters, status: Status, allowed: bool) -> None:
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

    def _note_refusal(self, domain: str, verdict: Verdict) -> None:
        descriptors, now = tuple(status.pairs for status in verdict.statuses), self._clock.now()
        for status in decisive(verdict.statuses):
            if not status.allowed:
                decision = status.decision
                self.refusals.add(
                    domain, "" if status.rule is None else status.rule.id, descriptors,
                    status.pairs, status.reason, None if decision is None else decision.limit,
                    None if decision is None else _wait(decision), now,
                )  # fmt: skip

    def _count(
        self, domain: str, rule: Rule, pairs: tuple[Pair, ...], outcome: str, degraded: bool
    ) -> None:
        counters = self._rules.by_key.get(rule.id)
        if counters is None:
            counters = self._new_rule(domain, rule.id)
        setattr(counters, outcome, getattr(counters, outcome) + 1)
        if degraded:
            counters.degraded += 1
        key_labels = (
            self._key_labels.get(rule.id) if counters.key_labels is None else counters.key_labels
        )
        if key_labels is not None:
            pairs = key_labels.pairs(pairs)
            if key_labels.indexes is not None:
                values = self._text([pairs[index] for index in key_labels.indexes])
                detail = self._details.by_key.get((rule.id, values))
                if detail is None:
                    detail = self._details.add((rule.id, values))
                    if detail is not self._details.other:
                        detail.domain = counters.domain
                setattr(detail, outcome, getattr(detail, outcome) + 1)
        if outcome == REFUSED:
            self._refused.add((rule.id, self._text(pairs)))

    def _new_domain(self, domain: str) -> DomainCounters:
        """Once rules are known, a domain without rules is counted as ``other``."""
        known = self._seen is None or domain in self._seen.domains
        return self._domains.add(domain, known and len(domain) <= labels.LONGEST)

    def _new_rule(self, domain: str, rule: str) -> RuleCounters:
        counters = self._rules.add(rule)
        if counters is not self._rules.other:
            counters.domain = domain
            counters.key_labels = self._key_labels.get(rule)
        return counters

    # Snapshots -----------------------------------------------------------------------------

    def counts(self) -> dict[str, list[int]]:
        """The counts of all rules that were ever asked, for a `History`."""
        self._look_at_rules()
        out: dict[str, list[int]] = {}
        for each in self._rules.all():
            passed = each.allowed + each.overrun + each.uncounted
            if passed or each.near_limit or each.refused or each.shadowed:
                out[each.rule] = [
                    passed, each.near_limit, each.refused, each.shadowed, each.degraded
                ]  # fmt: skip
        return out

    def snapshot(self) -> Snapshot:
        """The current values; use its ``to_bytes`` to send them to another process."""
        self._look_at_rules()
        out = Snapshot(self._clock.now(), merge_tops([self._refused]))
        collect_domains(out, self._domains.all())
        collect_rules(out, self._rules.all())
        collect_details(out, self._details.all())
        for family, folded in (
            ("penstock_requests_total", self._domains.folded),
            ("penstock_decisions_total", self._rules.folded),
            ("penstock_detailed_decisions_total", self._details.folded),
        ):
            out.set("penstock_folded_total", (family,), folded)
        if self._seen is not None:
            collect_limits(out, self._limits)
        self._event_counters.collect(out)
        if self._gate is not None:
            collect_store(out, self._gate.store)
            collect_leases(out, self._gate.store)
            collect_region(out, self._gate.store)
        collect_process(out, self._worker)
        return out


def _wait(decision: Decision) -> int | None:
    """Nanoseconds until the same request would be allowed; None if no waiting helps."""
    seconds = decision.retry_after
    return None if seconds is None else round(seconds * SECOND)
