"""Whether an override works: with the limits of every rule that it affects, in this store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from penstock.errors import LimitError, UnsupportedLimit
from penstock.limits import Limit
from penstock.rules.deciding.switches import Override
from penstock.rules.model import Rule, RuleSet, Step
from penstock.rules.walk import CONCURRENCY, limits_of
from penstock.rules.wildcards import Pattern

Pair = tuple[str, str]


def check_override(
    rules: RuleSet, pair: Pair, override: Override, count: Callable[[Limit], object]
) -> None:
    """`LimitError` if the override does not work; ``count`` raises if a limit is not supported."""
    problem = _problem(rules, pair, override, count)
    if problem is not None:
        raise LimitError(f"the override of {pair[0]}={pair[1]:.100} cannot be: {problem}")


def _problem(
    rules: RuleSet, pair: Pair, override: Override, count: Callable[[Limit], object]
) -> str | None:
    if override.limit is not None:
        error = _error(override.limit, override, count)
        return None if error is None else f"{override.limit} cannot be counted: {error}"
    tried: set[Limit] = set()
    for path, rule in _paths(rules):
        if not any(step.key == pair[0] and takes(step.value, pair[1]) for step in path):
            continue
        for limit in _limits(rule):
            if limit in tried:
                continue
            tried.add(limit)
            error = _error(limit, override, count)
            if error is not None:
                times = f"{limit} times {override.factor:g}"
                return f"of {rule.id}, {times} cannot be counted: {error}"
    return None


def problems_of(
    rules: RuleSet, overrides: Mapping[Pair, Override], count: Callable[[Limit], object]
) -> Iterator[tuple[Pair, str]]:
    """The overrides that do not work, and why."""
    limits: dict[str, set[Limit]] = {}  # of all rules on whose path a key is
    for path, rule in _paths(rules):
        for step in path:
            limits.setdefault(step.key, set()).update(_limits(rule))
    for pair, override in overrides.items():
        # Quick, as a key has few limits: most overrides work with all of them.
        if any(_error(limit, override, count) for limit in limits.get(pair[0], ())):
            problem = _problem(rules, pair, override, count)
            if problem is not None:
                yield pair, problem


def touched_by(rules: RuleSet, overrides: Mapping[Pair, Override]) -> dict[str, int]:
    """How many overrides affect each rule, by id; without rules that none affects."""
    values: dict[str, set[str]] = {}
    for key, value in overrides:
        values.setdefault(key, set()).add(value)
    counts: dict[str, int] = {}
    for path, rule in _paths(rules):
        count = 0
        for key in {step.key for step in path} & values.keys():
            wanted = [step.value for step in path if step.key == key]
            if None in wanted:
                count += len(values[key])
            elif any(value is not None and "*" in value for value in wanted):
                count += sum(any(takes(item, value) for item in wanted) for value in values[key])
            else:
                count += len(values[key].intersection(wanted))
        if count:
            counts[rule.id] = count
    return counts


def _error(limit: Limit, override: Override, count: Callable[[Limit], object]) -> str | None:
    try:
        count(override.apply(limit))
    except (LimitError, UnsupportedLimit) as error:
        return str(error)
    return None


def _limits(rule: Rule) -> list[Limit]:
    """The limits that an override applies to: those of rates."""
    return [
        limit.limit for where, limits in limits_of(rule) if where != CONCURRENCY for limit in limits
    ]


def _paths(rules: RuleSet) -> Iterator[tuple[tuple[Step, ...], Rule]]:
    """Every rule, with the steps that lead to it."""
    for _, path, rule in paths_of(rules):
        yield path, rule


def paths_of(rules: RuleSet) -> Iterator[tuple[str, tuple[Step, ...], Rule]]:
    """Every rule, with its domain and the steps that lead to it."""
    for name, domain in rules.domains.items():
        paths: list[tuple[Step, ...]] = [(step,) for step in domain.steps]
        while paths:
            path = paths.pop()
            paths += [(*path, child) for child in path[-1].children]
            if path[-1].rule is not None:
                yield name, path, path[-1].rule


def takes(wanted: str | None, value: str) -> bool:
    """Whether a step with this value, None for any, matches."""
    if wanted is None or wanted == value:
        return True
    return "*" in wanted and Pattern(wanted, 0, None).matches(value)
