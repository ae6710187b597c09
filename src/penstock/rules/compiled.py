"""Rules made ready for one store: matchers, and the counters of every limit.

It is made whole and then swapped in, so a request sees the old rules or the new ones. A
limit that was changed inherits: the first request of a key under the new limit finds
as much of it used as was used of the old one, in proportion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from penstock.durations import SECOND
from penstock.errors import UnsupportedLimit
from penstock.limit import Limit
from penstock.rules.match import Match, Matcher
from penstock.rules.model import Domain, Period, Rule, RuleLimit, RuleSet, Step
from penstock.rules.verdict import Descriptor
from penstock.stores.base import Counters, Store

Item = tuple[Counters, str, int]
# A descriptor's pairs, its rule if one matched, and the limits that were asked.
Told = tuple[tuple[tuple[str, str], ...], Rule | None, Sequence["Counted"]]

# Keys that a changed limit remembers to have asked about: beyond, it asks again.
MOST_CARRIED = 100_000


class Heritage:
    """What a changed limit has from the one before, until that would have run out."""

    __slots__ = ("_carried", "counters", "until")

    def __init__(self, counters: Counters, until: int) -> None:
        self.counters = counters
        self.until = until
        self._carried: set[str] = set()

    def is_due(self, key: str) -> bool:
        """Whether this key has not been asked about; from now on it has."""
        if key in self._carried:
            return False
        if len(self._carried) >= MOST_CARRIED:
            self._carried.clear()
        self._carried.add(key)
        return True


class Counted:
    """One limit of a rule, with its counters."""

    __slots__ = ("counters", "envoy", "heritage", "limit", "name", "rule")

    def __init__(self, rule: Rule, each: RuleLimit, counters: Counters) -> None:
        self.rule = rule
        self.limit = each.limit
        self.name = each.name
        self.envoy = each.envoy
        self.counters = counters
        self.heritage: Heritage | None = None


class Compiled:
    """A `RuleSet` over a store."""

    def __init__(
        self, rules: RuleSet, store: Store, now: int = 0, before: Compiled | None = None
    ) -> None:
        self.rules = rules
        self.matchers: dict[str, Matcher] = {
            name: Matcher(domain) for name, domain in rules.domains.items()
        }
        self._counted: dict[int, tuple[Counted, ...]] = {}
        self._by_place: dict[tuple[str, str], Counted] = {}
        for rule in all_rules(rules):
            for where, limits in limits_of(rule):
                self._counted[id(limits)] = tuple(
                    self._count(rule, where, at, each, store) for at, each in enumerate(limits)
                )
        if before is not None:
            self._inherit(before, now)
        self.lanes = self._lanes()

    def _count(self, rule: Rule, where: str, at: int, each: RuleLimit, store: Store) -> Counted:
        try:
            counters = store.counters(each.limit)
        except UnsupportedLimit as error:
            raise UnsupportedLimit(f"rule {rule.id}: {error}") from None
        made = Counted(rule, each, counters)
        # By its own name if it has one; else by where it stands in its rule.
        named = each.name != f"{rule.id} {each.limit}"
        self._by_place[rule.id, each.name if named else f"{where} {at}"] = made
        return made

    def _inherit(self, before: Compiled, now: int) -> None:
        for place, counted in self._by_place.items():
            old = before._by_place.get(place)
            if old is None:
                continue
            if old.limit.counted_as == counted.limit.counted_as:
                counted.heritage = old.heritage  # of a change before this one
            else:
                counted.heritage = Heritage(old.counters, now + memory_of(old.limit))

    def _lanes(self) -> dict[str, Lane]:
        """By domain, the way for requests to which nothing special applies."""
        lanes = {}
        for name, domain in self.rules.domains.items():
            rules = list(rules_of(domain))
            if domain.allow or domain.deny or any(rule.replaces for rule in rules):
                continue
            plain = {}
            for rule in rules:
                found = self._counted[id(rule.limits)]
                if is_plain(rule) and not any(counted.heritage for counted in found):
                    plain[id(rule)] = found
            lanes[name] = Lane(self.matchers[name], plain)
        return lanes

    def counted(
        self, match: Match, pairs: Sequence[tuple[str, str]], now: int
    ) -> tuple[Counted, ...]:
        """The limits that apply to a match at this moment."""
        rule = match.rule
        if rule.plans is not None:
            plans = rule.plans
            tier = next((value for key, value in pairs if key == plans.by), None)
            if tier is None or tier not in plans.tiers:
                tier = plans.default
            if tier is not None:
                return self._counted[id(plans.tiers[tier])]
            return ()
        if rule.split is not None and is_in_split(match.key, rule.split.salt, rule.split.percent):
            return self._counted[id(rule.split.limits)]
        for period in rule.schedule:
            if holds(period, now):
                return self._counted[id(period.limits)]
        return self._counted[id(rule.limits)]


class Lane:
    """The short way: each descriptor to its rule's limits, nothing to be chosen or switched."""

    __slots__ = ("_match", "_plain")

    def __init__(self, matcher: Matcher, plain: dict[int, tuple[Counted, ...]]) -> None:
        self._match = matcher.match
        self._plain = plain

    def take(self, descriptors: Sequence[Any]) -> tuple[list[Item], list[Told]] | None:
        """What to ask of the store, and for each descriptor what it was asked for.

        None if something is special about the request after all: then `Check` sees to it.
        """
        items: list[Item] = []
        told: list[Told] = []
        for descriptor in descriptors:
            if type(descriptor) is Descriptor:
                if descriptor.limit is not None or descriptor.hits is not None:
                    return None
                pairs = descriptor.pairs
            elif type(descriptor) is dict and descriptor:
                pairs = tuple(descriptor.items())
                for key, value in pairs:
                    if type(key) is not str or type(value) is not str or not key:
                        return None
            else:
                return None
            match = self._match(pairs)
            if match is None:
                told.append((pairs, None, ()))
                continue
            rule = match.rule
            counted = self._plain.get(id(rule))
            if counted is None or match.denied or match.allowed:
                return None
            key, cost = match.key, rule.cost
            for one in counted:
                items.append((one.counters, key, cost))
            told.append((pairs, rule, counted))
        if len(items) > 1 and len({(id(counters), key) for counters, key, _ in items}) < len(items):
            return None  # one counter twice
        return items, told


