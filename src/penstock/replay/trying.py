"""Trial: what other rules would have done to the requests of a flight recorder.

The old and the new rules decide on the same requests by gates over stores of their own, on a clock
that the recorder sets: by the same plans, checks and algorithms as the service. Counters begin
empty, and clients are taken to send the same whatever they are answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.gate import Gate
from penstock.metrics.flight import Recorded, Request
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.rules.model import RuleSet
from penstock.stores.memory import MemoryStore

TOP = 20
Pairs = tuple[tuple[str, str], ...]


class SetClock:
    """Shows the time that it was set to."""

    def __init__(self) -> None:
        self.at = 0

    def now(self) -> int:
        return self.at

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a trial waits for nothing")

    async def sleep_async(self, seconds: float) -> None:
        raise AssertionError("a trial waits for nothing")


@dataclass(slots=True)
class RuleTrial:
    """What one rule did: to how many requests, and to which keys how often."""

    asked: int = 0
    refused: int = 0
    keys: Counter[Pairs] = field(default_factory=Counter)


@dataclass(slots=True)
class Outcome:
    """What one set of rules did."""

    refused: int = 0
    rules: dict[str, RuleTrial] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """Both sets of rules on the same requests."""

    requests: int
    first: int
    last: int
    unknown: int
    before: Outcome
    after: Outcome
    newly_refused: int
    newly_allowed: int
    # Keys whose refusals change, the most changed first: rule, key, refused before and after.
    keys: list[tuple[str, Pairs, int, int]]
    keys_changed: int


def try_rules(
    recorded: Recorded,
    before: RuleSet,
    after: RuleSet,
    prepare: Callable[[Gate], None] | None = None,
) -> Trial:
    """``prepare`` brings the overrides and lists in force to a gate."""
    old, new = _Decider(before, recorded, prepare), _Decider(after, recorded, prepare)
    newly_refused = newly_allowed = 0
    for at, number in zip(recorded.times, recorded.numbers, strict=True):
        was, now = old.refuses(at, number), new.refuses(at, number)
        if was != now:
            newly_refused += now
            newly_allowed += was
    changed = _changed(old.outcome, new.outcome)
    times = recorded.times
    return Trial(
        len(recorded),
        times[0] if times else 0,
        times[-1] if times else 0,
        recorded.unknown,
        old.outcome,
        new.outcome,
        newly_refused,
        newly_allowed,
        changed[:TOP],
        len(changed),
    )


class _Decider:
    """One set of rules, and what it has decided so far."""

    def __init__(
        self, rules: RuleSet, recorded: Recorded, prepare: Callable[[Gate], None] | None
    ) -> None:
        self._clock = SetClock()
        self._clock.at = recorded.times[0] if recorded.times else 0
        self._gate = Gate(rules, MemoryStore(clock=self._clock))
        if prepare is not None:
            prepare(self._gate)
        planner = self._gate.planner
        self._requests = recorded.requests
        self._plans = [
            planner.make(domain, list(descriptors), hits)
            for domain, descriptors, hits in recorded.requests
        ]
        self._descriptors = [_descriptors(request) for request in recorded.requests]
        self.outcome = Outcome()

    def refuses(self, at: int, number: int) -> bool:
        self._clock.at = at
        plan = self._plans[number]
        if plan is not None:
            return self._count_plan(plan)
        domain, _, hits = self._requests[number]
        if domain not in self._gate.matchers:
            return False
        verdict = self._gate.check(*self._descriptors[number], domain=domain, hits=hits)
        return self._count_verdict(verdict)

    def _count_plan(self, plan: Plan) -> bool:
        decisions = plan.hit()
        refused, index = False, 0
        for at, plain in enumerate(plan.rules):
            if plain is None:
                continue
            trial = self._trial(plain.rule.id)
            trial.asked += 1
            end = index + len(plain.counters)
            if not all(decisions[index:end]):
                refused = True
                trial.refused += 1
                trial.keys[plan.descriptors[at]] += 1
            index = end
        self.outcome.refused += refused
        return refused

    def _count_verdict(self, verdict: Verdict) -> bool:
        for status in verdict.statuses:
            if status.rule is None:
                continue
            trial = self._trial(status.rule.id)
            trial.asked += 1
            over = status.decision is not None and not status.decision.allowed
            if not status.allowed or (status.shadow and over):
                trial.refused += 1
                trial.keys[status.pairs] += 1
        self.outcome.refused += not verdict.allowed
        return not verdict.allowed

    def _trial(self, rule: str) -> RuleTrial:
        trial = self.outcome.rules.get(rule)
        if trial is None:
            trial = self.outcome.rules[rule] = RuleTrial()
        return trial


def _changed(before: Outcome, after: Outcome) -> list[tuple[str, Pairs, int, int]]:
    """Of rules of the same name, the keys that are refused more or less often."""
    rows = []
    for rule in dict.fromkeys([*before.rules, *after.rules]):
        old = before.rules.get(rule, RuleTrial()).keys
        new = after.rules.get(rule, RuleTrial()).keys
        for key in dict.fromkeys([*old, *new]):
            if old[key] != new[key]:
                rows.append((rule, key, old[key], new[key]))
    return sorted(rows, key=lambda row: -abs(row[3] - row[2]))


def _descriptors(request: Request) -> Sequence[Descriptor]:
    return [Descriptor(pairs) for pairs in request[1]]
