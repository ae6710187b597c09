"""Looks at steps together: those that are the same, hide each other, or name each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.rules.model import Domain, Rule, Step
from penstock.rules.reading.keywords import nearest
from penstock.rules.reading.tree import shown
from penstock.rules.reading.values import Reading, refer
from penstock.rules.wildcards import Wildcards

# Patterns with a star at both ends are compared each with each. A warning is a help, not
# a promise: what would take more than about a second is left.
_MOST_CHARACTERS = 500_000_000
_CALL = 50  # what one comparison costs, in characters


def check_level(reading: Reading, steps: Sequence[Step]) -> None:
    seen: dict[tuple[str, str | None], Step] = {}
    wildcards: dict[str, list[Step]] = {}
    for step in steps:
        if not step.key:
            continue  # it is missing, which has been told
        first = seen.setdefault((step.key, step.value), step)
        if first is not step:
            what = step.key if step.value is None else f"{step.key}={step.value}"
            reading.error(
                step.place,
                f"the step {shown(what)} a second time on this level:"
                f" first at {refer(first.place, step.place)}",
            )
        elif step.is_wildcard:
            wildcards.setdefault(step.key, []).append(step)
    for key, patterns in wildcards.items():
        # A step without a value is looked up last: only a star alone leaves nothing to it.
        last = seen.get((key, None))
        _check_hidden(reading, patterns, () if last is None else (last,))


def _check_hidden(reading: Reading, patterns: Sequence[Step], last: Iterable[Step]) -> None:
    """Warn of steps that never get a value, because a wildcard before them takes it.

    A pattern takes all that another one matches if it fits that one's own text: a star of
    the text can only fall to a star of the pattern. Exact values are looked up first, so
    nothing hides them.
    """
    texts = [(step.value or "", step) for step in patterns]
    open_ends = sum(text.startswith("*") and text.endswith("*") for text, _ in texts)
    if open_ends * sum(len(text) + _CALL for text, _ in texts) > _MOST_CHARACTERS:
        return
    wildcards = Wildcards(texts)
    for step in (*patterns, *last):
        first = wildcards.first("*" if step.value is None else step.value)
        if first is not None and first is not step:
            reading.warn(
                step.place,
                f"this step never matches: {shown(first.value or '')} at"
                f" {refer(first.place, step.place)} takes all of its values",
            )


def check_replaced(reading: Reading, domain: Domain) -> None:
    """Warn of names in ``replaces`` that no limit of the domain has."""
    rules = list(_rules(domain.steps))
    if not any(rule.replaces for rule in rules):
        return
    names = {name for rule in rules for name in _names(rule)}
    for rule in rules:
        for name in sorted(rule.replaces - names):
            reading.warn(
                rule.place,
                f"'replaces' names {shown(name)}, but no limit of this domain has that name"
                f"{nearest(name, names)}",
            )


def _rules(steps: Iterable[Step]) -> Iterator[Rule]:
    for step in steps:
        if step.rule is not None:
            yield step.rule
        yield from _rules(step.children)


def _names(rule: Rule) -> Iterator[str]:
    if rule.name is not None:
        yield rule.name
    groups = [rule.limits, *(period.limits for period in rule.schedule)]
    if rule.plans is not None:
        groups += rule.plans.tiers.values()
    if rule.split is not None:
        groups.append(rule.split.limits)
    yield from (limit.name for limits in groups for limit in limits)