def is_plain(rule: Rule) -> bool:
    """Whether a rule always means the same limits, which may refuse."""
    special = rule.plans or rule.split or rule.schedule
    switched = rule.shadow or rule.quota or rule.closed or rule.unlimited
    return bool(rule.limits) and not special and not switched


def all_rules(rules: RuleSet) -> Iterator[Rule]:
    for domain in rules.domains.values():
        yield from rules_of(domain)


def rules_of(domain: Domain) -> Iterator[Rule]:
    steps: list[Step] = list(domain.steps)
    while steps:
        step = steps.pop()
        steps += step.children
        if step.rule is not None:
            yield step.rule


def rules_about(domain: Domain, key: str) -> Iterator[Rule]:
    """Those that a descriptor with this key may match."""
    steps = [(step, step.key == key) for step in domain.steps]
    while steps:
        step, about = steps.pop()
        steps += [(child, about or child.key == key) for child in step.children]
        if about and step.rule is not None:
            yield step.rule


def limits_of(rule: Rule) -> Iterator[tuple[str, tuple[RuleLimit, ...]]]:
    """Every set of limits that a rule may choose from, and what it is called."""
    yield "limits", rule.limits
    if rule.plans is not None:
        for tier, limits in rule.plans.tiers.items():
            yield f"plans {tier}", limits
    if rule.split is not None:
        yield "split", rule.split.limits
    for at, period in enumerate(rule.schedule):
        yield f"schedule {at}", period.limits


def memory_of(limit: Limit) -> int:
    """How long what was used of a limit can matter, in nanoseconds."""
    refill = (limit.burst + limit.debt) * limit.interval_ns
    return max(2 * limit.period_ns, refill) + limit.lockout_ns


def is_in_split(key: str, salt: str, percent: float) -> bool:
    """Whether a key is in the stable part that gets other limits."""
    digest = hashlib.blake2b(
        key.encode("utf-8", "surrogatepass"),
        digest_size=8,
        salt=hashlib.blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8).digest(),
    ).digest()
    return int.from_bytes(digest, "big") < percent / 100 * 2**64


def holds(period: Period, now: int) -> bool:
    """Whether the moment ``now`` (nanoseconds since 1970) lies in the period."""
    local = datetime.fromtimestamp(now // SECOND, UTC).astimezone(ZoneInfo(period.zone))
    clock, day = local.time(), local.weekday()
    if period.start < period.end:
        return day in period.days and period.start <= clock < period.end
    if clock >= period.start:
        return day in period.days
    # Past midnight: it began yesterday.
    return clock < period.end and (local - timedelta(days=1)).weekday() in period.days


def replaced_names(matches: Iterable[Match | None]) -> frozenset[str]:
    """The names that some matched rule of the request replaces."""
    names = [match.rule.replaces for match in matches if match is not None and match.rule.replaces]
    return frozenset().union(*names) if names else frozenset()
