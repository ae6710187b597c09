"""Rules made ready for one store: matchers, and the counters of every limit.

It is made whole and then swapped in, so a request sees the old rules or the new ones. A
limit that was changed inherits what was used of the ones before it: see `heritage.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from penstock.durations import SECOND
from penstock.errors import UnsupportedLimit
from penstock.limit import Limit
from penstock.rules.heritage import Asked, Heritage
from penstock.rules.lineage import Lineage, Seat
from penstock.rules.match import Match, Matcher
from penstock.rules.model import Period, Rule, RuleLimit, RuleSet
from penstock.rules.verdict import Descriptor
from penstock.rules.walk import all_rules, limits_of, rules_of
from penstock.rules.work import Item
from penstock.stores.base import Counters, Store

# A descriptor's pairs, its rule if one matched, and the limits that were asked.
Told = tuple[tuple[tuple[str, str], ...], Rule | None, Sequence["Counted"]]


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
    """A `RuleSet` over a store.

    ``before`` are the rules that it replaces at ``now``; in a new process, ``lineage`` is what
    is known of those that were in force before.
    """

    def __init__(
        self,
        rules: RuleSet,
        store: Store,
        now: int = 0,
        before: Compiled | None = None,
        lineage: Lineage | None = None,
    ) -> None:
        self.rules = rules
        self.lineage = lineage or Lineage()
        self.asked = Asked()
        self.matchers: dict[str, Matcher] = {
            name: Matcher(domain) for name, domain in rules.domains.items()
        }
        self._counted: dict[int, tuple[Counted, ...]] = {}
        self._seats: dict[Seat, Counted] = {}  # those that inherit
        self._end = 0  # when none of them does any more
        self._slow: dict[int, str] = {}  # plain rules that inherit, and their domain
        self.limits: set[Limit] = set()  # that it counts by, or inherits from
        for rule in all_rules(rules):
            for _, limits in limits_of(rule):
                self._counted[id(limits)] = tuple(
                    [self._count(rule, each, store) for each in limits]
                )
        if before is not None:
            self.asked = before.asked
            self.lineage = before.lineage.after(before.rules, rules, now)
        self._inherit(before)
        self.lanes = self._lanes()

    def _count(self, rule: Rule, each: RuleLimit, store: Store) -> Counted:
        self.limits.add(each.limit)
        try:
            counters = store.counters(each.limit)
        except UnsupportedLimit as error:
            raise UnsupportedLimit(f"rule {rule.id}: {error}") from None
        return Counted(rule, each, counters)

    def _inherit(self, before: Compiled | None) -> None:
        lineage = self.lineage
        if not lineage.ancestors:
            self.asked.clear()
            return
        old = {} if before is None else before._seats
        changed = {seat[0] for seat in lineage.ancestors}
        for rule in all_rules(self.rules):
            if rule.id not in changed:
                continue
            for where, limits in limits_of(rule):
                for at, counted in enumerate(self._counted[id(limits)]):
                    seat = rule.id, where, at
                    ancestors = lineage.ancestors.get(seat)
                    if not ancestors:
                        continue
                    parent = old.get(lineage.parents[seat])
                    known = None if parent is None else parent.heritage
                    token = self.asked.token() if known is None else known.token
                    counted.heritage = Heritage(ancestors, lineage.generation, self.asked, token)
                    self._seats[seat] = counted
                    self.limits.update([each.limit for each in ancestors])
                    self._end = max(self._end, counted.heritage.until)

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
                if not is_plain(rule):
                    continue
                if any(counted.heritage for counted in found):
                    self._slow[id(rule)] = name
                else:
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
        found = self._counted[id(rule.limits)]
        if self._seats:
            self._let_go(rule, found, now)
        return found

    def _let_go(self, rule: Rule, found: tuple[Counted, ...], now: int) -> None:
        """Of what has run out; a rule that inherits nothing any more may go the short way."""
        heritages = [counted.heritage for counted in found if counted.heritage is not None]
        if not heritages or any(heritage.until > now for heritage in heritages):
            return
        for counted in found:
            counted.heritage = None
        if now >= self._end:
            self._seats.clear()
            self.asked.clear()
        lane = self.lanes.get(self._slow.get(id(rule), ""))
        if lane is not None:
            lane.add(rule, found)

    def uses(self, limit: Limit) -> bool:
        """Whether a rule counts by it, or inherits from it."""
        return limit in self.limits


class Lane:
    """The short way: each descriptor to its rule's limits, nothing to be chosen or switched."""

    __slots__ = ("_match", "_plain")

    def __init__(self, matcher: Matcher, plain: dict[int, tuple[Counted, ...]]) -> None:
        self._match = matcher.match
        self._plain = plain

    def add(self, rule: Rule, counted: tuple[Counted, ...]) -> None:
        """A rule that may go this way from now on."""
        self._plain[id(rule)] = counted

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
