"""Lineage: which limits stood where a limit stands now, over any number of reloads.

It is worked out from the rules alone and knows no store, so that a supervisor can hand it to
a worker that starts later.

A limit is looked for in the rule of the same id, in the same set (the rule's own limits, a
plan's tier, the split, a period of the schedule): the same limit first, then one of the same
name, then one of the same period, then by position. A set that is new in its rule takes over
from all sets that the rule had, and the keys of a set that is gone from the rule may be in any
of the others now.

What is kept is bounded: an ancestor only until nothing that was used of it can matter, each
limit once however often it came back, and at most `MOST_ANCESTORS` for a limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.limit import COLD, Limit
from penstock.rules.model import Rule, RuleLimit, RuleSet
from penstock.rules.walk import all_rules, limits_of

# Different limits that one limit remembers to have been. The newest are kept.
MOST_ANCESTORS = 16

# A rule's id, the set of limits in it, and the position in the set.
Seat = tuple[str, str, int]
Sets = Mapping[str, tuple[RuleLimit, ...]]


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A limit that was in force in the place of another."""

    limit: Limit
    generation: int  # the last one in which it was
    until: int  # nothing that was used of it matters from then on


@dataclass(frozen=True, slots=True)
class Lineage:
    """The ancestors of every limit that has any. A generation is one set of rules."""

    generation: int = 0
    ancestors: Mapping[Seat, tuple[Ancestor, ...]] = field(default_factory=dict)
    # For each of them, where its closest relative was in the generation before.
    parents: Mapping[Seat, Seat] = field(default_factory=dict)

    def after(self, before: RuleSet, rules: RuleSet, now: int) -> Lineage:
        """The lineage of ``rules``, which replace ``before`` at ``now``."""
        ancestors: dict[Seat, tuple[Ancestor, ...]] = {}
        parents: dict[Seat, Seat] = {}
        old_rules = {rule.id: rule for rule in all_rules(before)}
        changed = {seat[0] for seat in self.ancestors}  # before this time
        for rule in all_rules(rules):
            old = old_rules.get(rule.id)
            if old is None:
                continue
            old_sets, sets = sets_of(old), sets_of(rule)
            if rule.id not in changed and _is_same(old_sets, sets):
                continue
            for seat, relatives in _relatives(rule.id, old_sets, sets):
                limit = sets[seat[1]][seat[2]].limit
                found = self._ancestors(limit, relatives, old_sets, now)
                if found:
                    ancestors[seat] = found
                    parents[seat] = relatives[0]
        return Lineage(self.generation + 1, ancestors, parents)

    def _ancestors(
        self, limit: Limit, relatives: Sequence[Seat], sets: Sets, now: int
    ) -> tuple[Ancestor, ...]:
        found: dict[Limit, Ancestor] = {}
        for seat in relatives:
            old = sets[seat[1]][seat[2]].limit
            parent = Ancestor(old, self.generation, now + memory_of(old))
            for each in (parent, *self.ancestors.get(seat, ())):
                # What was counted by the limit itself is still there.
                if each.limit == limit or each.until <= now:
                    continue
                known = found.get(each.limit)
                if known is None or known.generation < each.generation:
                    found[each.limit] = each
        newest = sorted(found.values(), key=lambda each: -each.generation)
        return tuple(newest[:MOST_ANCESTORS])


def sets_of(rule: Rule) -> dict[str, tuple[RuleLimit, ...]]:
    return {where: limits for where, limits in limits_of(rule) if limits}


def _is_same(old: Sets, new: Sets) -> bool:
    return old.keys() == new.keys() and all(
        len(limits) == len(old[where])
        and all(one.limit == other.limit for one, other in zip(limits, old[where], strict=True))
        for where, limits in new.items()
    )


def _relatives(rule_id: str, old: Sets, new: Sets) -> Iterator[tuple[Seat, list[Seat]]]:
    """For each limit of a rule that has any, those that it takes over from; the closest first."""
    gone = [where for where in old if where not in new]
    for where, limits in new.items():
        sources = [where, *gone] if where in old else [*old]
        found: dict[int, list[Seat]] = {}
        for source in sources:
            for at, old_at in _matched(old[source], limits):
                found.setdefault(at, []).append((rule_id, source, old_at))
        for at, seats in found.items():
            yield (rule_id, where, at), seats


def _matched(old: Sequence[RuleLimit], new: Sequence[RuleLimit]) -> Iterator[tuple[int, int]]:
    """Pairs of positions in the new and in the old limits that belong together."""
    free, open_ = dict(enumerate(old)), dict(enumerate(new))
    for alike in (_same_limit, _same_name, _same_period, _any):
        for at, limit in [*open_.items()]:
            old_at = next((where for where, other in free.items() if alike(limit, other)), None)
            if old_at is not None:
                del free[old_at], open_[at]
                yield at, old_at


def _same_limit(one: RuleLimit, other: RuleLimit) -> bool:
    return one.limit == other.limit


def _same_name(one: RuleLimit, other: RuleLimit) -> bool:
    return one.name == other.name


def _same_period(one: RuleLimit, other: RuleLimit) -> bool:
    return one.limit.period_ns == other.limit.period_ns


def _any(one: RuleLimit, other: RuleLimit) -> bool:
    return True


def memory_of(limit: Limit) -> int:
    """How long what was used of a limit can matter, in nanoseconds."""
    units = limit.burst + limit.debt + (limit.soft.overrun if limit.soft is not None else 0)
    # As far as a bucket can be overdrawn.
    refill = 2 * (COLD if limit.warm_up_ns else 1) * units * limit.interval_ns
    return max(2 * limit.period_ns, refill) + limit.lockout_ns
