"""Iterates over rules, and over the limits of a rule."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.rules.model import Domain, Rule, RuleLimit, RuleSet, Step

# The name of the set that has a rule's `concurrency`.
CONCURRENCY = "concurrency"


def all_rules(rules: RuleSet) -> Iterator[Rule]:
    for domain in rules.domains.values():
        yield from rules_of(domain)


def rules_of(domain: Domain) -> Iterator[Rule]:
    """In the order of the file."""
    for step in steps_of(domain):
        if step.rule is not None:
            yield step.rule


def steps_of(domain: Domain) -> Iterator[Step]:
    """In the order of the file."""
    steps: list[Step] = [*reversed(domain.steps)]
    while steps:
        step = steps.pop()
        steps += reversed(step.children)
        yield step


def limits_of(rule: Rule) -> Iterator[tuple[str, tuple[RuleLimit, ...]]]:
    """Every set of limits that a rule may choose from, with a name."""
    yield "limits", rule.limits
    if rule.plans is not None:
        for tier, limits in rule.plans.tiers.items():
            yield f"plans {tier}", limits
    if rule.split is not None:
        yield "split", rule.split.limits
    for at, period in enumerate(rule.schedule):
        yield f"schedule {at}", period.limits
    if rule.concurrency:
        yield CONCURRENCY, rule.concurrency
