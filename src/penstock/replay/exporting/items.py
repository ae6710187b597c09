"""Items: what is exported, one limit each, with the requests that it is for.

What no target can express is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.errors import RulesError
from penstock.limits import Limit
from penstock.replay.exporting.escaping import comment
from penstock.replay.exporting.sources import ADDRESS, Source, source_of
from penstock.rules.model import Domain, Rule, RuleLimit, Step
from penstock.rules.problems import Place, Problem
from penstock.rules.wildcards import Pattern

BUCKETS = ("token_bucket", "leaky_bucket")
EXACT, ROUNDED, APPROXIMATE = "exact", "rounded", "approximate"


class ExportError(RulesError):
    """Rules that cannot be exported: ``problems`` has the file and the line of each."""


@dataclass(frozen=True, slots=True)
class Part:
    """One step on the path to a rule.

    ``value`` is a text, a pattern, or None for any. ``others`` are the values and patterns of
    steps that are tried before this one: they lead elsewhere.
    """

    key: str
    source: Source
    value: str | None
    others: tuple[str, ...]
    counted: bool  # each value has a counter of its own
    group: tuple[int, int] | None = None

    @property
    def wildcard(self) -> bool:
        return self.value is not None and "*" in self.value


@dataclass(frozen=True, slots=True)
class Item:
    """One limit of a rule. ``name`` is for zones, tables and sets: it has no odd characters."""

    name: str
    rule: Rule
    limit: Limit
    place: Place
    parts: tuple[Part, ...]
    concurrency: bool = False

    @property
    def closed(self) -> bool:
        return self.limit.amount == 0

    @property
    def counted(self) -> list[Part]:
        return [part for part in self.parts if part.counted]

    @property
    def title(self) -> str:
        """The rule, its limit and its place, for comments."""
        what = f"{self.limit.amount} at once" if self.concurrency else str(self.limit)
        return comment(f"{self.rule.id}: {what} ({self.place.file}:{self.place.line})")


@dataclass(slots=True)
class Piece:
    """What a writer made of an item."""

    item: Item
    means: Limit  # what Penstock would need to decide the same
    how: str = EXACT
    error: list[str] = field(default_factory=list)  # how it differs, for people
    # Its lines, for each section of the configuration in turn.
    sections: tuple[list[str], ...] = ()


def merged(pieces: Iterable[Piece]) -> list[list[str]]:
    """Each section with the lines of all pieces."""
    sections = zip(*(piece.sections for piece in pieces), strict=True)
    return [[line for lines in section for line in lines] for section in sections]


def refuse(item: Item, reason: str) -> Problem:
    return Problem(item.place, f"{comment(item.rule.id)}: {reason}")


def items_of(
    domain: Domain, own: Mapping[str, Source], only: Iterable[str] = ()
) -> tuple[list[Item], list[Problem]]:
    """The items of a domain, in the order of the file; and what no target can express.

    ``only``: the ids of the rules to export; all, if there are none.
    """
    items: list[Item] = []
    problems: list[Problem] = []
    wanted = set(only)
    seen: set[str] = set()
    if domain.allow or domain.deny:
        problems.append(
            Problem(
                domain.place,
                "allow and deny lists are not exported: leave them out, and write them in the"
                " target's own words (deny 192.0.2.0/24; in nginx)",
            )
        )
    for steps, siblings in _paths(domain.steps, (), ()):
        rule = steps[-1].rule
        if rule is not None:
            seen.add(rule.id)
        if wanted and (rule is None or rule.id not in wanted):
            continue
        found = list(_lists(steps))
        problems += found
        if rule is None or rule.unlimited or found:
            continue
        reason = unfit(rule)
        if reason:
            problems.append(Problem(rule.place, f"{comment(rule.id)}: {reason}"))
            continue
        parts = []
        for step, others in zip(steps, siblings, strict=True):
            part = _part(step, others, own)
            if isinstance(part, str):
                problems.append(Problem(step.place, f"{comment(rule.id)}: {part}"))
                break
            parts.append(part)
        else:
            items += _items(rule, tuple(parts), len(items))
    if wanted - seen:
        known = ", ".join(sorted(seen))
        missing = ", ".join(sorted(wanted - seen))
        raise ExportError(f"no rule {missing:.200}; there are {known:.500}")
    return items, problems


def _items(rule: Rule, parts: tuple[Part, ...], start: int) -> Iterator[Item]:
    if rule.closed and not rule.limits:
        limit = Limit(0, f"{rule.closed_period_ns or 1}ns")
        yield Item(f"penstock_{start + 1}", rule, limit, rule.place, parts)
    found = [(each, False) for each in rule.limits] + [(each, True) for each in rule.concurrency]
    for at, (each, concurrency) in enumerate(found, start + 1):
        yield Item(f"penstock_{at}", rule, each.limit, each.place, parts, concurrency)


def unfit(rule: Rule) -> str:
    """Why no target can express a rule; "" if some might."""
    refusals = (
        (rule.quota, "quota_mode refuses only together with others: leave it out"),
        (rule.replaces, "replaces depends on what else matches: give each rule its own limit"),
        (rule.cost != 1, f"cost {rule.cost}: proxies count requests; divide the limit by it"),
        (rule.plans, "plans: write a step with a value, and its limits, for each tier"),
        (rule.split, "split: proxies do not divide keys by percent; write one limit"),
        (rule.schedule, "schedule: export one file for each time, and load them by cron"),
    )
    for is_so, reason in refusals:
        if is_so:
            return reason
    return next(filter(None, map(_unfit_limit, rule.limits)), "")


def _unfit_limit(each: RuleLimit) -> str:
    limit = each.limit
    refusals = (
        (limit.debt, "debt: proxies lend nothing; use burst"),
        (limit.lockout_ns, "lockout: proxies refuse no longer than the limit does; leave it out"),
        (limit.soft, "soft: proxies have no grace time; raise the limit or burst"),
        (limit.warm_up_ns, "warm_up: proxies start with the full rate; leave it out"),
        (limit.initial is not None, "initial: in proxies keys begin with all of burst"),
        (limit.align == "calendar", "calendar windows: proxies do not know days; write 100/day"),
        (limit.count_rejected, "count_rejected: proxies count what they admit; leave it out"),
    )
    for is_so, reason in refusals:
        if is_so:
            return reason
    return ""


def _lists(steps: tuple[Step, ...]) -> Iterator[Problem]:
    step = steps[-1]
    if step.allow or step.deny:
        yield Problem(
            step.place,
            f"the lists of {comment(step.key)} are not exported: leave them out, and write them in"
            " the target's own words (deny 192.0.2.0/24; in nginx)",
        )


def _paths(
    steps: tuple[Step, ...], above: tuple[Step, ...], around: tuple[tuple[str, ...], ...]
) -> Iterator[tuple[tuple[Step, ...], tuple[tuple[str, ...], ...]]]:
    """Every path, and for each of its steps the values that lead elsewhere."""
    taken: set[tuple[str, str | None]] = set()
    for step in steps:
        if (step.key, step.value) in taken:
            continue  # of two equal steps, the first one counts
        taken.add((step.key, step.value))
        path, others = (*above, step), (*around, _before(step, steps))
        yield path, others
        yield from _paths(step.children, path, others)


def _before(step: Step, level: tuple[Step, ...]) -> tuple[str, ...]:
    """The values of a level that are tried before this step's."""
    if step.value is not None and not step.is_wildcard:
        return ()
    out: list[str] = []
    for other in level:
        if other.key != step.key or other.value is None or other.is_wildcard:
            continue
        if step.value is None or Pattern(step.value, 0, None).matches(other.value):
            out.append(other.value)
    for other in level:
        if other is step:
            if step.is_wildcard:
                break
        elif other.key == step.key and other.is_wildcard and other.value is not None:
            out.append(other.value)
    return tuple(dict.fromkeys(out))


