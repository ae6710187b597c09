"""RuleChanges: what a reload adds, changes and removes, in a line for the log.

::

    2 added (api/x, api/y), 1 changed (api/z), none removed
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from penstock.rules.lists import ValueList
from penstock.rules.model import Domain, Rule, RuleSet, Step
from penstock.rules.walk import limits_of

# The most rules of each kind that a line names, and the most characters of each name.
MOST_NAMED = 10
LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class RuleChanges:
    """The ids of rules. The lists of a domain are named as ``allow and deny lists of api``."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: RuleSet, after: RuleSet) -> RuleChanges:
        """A rule that has only moved to another line or file is not changed."""
        old, new = dict(_parts(before)), dict(_parts(after))
        changed = [
            name
            for name in new.keys() & old.keys()
            if _without_places(old[name]) != _without_places(new[name])
        ]
        return cls(
            tuple(sorted(new.keys() - old.keys())),
            tuple(sorted(changed)),
            tuple(sorted(old.keys() - new.keys())),
        )

    def __str__(self) -> str:
        kinds = {"added": self.added, "changed": self.changed, "removed": self.removed}
        return ", ".join(_summary(kind, names) for kind, names in kinds.items())


def _summary(kind: str, names: tuple[str, ...]) -> str:
    if not names:
        return f"none {kind}"
    shown = [
        name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        for name in names[:MOST_NAMED]
    ]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{len(names)} {kind} ({', '.join(shown)}{more})"


def _parts(rules: RuleSet) -> Iterator[tuple[str, Domain | tuple[Step, ...]]]:
    """Lists, and the steps to each rule, by the name that the log uses."""
    for domain in rules.domains.values():
        if domain.allow or domain.deny:
            yield f"allow and deny lists of {domain.name}", domain
        paths: list[tuple[Step, ...]] = [(step,) for step in domain.steps]
        while paths:
            path = paths.pop()
            paths += [(*path, child) for child in path[-1].children]
            if path[-1].rule is not None:
                yield path[-1].rule.id, path


def _without_places(part: Domain | tuple[Step, ...]) -> list[Any]:
    """The parts that affect decisions, without their places in the files."""
    if isinstance(part, Domain):
        return [
            {key: _entries(values) for key, values in lists.items()}
            for lists in (part.allow, part.deny)
        ]
    values: list[Any] = [
        (step.group, _entries(step.allow), _entries(step.deny), *_step_flags(step)) for step in part
    ]
    rule = part[-1].rule
    return values if rule is None else [*values, _rule_without_places(rule)]


def _entries(values: ValueList | None) -> tuple[str, ...]:
    return () if values is None else values.entries


def _rule_without_places(rule: Rule) -> tuple[Any, ...]:
    limits = [
        (where, [(each.limit, each.name, each.envoy) for each in limits])
        for where, limits in limits_of(rule)
    ]
    plans = None if rule.plans is None else (rule.plans.by, rule.plans.default)
    split = None if rule.split is None else (rule.split.percent, rule.split.salt)
    periods = [(each.days, each.start, each.end, each.zone) for each in rule.schedule]
    return _other_fields(rule), limits, plans, split, periods


_step_flags = attrgetter("share_threshold", "value_to_metric")
_PLACED = ("place", "limits", "plans", "split", "schedule", "concurrency")
_other_fields = attrgetter(*[each.name for each in fields(Rule) if each.name not in _PLACED])
