"""One request against the rules: which limits apply to it.

`Check.flow` is a generator, written once for threads and coroutines: it yields `Work` for the
store and is sent the decisions. See `decide.py` for how they are made, and `results.py` for the
verdict that follows.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import chain

from penstock.errors import InvalidKey, LimitError, UnsupportedLimit
from penstock.keys import descriptor_key
from penstock.rules import model
from penstock.rules.deciding import verdict
from penstock.rules.deciding.compiled import Compiled, Counted, replaced_names
from penstock.rules.deciding.decide import decide
from penstock.rules.deciding.heritage import carry
from penstock.rules.deciding.lineage import Inherited
from penstock.rules.deciding.pool import LimitPool
from penstock.rules.deciding.results import DescriptorResult, listed_results, verdict_on
from penstock.rules.deciding.slots import look_at_former
from penstock.rules.deciding.store_calls import Done, Work
from penstock.rules.deciding.switches import Override, State
from penstock.rules.deciding.verdict import Descriptor, Slot, Verdict
from penstock.rules.matching.match import Match
from penstock.rules.model import ENFORCE, SHADOW, Rule
from penstock.stores.base import MOST_COST, Counters, Store

# What applies to a descriptor: its rule, the outcome, whether it is in shadow, and its counters.
Treatment = tuple[Rule | None, str, bool, bool, list[Counters]]
Flow = Generator[Work, Done, Verdict]


class Check:
    """Decides on requests by one set of rules and one state of the switches."""

    def __init__(
        self,
        compiled: Compiled,
        domain: str,
        store: Store,
        pool: LimitPool,
        state: State | None,
        now: int,
    ) -> None:
        self._compiled = compiled
        self._domain = domain
        self._matcher = compiled.matchers.get(domain)
        self._store = store
        self._pool = pool  # of limits that are not in the rules
        self._state = state  # None if nothing is switched
        self._mode = ENFORCE if state is None else state.mode
        self._now = now
        self._descriptors: Sequence[Descriptor] = ()  # of the request

    def flow(self, descriptors: Sequence[Descriptor], hits: int) -> Flow:
        results = self._listed(descriptors)
        kept: list[DescriptorResult] = []
        slots: list[Slot] = []
        if results is None:
            results = self._results(descriptors, hits)
        elif not results[0].allowed:
            # A deny list refuses the request. Rules in shadow mode still count it, and debits
            # are still booked.
            kept = [result for result in self._results(descriptors, hits) if result.is_kept()]
        if self._mode != model.OFF and self._matcher is not None:
            yield from carry([*results, *kept], self._store, self._now)
            yield from look_at_former([*results, *kept])
            slots = yield from decide([*results, *kept], self._now)
        verdict = verdict_on(results, self._mode == ENFORCE)
        verdict.slots = slots
        return verdict

    def denial(self, descriptors: Sequence[Descriptor]) -> Verdict | None:
        """The refusal by a deny list, if the request is on one. Counts nothing."""
        results = self._listed(descriptors) or self._results(descriptors, 1)
        if self._mode == model.OFF or not any(result.is_denied() for result in results):
            return None
        return verdict_on(results, self._mode == ENFORCE)

    def treatment(self, descriptors: Sequence[Descriptor]) -> list[Treatment]:
        """What applies to each descriptor. Counts nothing."""
        return [
            (
                result.rule,
                result.reason,
                result.allowed,
                result.shadow,
                [counters for counters, _ in result.counted],
            )
            for result in self._listed(descriptors) or self._results(descriptors, 1)
        ]

    # Which limits ------------------------------------------------------------------------

    def _results(self, descriptors: Sequence[Descriptor], hits: int) -> list[DescriptorResult]:
        if self._matcher is None:
            return [DescriptorResult(descriptor.pairs) for descriptor in descriptors]
        matches = self._matcher.match_each([descriptor.pairs for descriptor in descriptors])
        replaced = replaced_names(matches)
        self._descriptors = descriptors
        return [
            self._result(descriptor, match, hits, replaced)
            for descriptor, match in zip(descriptors, matches, strict=True)
        ]

    def _result(
        self, descriptor: Descriptor, match: Match | None, hits: int, replaced: frozenset[str]
    ) -> DescriptorResult:
        result = DescriptorResult(descriptor.pairs, None if match is None else match.rule)
        result.hits = max(1, hits) if hits >= 0 else hits
        if descriptor.hits is not None:
            result.hits = descriptor.hits
        result.debit = result.hits > 1 or (result.hits == 1 and descriptor.hits is not None)
        result.cost = min(abs(result.hits), MOST_COST)
        # A limit that the request brings is not part of a rule: shadow and quota mode do not apply.
        brings_limit = descriptor.limit is not None or descriptor.closed_period_ns > 0
        if match is None:
            if brings_limit:
                self._count_brought(
                    result, descriptor, descriptor_key(self._domain, descriptor.pairs)
                )
            return result
        rule = match.rule
        mode = self._mode_of(rule.id)
        result.shadow = (rule.shadow and not brings_limit) or mode == SHADOW
        result.quota = rule.quota and not brings_limit
        result.cost = min(result.cost * rule.cost, MOST_COST)
        result.key = match.key
        if mode == model.OFF:
            result.reason = verdict.OFF
        elif match.denied:
            result.refuse(verdict.DENIED)
        elif match.allowed:
            result.reason = verdict.ALLOWED
        elif brings_limit:
            self._count_brought(result, descriptor, match.key)
        elif rule.unlimited and not rule.concurrency:
            result.reason = verdict.UNLIMITED
        elif not rule.closed:
            self._count(result, self._compiled.counted(match, result.pairs, self._now), replaced)
        elif rule.name in replaced:
            result.reason = verdict.REPLACED
        else:
            result.refuse(verdict.CLOSED)
        if result.reason == verdict.REPLACED:
            result.quota = False  # another limit replaces it
        return result

    def _count_brought(self, result: DescriptorResult, descriptor: Descriptor, key: str) -> None:
        """Count by the limit that the request brought."""
        result.key = key
        if descriptor.limit is None:
            result.refuse(verdict.CLOSED)
        else:
            lease = None if result.rule is None else result.rule.lease
            for limit in (descriptor.limit, *descriptor.also):
                counters = self._pool.brought(limit, self._now, lease)
                result.count(counters, str(limit), descriptor.envoy)

    def _count(
        self, result: DescriptorResult, limits: Sequence[Counted], replaced: frozenset[str]
    ) -> None:
        override = None
        if self._state is not None and self._state.overrides:
            overrides = self._state.overrides_by_pair
            override = next((overrides[pair] for pair in result.pairs if pair in overrides), None)
        reason = verdict.UNLIMITED
        for counted in limits:
            if counted.name in replaced:
                reason = verdict.REPLACED
                continue
            mode = self._mode_of(counted.name)
            if mode == model.OFF:
                reason = verdict.OFF
                continue
            result.shadow = result.shadow or mode == SHADOW
            counters, inherited = overridden(counted, override, self._pool, self._now)
            if override is not None and any(counters is other for other, _ in result.counted):
                continue  # the override replaces several limits: it decides once
            # An override changes how much, not what a debit means.
            result.count(counters, counted.name, counted.envoy, inherited)
        self._take_from_quota(result, replaced)
        self._hold(result, replaced)
        if not result.counted:
            result.reason = reason

    def _take_from_quota(self, result: DescriptorResult, replaced: frozenset[str]) -> None:
        """Let it take from a quota, if its rule does. An override does not change that."""
        assert result.rule is not None
        use = result.rule.meter
        if use is None or use.name in replaced:
            return
        mode = self._mode_of(use.name)
        if mode == model.OFF:
            return
        result.shadow = result.shadow or mode == SHADOW
        pairs = chain(result.pairs, *[descriptor.pairs for descriptor in self._descriptors])
        result.take_from(self._compiled.meter(use, pairs), use.name, result.pairs[-1][1])

    def _hold(self, result: DescriptorResult, replaced: frozenset[str]) -> None:
        """Let it hold a slot, if its rule has a concurrency. An override does not change that."""
        assert result.rule is not None
        slots = self._compiled.slots(result.rule, self._now)
        if slots is None or result.hits < 0:  # who gives hits back holds no slot
            return
        counted, ancestors = slots
        mode = self._mode_of(counted.name)
        if counted.name in replaced or mode == model.OFF:
            return
        result.shadow = result.shadow or mode == SHADOW
        former = [self._store.counters(ancestor.limit) for ancestor in ancestors]
        result.hold(counted.counters, counted.name, former)

    # Lists and switches ------------------------------------------------------------------

    def _listed(self, descriptors: Sequence[Descriptor]) -> list[DescriptorResult] | None:
        """Results without any limit, if a list for all rules has a pair of the request."""
        if self._matcher is None:
            return None
        matcher, state = self._matcher, self._state
        deny = [matcher.deny, *([state.deny_lists] if state else [])]
        allow = [matcher.allow, *([state.allow_lists] if state else [])]
        for lists, reason in ((deny, verdict.DENIED), (allow, verdict.ALLOWED)):
            for by_key in lists:
                if not by_key:
                    continue
                for descriptor in descriptors:
                    for key, value in descriptor.pairs:
                        if key in by_key and value in by_key[key]:
                            return listed_results(descriptors, reason)
        return None

    def _mode_of(self, name: str) -> str:
        """The mode of one rule or limit. The mode for all rules applies to the verdict only."""
        return ENFORCE if self._state is None else self._state.modes.get(name, ENFORCE)


def overridden(
    counted: Counted, override: Override | None, pool: LimitPool, now: int
) -> tuple[Counters, Inherited | None]:
    """Where a limit is counted under an override, and what it inherits."""
    heritage = counted.heritage
    if override is not None:
        try:
            counters = pool.counters(override.apply(counted.limit), now, counted.rule.lease)
        except (LimitError, UnsupportedLimit):
            pass  # since a reload, which logged it: the rule's own limit is in force
        else:
            if heritage is None or override.limit is not None:  # a reload does not change it
                return counters, None
            return counters, (heritage, override)
    return counted.counters, None if heritage is None else (heritage, None)


def only_domain(compiled: Compiled, domain: str | None) -> str:
    """The domain that a request means."""
    if domain is None:
        if len(compiled.matchers) != 1:
            names = ", ".join(sorted(compiled.matchers)) or "none"
            raise InvalidKey(f"name the domain: the rules have several ({names:.200})")
        return next(iter(compiled.matchers))
    if not isinstance(domain, str) or not domain:
        raise InvalidKey(f"a domain is a non-empty text, not {domain!r:.100}")
    return domain
