"""What the rules say that metrics need to know: limits, and how keys are told."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from penstock.clock import SECOND
from penstock.metrics.cells import Shown
from penstock.metrics.labels import short
from penstock.rules.match_tree import counted_as
from penstock.rules.model import RuleSet, Step
from penstock.rules.walk import limits_of, rules_of

# Domain, rule, limit; then units, period in seconds, burst.
LimitRow = tuple[str, str, str, int, float, int]


def shown_by(rules: RuleSet) -> dict[str, Shown]:
    """By rule, of those about whose keys something is special."""
    found: dict[str, Shown] = {}
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
                found[rule.id] = Shown(indexes or None, counted)
    return found


def is_changed(step: Step) -> bool:
    """Whether something else than the value is counted by."""
    return step.group is not None or (step.share_threshold and step.is_wildcard)


def _paths(steps: tuple[Step, ...], before: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for step in steps:
        path = (*before, step)
        if step.rule is not None:
            yield path
        yield from _paths(step.children, path)


def limit_rows(rules: RuleSet) -> Iterator[LimitRow]:
    """Every configured limit. Where two of a rule have one name, the second says where it is."""
    for domain in rules.domains.values():
        for path in _paths(domain.steps, ()):
            rule = path[-1].rule
            assert rule is not None
            seen: set[str] = set()
            for where, limits in limits_of(rule):
                for at, each in enumerate(limits):
                    limit = each.limit
                    # A limit without a name of its own is called after its rule and itself.
                    name = each.name.removeprefix(f"{rule.id} ")
                    name = f"{name} ({where} {at})" if name in seen else name
                    seen.add(name)
                    yield (
                        short(domain.name), short(rule.id), short(name),
                        limit.amount, limit.period_ns / SECOND, limit.burst,
                    )  # fmt: skip


def rule_ids(rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Every rule, and its domain."""
    for domain in rules.domains.values():
        for rule in rules_of(domain):
            yield rule.id, domain.name
