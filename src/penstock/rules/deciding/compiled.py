"""Rules compiled for one store: matchers, and the counters of every limit.

They are built completely and then swapped in, so a request sees the old rules or the new ones.
A limit that was changed inherits the usage of the ones before it: see `heritage.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from penstock.durations import SECOND
from penstock.errors import UnsupportedLimit
from penstock.limits import Limit
from penstock.rules.deciding.lineage import Ancestor, Heritage, Lineage, Seat, SeenKeys
from penstock.rules.matching.match import Match, Matcher
from penstock.rules.model import MeterUse, Period, Rule, RuleLimit, RuleSet
from penstock.rules.walk import all_rules, limits_of, rules_of
from penstock.stores.base import Counters, Store


class Counted:
    """One limit of a rule, with its counters."""

    __slots__ = ("counters", "envoy", "heritage", "limit", "name", "rule")

    def __init__(self, rule: Rule, rule_limit: RuleLimit, counters: Counters) -> None:
        self.rule = rule
        self.limit = rule_limit.limit
        self.name = rule_limit.name
        self.envoy = rule_limit.envoy
        self.counters = counters
        self.heritage: Heritage | None = None


class Compiled:
    """A `RuleSet` over a store.

    ``before`` are the rules that it replaces at ``now``. In a new process, ``lineage`` is what
    is known about the rules that were in force before.
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
        self.seen_keys = SeenKeys()
        self.matchers: dict[str, Matcher] = {
            name: Matcher(domain) for name, domain in rules.domains.items()
        }
        self._counted: dict[int, tuple[Counted, ...]] = {}
        self._seats: dict[Seat, Counted] = {}  # those that inherit
        self._end = 0  # when the last of them stops
        self.limits: set[Limit] = set()  # that it counts by, or inherits from
        for rule in all_rules(rules):
            for _, limits in limits_of(rule):
                self._counted[id(limits)] = tuple(
                    [self._count(rule, limit, store) for limit in limits]
                )
            if rule.meter is not None:
                self._check_meter(rule, store)
        self._store = store
        self._plans = frozenset(rules.plans)
        if before is not None:
            self.seen_keys = before.seen_keys
            self.lineage = before.lineage.after(before.rules, rules, now)
        self._inherit(before)
        # Rules that ask for leases of a store that has none.
        self.not_leased = (
            [] if store.can_lease else [rule.id for rule in all_rules(rules) if rule.lease]
        )
        # Domains in which no rule replaces the limits of another.
        self.independent_domains = [
            name
            for name, domain in rules.domains.items()
            if not any(rule.replaces for rule in rules_of(domain))
        ]

    def _count(self, rule: Rule, rule_limit: RuleLimit, store: Store) -> Counted:
        self.limits.add(rule_limit.limit)
        try:
            counters = store.counters_with(rule_limit.limit, rule.lease)
        except UnsupportedLimit as error:
            what = "its concurrency: " if rule_limit in rule.concurrency else ""
            raise UnsupportedLimit(f"rule {rule.id}: {what}{error}") from None
        return Counted(rule, rule_limit, counters)

    def _check_meter(self, rule: Rule, store: Store) -> None:
        assert rule.meter is not None
        try:
            store.meter_counters(rule.meter.meter, None, rule.meter.on_failure)
        except UnsupportedLimit as error:
            raise UnsupportedLimit(f"rule {rule.id}: {error}") from None

    def meter(self, use: MeterUse, pairs: Iterable[tuple[str, str]]) -> Counters:
        """Where a quota is counted. ``pairs`` are those of the request: one may name the plan."""
        plan = None
        if use.plan_by is not None:
            plan = next((value for key, value in pairs if key == use.plan_by), None)
            if plan not in self._plans:
                plan = None
        return self._store.meter_counters(use.meter, plan, use.on_failure)

    def _inherit(self, before: Compiled | None) -> None:
        lineage = self.lineage
        if not lineage.ancestors:
            self.seen_keys.clear()
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
                    old_heritage = None if parent is None else parent.heritage
                    token = self.seen_keys.token() if old_heritage is None else old_heritage.token
                    counted.heritage = Heritage(
                        ancestors, lineage.generation, self.seen_keys, token
                    )
                    self._seats[seat] = counted
                    self.limits.update([ancestor.limit for ancestor in ancestors])
                    self._end = max(self._end, counted.heritage.until)

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
            return () if tier is None else self._counted[id(plans.tiers[tier])]
        if rule.split is not None and is_in_split(match.key, rule.split.salt, rule.split.percent):
            return self._counted[id(rule.split.limits)]
        for period in rule.schedule:
            if holds(period, now):
                return self._counted[id(period.limits)]
        limits = self.own_limits(rule)
        if self._seats:
            self._drop_expired(limits, now)
        return limits

    def own_limits(self, rule: Rule) -> tuple[Counted, ...]:
        """The limits of the rule itself, without plans, split or schedule."""
        return self._counted[id(rule.limits)]

    def slots(self, rule: Rule, now: int) -> tuple[Counted, list[Ancestor]] | None:
        """The concurrency of a rule, and the limits that it has replaced; None if it has none."""
        if not rule.concurrency:
            return None
        (counted,) = self._counted[id(rule.concurrency)]
        if counted.heritage is not None:
            self._drop_expired((counted,), now)
        ancestors = () if counted.heritage is None else counted.heritage.ancestors
        return counted, [ancestor for ancestor in ancestors if ancestor.until > now]

    def _drop_expired(self, limits: tuple[Counted, ...], now: int) -> None:
        """Drop heritage that has expired, so that requests can be decided by a plan again."""
        heritages = [counted.heritage for counted in limits if counted.heritage is not None]
        if not heritages or any(heritage.until > now for heritage in heritages):
            return
        for counted in limits:
            counted.heritage = None
        if now >= self._end:
            self._seats.clear()
            self.seen_keys.clear()

    def uses(self, limit: Limit) -> bool:
        """Whether a rule counts by it, or inherits from it."""
        return limit in self.limits


class Prepared(NamedTuple):
    """Rules that are compiled but not in force yet, and the rules in force at that time."""

    before: Compiled
    compiled: Compiled


def is_in_split(key: str, salt: str, percent: float) -> bool:
    """Whether a key is in the stable share that gets other limits."""
    digest = hashlib.blake2b(
        key.encode("utf-8", "surrogatepass"),
        digest_size=8,
        salt=hashlib.blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8).digest(),
    ).digest()
    return int.from_bytes(digest, "big") < percent / 100 * 2**64


def holds(period: Period, now: int) -> bool:
    """Whether ``now`` (nanoseconds since 1970) is in the period."""
    local = datetime.fromtimestamp(now // SECOND, UTC).astimezone(ZoneInfo(period.zone))
    clock, day = local.time(), local.weekday()
    if period.start < period.end:
        return day in period.days and period.start <= clock < period.end
    if clock >= period.start:
        return day in period.days
    # After midnight: the period began yesterday.
    return clock < period.end and (local - timedelta(days=1)).weekday() in period.days


def replaced_names(matches: Iterable[Match | None]) -> frozenset[str]:
    """The names of limits that a matched rule of the request replaces."""
    names = [match.rule.replaces for match in matches if match is not None and match.rule.replaces]
    return frozenset().union(*names) if names else frozenset()
