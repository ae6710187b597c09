"""Rules made ready for one store: matchers, and the counters of every limit.

It is made whole and then swapped in, so a request sees the old rules or the new ones. A
limit that was changed inherits what was used of the ones before it: see `heritage.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from penstock.durations import SECOND
from penstock.errors import UnsupportedLimit
from penstock.limit import Limit
from penstock.rules.deciding.heritage import Heritage, SeenKeys
from penstock.rules.deciding.lineage import Lineage, Seat
from penstock.rules.matching.match import Match, Matcher
from penstock.rules.model import Period, Rule, RuleLimit, RuleSet
from penstock.rules.walk import all_rules, limits_of, rules_of
from penstock.stores.base import Counters, Store


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
        self.asked = SeenKeys()
        self.matchers: dict[str, Matcher] = {
            name: Matcher(domain) for name, domain in rules.domains.items()
        }
        self._counted: dict[int, tuple[Counted, ...]] = {}
        self._seats: dict[Seat, Counted] = {}  # those that inherit
        self._end = 0  # when none of them does any more
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
        # Domains in which no rule replaces the limits of another.
        self.independent_domains = [
            name
            for name, domain in rules.domains.items()
            if not any(rule.replaces for rule in rules_of(domain))
        ]

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
        limits = self.own_limits(rule)
        if self._seats:
            self._let_go(limits, now)
        return limits

    def own_limits(self, rule: Rule) -> tuple[Counted, ...]:
        """Those of the rule itself, without plans, split or schedule."""
        return self._counted[id(rule.limits)]

    def _let_go(self, limits: tuple[Counted, ...], now: int) -> None:
        """Of what has run out; a rule that inherits nothing any more may take the short way."""
        heritages = [counted.heritage for counted in limits if counted.heritage is not None]
        if not heritages or any(heritage.until > now for heritage in heritages):
            return
        for counted in limits:
            counted.heritage = None
        if now >= self._end:
            self._seats.clear()
            self.asked.clear()

    def uses(self, limit: Limit) -> bool:
        """Whether a rule counts by it, or inherits from it."""
        return limit in self.limits


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
