"""Plan: what a request asks of the store, if that is known before anything is decided.

Most requests are plain: their rules always mean the same limits, and no list, switch, debit or
changed limit affects them. They are decided by a plan::

    descriptors ── Planner.plan ── Plan ── hit ── decisions ── verdict

All others are decided by a `Check`. Both give the same verdict.

A plan is valid for one set of rules and one state of the switches. Its `Planner` stands for both:
the gate gets a new one as soon as either changes, and a plan may be used as long as its planner
is the gate's. A switch affects only the requests that it is about: all others keep their plans.

This module is compiled where possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.rules.deciding.store_calls import Item, Work
from penstock.rules.deciding.verdict import LIMIT, UNMATCHED, Descriptor, Pair, Status, Verdict
from penstock.rules.model import ENFORCE, Rule
from penstock.stores.base import pick

if TYPE_CHECKING:
    from penstock.rules.deciding.compiled import Compiled, Counted
    from penstock.rules.deciding.switches import State
    from penstock.rules.matching.match import Match
    from penstock.stores.base import Store


class PlainRule:
    """A rule that always means the same limits, and what all its requests have in common."""

    def __init__(self, rule: Rule, counted: tuple[Counted, ...]) -> None:
        self.rule = rule
        self.counted = counted
        self.cost = rule.cost
        self.counters = [limit.counters for limit in counted]
        self.envoy = any(limit.envoy for limit in counted)


class Plan:
    """What one request asks of the store.

    ``rules`` has the rule of each descriptor, or None if none matched; ``items`` are the limits
    of all of them, in that order. ``single`` means one descriptor with one limit. ``attachment``
    is for the wire that keeps the plan; ``flight`` and ``flight_epoch`` for a `FlightRecorder`.
    """

    def __init__(self, planner: Planner, domain: str, descriptors: list[tuple[Pair, ...]]) -> None:
        self.planner = planner
        self.domain = domain
        self.descriptors = descriptors
        self.rules: list[PlainRule | None] = []
        self.items: list[Item] = []
        self.single = False
        self.attachment: Any = None
        self.hits = 1
        self.flight = 0
        self.flight_epoch = 0

    def hit(self) -> list[Decision]:
        """Decide, blocking: one decision for each item."""
        items = self.items
        if not items:
            return []
        try:
            if len(items) == 1:
                counters, key, cost = items[0]
                return [counters.hit(key, cost)]
            return list(self.planner.store.hit_each(items))
        except StoreError as error:
            error.policies = Work([items]).policies()
            raise

    async def hit_async(self) -> list[Decision]:
        """The same for coroutines."""
        items = self.items
        if not items:
            return []
        try:
            if len(items) == 1:
                counters, key, cost = items[0]
                return [await counters.submit("hit", key, cost)]
            return list(await self.planner.store.hit_each_async(items))
        except StoreError as error:
            error.policies = Work([items]).policies()
            raise

    def verdict(self, decisions: list[Decision]) -> Verdict:
        """The verdict that follows. Its statuses are built when they are needed."""
        best: Decision | None = None
        speaker: PlainRule | None = None
        at = 0
        for rule in self.rules:
            if rule is None:
                continue
            for _ in range(len(rule.counters)):
                chosen = pick(best, decisions[at])
                if chosen is not best:
                    best, speaker = chosen, rule
                at += 1
        if best is None or speaker is None:
            return Verdict(True, None, None, None, self, decisions)
        return Verdict(best._allowed, best, speaker.rule, None, self, decisions)

    def statuses(self, decisions: Sequence[Decision]) -> tuple[Status, ...]:
        """What became of each descriptor."""
        statuses = []
        at = 0
        for pairs, rule in zip(self.descriptors, self.rules, strict=True):
            if rule is None:
                statuses.append(Status(pairs, True, UNMATCHED))
                continue
            best: Decision | None = None
            name: str | None = None
            rule_decisions = decisions[at : at + len(rule.counted)]
            for counted, decision in zip(rule.counted, rule_decisions, strict=True):
                chosen = pick(best, decision)
                if chosen is not best:
                    best, name = chosen, counted.name
            statuses.append(Status(pairs, all(rule_decisions), LIMIT, rule.rule, best, name))
            at += len(rule.counted)
        return tuple(statuses)


class Planner:
    """Makes plans, for one set of rules and one state of the switches."""

    def __init__(self, compiled: Compiled, state: State, store: Store) -> None:
        self.compiled = compiled
        self.store = store
        self.modes = state.modes
        self.overrides = state.overrides_by_pair
        self.plain_rules: dict[int, PlainRule | None] = {}
        # The matching function of each domain, the keys that lists are about, and the two names
        # of a key, if it has two.
        self.domains: dict[str, tuple[Any, frozenset[str], tuple[str, str] | None]] = {}
        listed = {*state.allow_lists, *state.deny_lists}
        if state.mode == ENFORCE:
            for name in compiled.independent_domains:
                matcher = compiled.matchers[name]
                keys = frozenset(listed.union(matcher.allow, matcher.deny))
                self.domains[name] = matcher.match, keys, matcher.names
        several = len(compiled.matchers) > 1
        self.only_domain = None if several else next(iter(compiled.matchers), None)

    def plan(self, domain: str | None, descriptors: Sequence[Any]) -> Plan | None:
        """The plan for the arguments of `Gate.check`; None if they need a `Check`."""
        if domain is None:
            domain = self.only_domain
            if domain is None:
                return None
        plain: list[tuple[Pair, ...]] = []
        for descriptor in descriptors:
            if type(descriptor) is Descriptor:
                if descriptor.limit is not None or descriptor.hits is not None:
                    return None
                if descriptor.closed_period_ns:
                    return None
                plain.append(descriptor.pairs)
            elif type(descriptor) is dict and descriptor:
                pairs = tuple(descriptor.items())
                for key, value in pairs:
                    if type(key) is not str or type(value) is not str or not key:
                        return None
                plain.append(pairs)
            else:
                return None
        return self.make(domain, plain, 1)

    def make(self, domain: str, descriptors: list[tuple[Pair, ...]], hits: int) -> Plan | None:
        """The plan for descriptors that have nothing but pairs."""
        known = self.domains.get(domain)
        if known is None:
            return None
        match_of, listed, names = known
        if names is not None and len(descriptors) > 1 and self.has_both(descriptors, names):
            return None  # each name means itself
        plan = Plan(self, domain, descriptors)
        plan.hits = hits
        items = plan.items
        for pairs in descriptors:
            if (listed or self.overrides) and self.is_switched(pairs, listed):
                return None
            match = match_of(pairs)
            if match is None:
                plan.rules.append(None)
                continue
            if match.denied or match.allowed:
                return None
            rule = self.plain_rule(match)
            if rule is None or (hits > 1 and rule.envoy):
                return None  # in the latter case, debits may have to be booked
            plan.rules.append(rule)
            cost = rule.cost if hits <= 1 else rule.cost * hits
            for counters in rule.counters:
                items.append((counters, match.key, cost))
        if len(items) == 1:
            plan.single = len(descriptors) == 1
        elif items and len({(id(counters), key) for counters, key, _ in items}) < len(items):
            return None  # one counter twice
        return plan

    def is_switched(self, pairs: tuple[Pair, ...], listed: frozenset[str]) -> bool:
        """Whether an override or a list may affect a descriptor."""
        return any(pair[0] in listed or pair in self.overrides for pair in pairs)

    def has_both(self, descriptors: list[tuple[Pair, ...]], names: tuple[str, str]) -> bool:
        """`aliases.gives_both`, compiled."""
        own = other = False
        for pairs in descriptors:
            for pair in pairs:
                key = pair[0]
                if key == names[0]:
                    own = True
                elif key == names[1]:
                    other = True
        return own and other

    def plain_rule(self, match: Match) -> PlainRule | None:
        rule = match.rule
        identity = id(rule)  # the rule lives as long as the compiled rules
        if identity in self.plain_rules:
            return self.plain_rules[identity]
        plain = None
        if is_plain(rule) and rule.id not in self.modes:
            counted = self.compiled.own_limits(rule)
            if any(limit.heritage is not None for limit in counted):
                return None  # for now: heritage expires
            if not any(limit.name in self.modes for limit in counted):
                plain = PlainRule(rule, counted)
        self.plain_rules[identity] = plain
        return plain


class PlanCache:
    """Plans by the bytes of their requests, kept from the second time that these come.

    Otherwise requests that come once would evict those that come often. At most ``most`` plans
    are kept, for messages of up to ``longest`` bytes. ``places``, a power of two, is how many
    hashes of messages that came once are remembered.
    """

    def __init__(self, most: int, longest: int, places: int) -> None:
        self.most = most
        self.longest = longest
        self.mask = places - 1
        self.seen: list[int | None] = [None] * places
        self.plans: dict[bytes, Plan] = {}
        self.planner: Planner | None = None

    def __len__(self) -> int:
        return len(self.plans)

    def get(self, message: bytes, planner: Planner) -> Plan | None:
        """The plan of a message. Plans of another planner are dropped."""
        if planner is not self.planner:
            self.planner = planner
            self.plans.clear()
        return self.plans.get(message)

    def wants(self, message: bytes) -> bool:
        """Whether the message came before, so that its plan is worth keeping."""
        if len(message) > self.longest:
            return False
        mark = hash(message)
        place = mark & self.mask
        if self.seen[place] == mark:
            return True
        self.seen[place] = mark
        return False

    def put(self, message: bytes, plan: Plan) -> None:
        if len(self.plans) >= self.most:
            self.plans.clear()
        if plan.planner is self.planner:
            self.plans[message] = plan


def is_plain(rule: Rule) -> bool:
    """Whether a rule always means the same limits, and they may refuse."""
    special = rule.plans or rule.split or rule.schedule or rule.concurrency or rule.meter
    switched = rule.shadow or rule.quota or rule.closed or rule.unlimited
    return bool(rule.limits) and not special and not switched
