"""Whether an override can be counted by: of every rule that it touches, in this store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from penstock.errors import LimitError, UnsupportedLimit
from penstock.limit import Limit
from penstock.rules.deciding.switches import Override
from penstock.rules.model import Rule, RuleSet, Step
from penstock.rules.walk import limits_of

Pair = tuple[str, str]


def problem_of(
    rules: RuleSet, pair: Pair, override: Override, count: Callable[[Limit], object]
) -> str | None:
    """What is wrong with the limits that come of it; ``count`` raises if one is unsupported."""
    if override.limit is not None:
        error = _error(override.limit, override, count)
        return None if error is None else f"{override.limit} cannot be counted: {error}"
    tried: set[Limit] = set()
    for rule in _touched(rules, pair):
        for _, limits in limits_of(rule):
            for each in limits:
                if each.limit in tried:
                    continue
                tried.add(each.limit)
                error = _error(each.limit, override, count)
                if error is not None:
                    times = f"{each.limit} times {override.factor:g}"
                    return f"of {rule.id}, {times} cannot be counted: {error}"
    return None


def problems_of(
    rules: RuleSet, overrides: Mapping[Pair, Override], count: Callable[[Limit], object]
) -> Iterator[tuple[Pair, str]]:
    """Of many overrides: each that cannot be counted by, and why."""
    limits = _limits_by_key(rules)
    for pair, override in overrides.items():
        # Most are right with every limit of their key, which are few.
        if any(_error(limit, override, count) for limit in limits.get(pair[0], ())):
            problem = problem_of(rules, pair, override, count)
            if problem is not None:
                yield pair, problem


def touched_by(rules: RuleSet, overrides: Mapping[Pair, Override]) -> dict[str, int]:
    """By id, how many of the overrides touch each rule that any of them touches."""
    values: dict[str, set[str]] = {}
    for key, value in overrides:
        values.setdefault(key, set()).add(value)
    found: dict[str, int] = {}
    for way, rule in _ways(rules):
        count = 0
        for key in {step.key for step in way} & values.keys():
            wanted = [step.value for step in way if step.key == key]
            if None in wanted:
                count += len(values[key])
            elif any(value is not None and "*" in value for value in wanted):
                count += sum(any(_takes(each, value) for each in wanted) for value in values[key])
            else:
                count += len(values[key].intersection(wanted))
        if count:
            found[rule.id] = count
    return found


def _error(limit: Limit, override: Override, count: Callable[[Limit], object]) -> str | None:
    try:
        count(override.apply(limit))
    except (LimitError, UnsupportedLimit) as error:
        return str(error)
    return None


def _limits_by_key(rules: RuleSet) -> dict[str, set[Limit]]:
    """Of every key, the limits of all rules on whose way it is."""
    found: dict[str, set[Limit]] = {}
    for way, rule in _ways(rules):
        limits = [each.limit for _, limits in limits_of(rule) for each in limits]
        for step in way:
            found.setdefault(step.key, set()).update(limits)
    return found


def _touched(rules: RuleSet, pair: Pair) -> Iterator[Rule]:
    for way, rule in _ways(rules):
        if any(step.key == pair[0] and _takes(step.value, pair[1]) for step in way):
            yield rule


def _ways(rules: RuleSet) -> Iterator[tuple[tuple[Step, ...], Rule]]:
    for domain in rules.domains.values():
        open_: list[tuple[Step, ...]] = [(step,) for step in domain.steps]
        while open_:
            way = open_.pop()
            open_ += [(*way, child) for child in way[-1].children]
            if way[-1].rule is not None:
                yield way, way[-1].rule


def _takes(wanted: str | None, value: str) -> bool:
    if wanted is None or wanted == value:
        return True
    return "*" in wanted and bool(
        re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), value, re.DOTALL)
    )
