"""Checks steps against each other: duplicates, steps that never match, unknown names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.rules.model import Domain, Step
from penstock.rules.problems import nearest
from penstock.rules.reading.tree import shown
from penstock.rules.reading.values import Reading, refer
from penstock.rules.walk import limits_of, rules_of
from penstock.rules.wildcards import Wildcards

# Patterns with a star at both ends are compared with each other. As this is only for warnings, it
# is skipped if it would take more than about a second.
_MOST_CHARACTERS = 500_000_000
_CALL = 50  # what one comparison costs, in characters


def check_level(reading: Reading, steps: Sequence[Step]) -> None:
    seen: dict[tuple[str, str | None], Step] = {}
    wildcards: dict[str, list[Step]] = {}
    for step in steps:
        if not step.key:
            continue  # it is missing, which has been reported
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
        # A step without a value is tried last: only a star alone leaves no value for it.
        last = seen.get((key, None))
        _check_hidden(reading, patterns, () if last is None else (last,))


def _check_hidden(reading: Reading, patterns: Sequence[Step], last: Iterable[Step]) -> None:
    """Warn about steps that never match, because a wildcard before them takes all their values.

    A pattern matches everything that another one does if it matches that one's text: a star in
    the text can only match a star of the pattern. Exact values are tried first, so nothing hides
    them.
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
    """Warn about names in ``replaces`` that no limit of the domain has."""
    rules = list(rules_of(domain))
    if not any(rule.replaces for rule in rules):
        return
    names = {rule.name for rule in rules if rule.name is not None}
    for rule in rules:
        names.update(limit.name for _, limits in limits_of(rule) for limit in limits)
    for rule in rules:
        for name in sorted(rule.replaces - names):
            message = f"'replaces' names {shown(name)}, but no limit of this domain has that name"
            reading.warn(rule.place, f"{message}{nearest(name, names)}")