def _part(step: Step, others: tuple[str, ...], own: Mapping[str, Source]) -> Part | str:
    source = source_of(step.key, own)
    if source is None:
        return (
            f"proxies do not know {comment(step.key)!r} of a request: say which header has it, by"
            f" --dimension {comment(step.key)}=header:NAME"
        )
    if source.secret and (step.value is not None or others):
        return f"values of {comment(step.key)!r} are kept as hashes: a proxy cannot match one"
    group = step.group
    if source.kind == ADDRESS and group is None:
        group = (32, 64)  # as in middleware
    if source.kind != ADDRESS and group is not None:
        return f"group is for addresses, not for {comment(step.key)!r}"
    counted = step.value is None or (step.is_wildcard and not step.share_threshold)
    return Part(step.key, source, step.value, others, counted, group)


def together(a: Item, b: Item) -> bool:
    """Whether one request may meet both."""
    for one in a.parts:
        for other in b.parts:
            if one.source == other.source and (_apart(one, other) or _apart(other, one)):
                return False
    return True


def _apart(one: Part, other: Part) -> bool:
    """Whether the one value of a part is none of the other's."""
    if one.value is None or one.wildcard:
        return False
    if other.value is not None:
        if not other.wildcard:
            return one.value != other.value
        if not Pattern(other.value, 0, None).matches(one.value):
            return True
    return any(
        one.value == each or ("*" in each and Pattern(each, 0, None).matches(one.value))
        for each in other.others
    )
