"""Walking through rules: all of them, and every limit that one of them names."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.limit import Limit
from penstock.rules.model import Domain, Rule, RuleLimit, RuleSet, Step


def all_rules(rules: RuleSet) -> Iterator[Rule]:
    for domain in rules.domains.values():
        yield from rules_of(domain)


def rules_of(domain: Domain) -> Iterator[Rule]:
    steps: list[Step] = list(domain.steps)
    while steps:
        step = steps.pop()
        steps += step.children
        if step.rule is not None:
            yield step.rule


def limits_of(rule: Rule) -> Iterator[tuple[str, tuple[RuleLimit, ...]]]:
    """Every set of limits that a rule may choose from, and what it is called."""
    yield "limits", rule.limits
    if rule.plans is not None:
        for tier, limits in rule.plans.tiers.items():
            yield f"plans {tier}", limits
    if rule.split is not None:
        yield "split", rule.split.limits
    for at, period in enumerate(rule.schedule):
        yield f"schedule {at}", period.limits


def limits_in(rules: RuleSet) -> Iterator[Limit]:
    """Every limit that the rules name."""
    for rule in all_rules(rules):
        for _, limits in limits_of(rule):
            yield from (each.limit for each in limits)
