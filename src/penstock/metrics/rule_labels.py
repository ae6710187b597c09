"""The labels of rules: their limits, and how their keys are shown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from penstock.clock import SECOND
from penstock.metrics.counters import KeyLabels
from penstock.metrics.labels import short
from penstock.rules.matching.tree import counted_as
from penstock.rules.model import RuleSet, Step
from penstock.rules.walk import limits_of, rules_of

# Domain, rule, limit; then units, period in seconds, burst.
LimitRow = tuple[str, str, str, int, float, int]


def labels_by_rule(rules: RuleSet) -> dict[str, KeyLabels]:
    """The `KeyLabels` of the rules whose keys are not shown as they are."""
    labels: dict[str, KeyLabels] = {}
    for domain in rules.domains.values():
        for path in _paths(domain.steps, ()):
            rule = path[-1].rule
            assert rule is not None
            indexes: tuple[int, ...] | None
            if rule.detailed_metric:
                indexes = tuple(range(len(path)))
            else:
                indexes = tuple([at for at, step in enumerate(path) if step.value_to_metric])
            counted = tuple(
                [partial(counted_as, step) if is_changed(step) else None for step in path]
            )
            if indexes or any(counted):
                labels[rule.id] = KeyLabels(indexes or None, counted)
    return labels


def is_changed(step: Step) -> bool:
    """Whether something other than the value itself is counted."""
    return step.group is not None or (step.share_threshold and step.is_wildcard)


def _paths(steps: tuple[Step, ...], before: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for step in steps:
        path = (*before, step)
        if step.rule is not None:
            yield path
        yield from _paths(step.children, path)


class RuleLimits(NamedTuple):
    """The limits of rules, as far as they are shown."""

    rows: tuple[LimitRow, ...] = ()
    not_shown: int = 0
    rules: int = 0

    @classmethod
    def of(cls, rules: RuleSet, most: int) -> RuleLimits:
        """Takes a while for a hundred thousand rules: not between decisions."""
        rows = list(limit_rows(rules))
        count = sum(1 for _ in rule_ids(rules))
        return cls(tuple(rows[:most]), max(0, len(rows) - most), count)


def limit_rows(rules: RuleSet) -> Iterator[LimitRow]:
    """Every configured limit. If two limits of a rule have one name, the second shows its place."""
    for domain in rules.domains.values():
        for path in _paths(domain.steps, ()):
            rule = path[-1].rule
            assert rule is not None
            seen: set[str] = set()
            for where, limits in limits_of(rule):
                for at, each in enumerate(limits):
                    limit = each.limit
                    # A limit without a name is named after its rule and its text.
                    name = each.name.removeprefix(f"{rule.id} ")
                    name = f"{name} ({where} {at})" if name in seen else name
                    seen.add(name)
                    yield (
                        short(domain.name), short(rule.id), short(name),
                        limit.amount, limit.period_ns / SECOND, limit.burst,
                    )  # fmt: skip


def rule_ids(rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Every rule id and its domain."""
    for domain in rules.domains.values():
        for rule in rules_of(domain):
            yield rule.id, domain.name
