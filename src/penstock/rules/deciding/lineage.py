"""Lineage: which limits a limit has replaced, over any number of reloads.

It is computed from the rules alone, so that a supervisor can hand it to a worker that starts
later.

A limit is looked for in the rule of the same id, in the same set (the rule's own limits, a
plan's tier, the split, a period of the schedule): the same limit first, then one of the same
name, then one of the same period, then by position. A set that is new in its rule takes over
from all sets that the rule had, and the keys of a set that is gone from the rule may be in any
of the others now.

What is kept is bounded: an ancestor only while its usage can matter, each limit once however
often it came back, and at most `MOST_ANCESTORS` for a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from penstock.limit_options import COLD
from penstock.limits import Limit
from penstock.rules.deciding.switches import Override
from penstock.rules.model import Rule, RuleLimit, RuleSet
from penstock.rules.walk import CONCURRENCY, all_rules, limits_of

# Ancestors of one limit: the newest are kept.
MOST_ANCESTORS = 16
# Keys that are remembered, over all limits that have changed: some 40 MB.
MOST_SEEN = 200_000

# A rule's id, the set of limits in it, and the position in the set.
Seat = tuple[str, str, int]
Sets = Mapping[str, tuple[RuleLimit, ...]]


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A limit that was in force in the place of another."""

    limit: Limit
    generation: int  # the last one in which it was in force
    until: int  # its usage no longer matters from then on


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
                inherited = self._ancestors(limit, relatives, old_sets, now)
                if inherited:
                    ancestors[seat] = inherited
                    parents[seat] = relatives[0]
        return Lineage(self.generation + 1, ancestors, parents)

    def _ancestors(
        self, limit: Limit, relatives: Sequence[Seat], sets: Sets, now: int
    ) -> tuple[Ancestor, ...]:
        by_limit: dict[Limit, Ancestor] = {}
        for seat in relatives:
            old = sets[seat[1]][seat[2]].limit
            parent = Ancestor(old, self.generation, now + memory_of(old))
            for ancestor in (parent, *self.ancestors.get(seat, ())):
                # What the limit itself has counted is still there.
                if ancestor.limit == limit or ancestor.until <= now:
                    continue
                other = by_limit.get(ancestor.limit)
                if other is None or other.generation < ancestor.generation:
                    by_limit[ancestor.limit] = ancestor
        newest = sorted(by_limit.values(), key=lambda ancestor: -ancestor.generation)
        return tuple(newest[:MOST_ANCESTORS])


def sets_of(rule: Rule) -> dict[str, tuple[RuleLimit, ...]]:
    return {where: limits for where, limits in limits_of(rule) if limits}


def _is_same(old: Sets, new: Sets) -> bool:
    return old.keys() == new.keys() and all(
        [limit.limit for limit in limits] == [limit.limit for limit in old[where]]
        for where, limits in new.items()
    )


def _relatives(rule_id: str, old: Sets, new: Sets) -> Iterator[tuple[Seat, list[Seat]]]:
    """The seats that each limit of a rule takes over from, the closest first."""
    # Slots are no usage: a concurrency takes over from a concurrency, and a rate from a rate.
    rates = [where for where in old if where != CONCURRENCY]
    gone = [where for where in rates if where not in new]
    for where, limits in new.items():
        if where == CONCURRENCY:
            sources = [where] if where in old else []
        else:
            sources = [where, *gone] if where in old else rates
        by_position: dict[int, list[Seat]] = {}
        for source in sources:
            for at, old_at in _matched(old[source], limits):
                by_position.setdefault(at, []).append((rule_id, source, old_at))
        for at, seats in by_position.items():
            yield (rule_id, where, at), seats


# How alike a new and an old limit are, the closest match first.
_LIKENESS: tuple[Callable[[RuleLimit, RuleLimit], bool], ...] = (
    lambda new, old: new.limit == old.limit,
    lambda new, old: new.name == old.name,
    lambda new, old: new.limit.period_ns == old.limit.period_ns,
    lambda new, old: True,
)


def _matched(old: Sequence[RuleLimit], new: Sequence[RuleLimit]) -> Iterator[tuple[int, int]]:
    """Pairs of positions in the new and in the old limits that belong together."""
    free, open_ = dict(enumerate(old)), dict(enumerate(new))
    for alike in _LIKENESS:
        for at, limit in [*open_.items()]:
            old_at = next((where for where, other in free.items() if alike(limit, other)), None)
            if old_at is not None:
                del free[old_at], open_[at]
                yield at, old_at


def memory_of(limit: Limit) -> int:
    """How long usage of a limit can matter, in nanoseconds."""
    units = limit.burst + limit.debt + (limit.soft.overrun if limit.soft is not None else 0)
    # As far as a bucket can be overdrawn.
    refill = 2 * (COLD if limit.warm_up_ns else 1) * units * limit.interval_ns
    if limit.initial is not None:
        refill += limit.burst * limit.interval_ns  # for so long a full bucket is remembered
    return max(2 * limit.period_ns, refill) + limit.lockout_ns


class SeenKeys:
    """In which generation of the rules each key was last used, in this process."""

    __slots__ = ("_generations", "_tokens")

    def __init__(self) -> None:
        self._generations: dict[tuple[int, str], int] = {}
        self._tokens = 0

    def token(self) -> int:
        """A number that stands for one limit, over all its reloads."""
        self._tokens += 1
        return self._tokens

    def get(self, token: int, key: str) -> int:
        return self._generations.get((token, key), -1)

    def put(self, token: int, key: str, generation: int) -> None:
        if len(self._generations) >= MOST_SEEN:
            self._generations.clear()
        self._generations[token, key] = generation

    def clear(self) -> None:
        self._generations.clear()

    def __len__(self) -> int:
        return len(self._generations)


class Heritage:
    """The ancestors of one limit, and which keys have taken over from them."""

    __slots__ = ("_generation", "_seen", "_under_way", "ancestors", "token", "until")

    def __init__(
        self, ancestors: Sequence[Ancestor], generation: int, seen: SeenKeys, token: int
    ) -> None:
        self.ancestors = ancestors
        self.until = max(ancestor.until for ancestor in ancestors)
        self.token = token
        self._generation = generation
        self._seen = seen
        self._under_way: dict[str, Future[None]] = {}

    def due(self, key: str, now: int) -> list[Ancestor]:
        """The ancestors whose usage by this key may not have been carried over yet."""
        last = self._seen.get(self.token, key)
        if last == self._generation:
            return []
        return [
            ancestor
            for ancestor in self.ancestors
            if ancestor.generation >= last and ancestor.until > now
        ]

    def claim(self, key: str, mine: Future[None]) -> Future[None]:
        """``mine`` if the caller is to carry over what the key used, else what to wait for."""
        return self._under_way.setdefault(key, mine)

    def settle(self, key: str, *, done: bool) -> None:
        """End the claim; unless it is ``done``, the next request tries again."""
        if done:
            self._seen.put(self.token, key, self._generation)
        self._under_way.pop(key, None)


# What a limit of a request inherits, and the override that applies to it.
Inherited = tuple[Heritage, Override | None]
