"""RuleChanges: what a reload adds, changes and removes, in a line for the log.

::

    2 added (api/x, api/y), 1 changed (api/z), none removed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from penstock.rules.lists import ValueList
from penstock.rules.model import Domain, RuleSet, Step

# A line names so many rules of each kind, and so many characters of each name.
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
        return cls(
            tuple(sorted(new.keys() - old.keys())),
            tuple(
                sorted(name for name in new.keys() & old.keys() if not _same(old[name], new[name]))
            ),
            tuple(sorted(old.keys() - new.keys())),
        )

    def __str__(self) -> str:
        kinds = ("added", self.added), ("changed", self.changed), ("removed", self.removed)
        return ", ".join(
            f"{_counted(names)[0]} {kind}{_counted(names)[1]}" for kind, names in kinds
        )


def _counted(names: tuple[str, ...]) -> tuple[str, str]:
    if not names:
        return "none", ""
    shown = [
        name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        for name in names[:MOST_NAMED]
    ]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return str(len(names)), f" ({', '.join(shown)}{more})"


def _parts(rules: RuleSet) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Everything that decides, by the name that the log gives it."""
    for domain in rules.domains.values():
        if domain.allow or domain.deny:
            yield f"allow and deny lists of {domain.name}", (domain.allow, domain.deny)
        yield from _rules(domain)


def _rules(domain: Domain) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Each rule, with the settings of the steps that lead to it."""
    steps: list[tuple[Step, tuple[Any, ...]]] = [(step, ()) for step in domain.steps]
    while steps:
        step, above = steps.pop()
        path = (
            *above,
            (step.group, step.allow, step.deny, step.share_threshold, step.value_to_metric),
        )
        steps += [(child, path) for child in step.children]
        if step.rule is not None:
            yield step.rule.id, (step.rule, path)


def _same(one: Any, other: Any) -> bool:
    """Equal, wherever they stand in their files."""
    if one == other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, ValueList):
        return bool(one.entries == other.entries)
    if is_dataclass(one):
        names = [each.name for each in fields(one) if each.name != "place"]
        return all(_same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return False
