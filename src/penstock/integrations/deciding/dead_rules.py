"""Rules that no request can match, because nobody says what one of their keys is of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.rules.deciding.overrides import paths_of
from penstock.rules.model import RuleSet


@dataclass(frozen=True, slots=True)
class DeadRule:
    """A rule, and its keys that are no dimension."""

    domain: str
    rule: str
    keys: tuple[str, ...]


def dead_rules(rules: RuleSet, knows: Callable[[str], bool]) -> Iterator[DeadRule]:
    """The rules with a key that is not known as a dimension."""
    for domain, path, rule in paths_of(rules):
        missing = tuple([step.key for step in path if not knows(step.key)])
        if missing:
            yield DeadRule(domain, rule.id, missing)
