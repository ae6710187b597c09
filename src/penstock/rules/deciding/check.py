"""One request against the rules: which limits apply to it.

`Check` is a flow, written once for threads and coroutines: it yields `Work` for the
store and is sent the decisions. How they are made, decide.py says, and what they come to,
verdicts.py.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from penstock.errors import InvalidKey, LimitError, UnsupportedLimit
from penstock.keys import descriptor_key
from penstock.rules import model
from penstock.rules.deciding import verdict
from penstock.rules.deciding.compiled import Compiled, Counted, replaced_names
from penstock.rules.deciding.decide import decide
from penstock.rules.deciding.heritage import Inherited, carry
from penstock.rules.deciding.pool import LimitPool
from penstock.rules.deciding.switches import Override, State
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.rules.deciding.verdicts import DescriptorResult, results_alike, verdict_on
from penstock.rules.deciding.work import Done, Work
from penstock.rules.matching.match import Match
from penstock.rules.model import ENFORCE, SHADOW, Rule
from penstock.stores.base import MOST_COST, Counters, Store

# What applies to a descriptor: its rule, what became of it, in shadow or not, and what counts.
Treatment = tuple[Rule | None, str, bool, bool, list[Counters]]
Flow = Generator[Work, Done, Verdict]


class Check:
    """The request, as one set of rules and one state of the switches see it."""

    def __init__(
        self, compiled: Compiled, store: Store, pool: LimitPool, state: State | None, now: int
    ) -> None:
        self._compiled = compiled
        self._store = store
        self._pool = pool  # of limits that are not in the rules
        self._state = state  # None: nothing is switched
        self._now = now

    def flow(self, descriptors: Sequence[Descriptor], domain: str, hits: int) -> Flow:
        matcher = self._compiled.matchers.get(domain)
        if matcher is None:
            return verdict_on(
                [DescriptorResult(descriptor.pairs) for descriptor in descriptors], True
            )
        aside: list[DescriptorResult] = []
        results = self._listed(descriptors, domain)
        if results is None:
            results = self._results(descriptors, domain, hits)
        elif not results[0].allowed:
            # Denied as a whole. Rules in shadow count it all the same, and debits are booked.
            aside = [
                result for result in self._results(descriptors, domain, hits) if result.is_kept()
            ]
        mode = ENFORCE if self._state is None else self._state.mode
        if mode != model.OFF:
            every = [*results, *aside]
            yield from carry(every, self._store, self._now)
            yield from decide(every)
        return verdict_on(results, mode == ENFORCE)

    def denial(self, descriptors: Sequence[Descriptor], domain: str) -> Verdict | None:
        """The refusal of a deny list, if the request is on one. Nothing is counted."""
        mode = ENFORCE if self._state is None else self._state.mode
        results = self._listed_or_matched(descriptors, domain)
        if mode == model.OFF or not any(_is_denied(result) for result in results):
            return None
        return verdict_on(results, mode == ENFORCE)

    def treatment(self, descriptors: Sequence[Descriptor], domain: str) -> list[Treatment]:
        """What applies to each descriptor, whatever is counted. Nothing is."""
        return [
            (
                result.rule,
                result.reason,
                result.allowed,
                result.shadow,
                [c for c, _ in result.counted],
            )
            for result in self._listed_or_matched(descriptors, domain)
        ]

    def _listed_or_matched(
        self, descriptors: Sequence[Descriptor], domain: str
    ) -> list[DescriptorResult]:
        if domain not in self._compiled.matchers:
            return [DescriptorResult(descriptor.pairs) for descriptor in descriptors]
        listed = self._listed(descriptors, domain)
        return self._results(descriptors, domain, 1) if listed is None else listed

    # Which limits ------------------------------------------------------------------------

    def _results(
        self, descriptors: Sequence[Descriptor], domain: str, hits: int
    ) -> list[DescriptorResult]:
        matcher = self._compiled.matchers[domain]
        matches = [matcher.match(descriptor.pairs) for descriptor in descriptors]
        replaced = replaced_names(matches)
        return [
            self._result(descriptor, match, domain, hits, replaced)
            for descriptor, match in zip(descriptors, matches, strict=True)
        ]

    def _result(
        self,
        descriptor: Descriptor,
        match: Match | None,
        domain: str,
        hits: int,
        replaced: frozenset[str],
    ) -> DescriptorResult:
        result = DescriptorResult(descriptor.pairs, None if match is None else match.rule)
        result.hits = max(1, hits) if hits >= 0 else hits
        if descriptor.hits is not None:
            result.hits = descriptor.hits
        result.debit = result.hits > 1 or (result.hits == 1 and descriptor.hits is not None)
        result.cost = min(abs(result.hits), MOST_COST)
        # A limit that the request brings is no rule, and so in no rule's shadow or quota.
        own = descriptor.limit is not None or descriptor.closed_period_ns > 0
        if match is None:
            if own:
                self._count_own(result, descriptor, descriptor_key(domain, descriptor.pairs))
            return result
        rule = match.rule
        mode = self._mode_of(rule.id)
        result.shadow = (rule.shadow and not own) or mode == SHADOW
        result.quota = rule.quota and not own
        result.cost = min(result.cost * rule.cost, MOST_COST)
        result.key = match.key
        if mode == model.OFF:
            result.reason = verdict.OFF
        elif match.denied:
            result.refuse(verdict.DENIED)
        elif match.allowed:
            result.reason = verdict.ALLOWED
        elif own:
            self._count_own(result, descriptor, match.key)
        elif rule.unlimited:
            result.reason = verdict.UNLIMITED
        elif not rule.closed:
            self._count(result, self._compiled.counted(match, result.pairs, self._now), replaced)
        elif rule.name in replaced:
            result.reason = verdict.REPLACED
        else:
            result.refuse(verdict.CLOSED)
        if result.reason == verdict.REPLACED:
            result.quota = False  # another limit stands for it
        return result

    def _count_own(self, result: DescriptorResult, descriptor: Descriptor, key: str) -> None:
        """The request brought its own limit."""
        result.key = key
        if descriptor.limit is None:
            result.refuse(verdict.CLOSED)
        else:
            counters = self._pool.brought(descriptor.limit, self._now)
            result.count(counters, str(descriptor.limit), descriptor.envoy)

    def _count(
        self, result: DescriptorResult, limits: Sequence[Counted], replaced: frozenset[str]
    ) -> None:
        override = None
        if self._state is not None and self._state.overrides:
            found = self._state.overrides
            override = next((found[pair] for pair in result.pairs if pair in found), None)
        reason = verdict.UNLIMITED
        for counted in limits:
            if counted.name in replaced:
                reason = verdict.REPLACED
                continue
            mode = ENFORCE if self._state is None else self._state.modes.get(counted.name)
            if mode == model.OFF:
                reason = verdict.OFF
                continue
            result.shadow = result.shadow or mode == SHADOW
            counters, inherited = overridden(counted, override, self._pool, self._now)
            if override is not None and any(counters is other for other, _ in result.counted):
                continue  # one limit in place of several: it is asked once
            # An override changes how much, not what a debit means.
            result.count(counters, counted.name, counted.envoy, inherited)
        if not result.counted:
            result.reason = reason

    # Lists and switches ------------------------------------------------------------------

    def _listed(
        self, descriptors: Sequence[Descriptor], domain: str
    ) -> list[DescriptorResult] | None:
        """Results without any limit, if the whole request is on a list."""
        found = self._compiled.rules.domains[domain]
        state = self._state
        deny = [found.deny, *([state.deny_lists] if state else [])]
        allow = [found.allow, *([state.allow_lists] if state else [])]
        for lists, reason in ((deny, verdict.DENIED), (allow, verdict.ALLOWED)):
            for by_key in lists:
                if not by_key:
                    continue
                for descriptor in descriptors:
                    for key, value in descriptor.pairs:
                        if key in by_key and value in by_key[key]:
                            return results_alike(descriptors, reason)
        return None

    def _mode_of(self, name: str) -> str:
        if self._state is None:
            return ENFORCE
        # The switch for all flips the overall answer, not that of each rule.
        return self._state.modes.get(name, ENFORCE)


def _is_denied(result: DescriptorResult) -> bool:
    return result.reason == verdict.DENIED and not result.allowed


def overridden(
    counted: Counted, override: Override | None, pool: LimitPool, now: int
) -> tuple[Counters, Inherited | None]:
    """Where a limit is counted for who has an override, and what that inherits."""
    heritage = counted.heritage
    if override is not None:
        try:
            counters = pool.counters(override.apply(counted.limit), now)
        except (LimitError, UnsupportedLimit):
            pass  # since a reload: then the rule's own limit holds, and the log has said so
        else:
            own = override.limit is not None  # the same before and after a reload
            return counters, None if heritage is None or own else (heritage, override)
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
