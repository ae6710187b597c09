"""One request against the rules: which limits apply to it.

`Check` is a flow, written once for threads and coroutines: it yields `Work` for the
store and is sent the decisions. How they are made, decide.py says, and what they come to,
weigh.py.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from penstock.errors import InvalidKey, LimitError, UnsupportedLimit
from penstock.rules import model, verdict
from penstock.rules.compiled import Compiled, Counted, replaced_names
from penstock.rules.decide import decide
from penstock.rules.heritage import Inherited, carry
from penstock.rules.match import Match, escaped
from penstock.rules.model import ENFORCE, SHADOW, Rule
from penstock.rules.pool import LimitPool
from penstock.rules.switches import Override, State
from penstock.rules.verdict import Descriptor, Pair, Verdict
from penstock.rules.weigh import Line, lines_alike, verdict_on
from penstock.rules.work import Done, Work
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
            return verdict_on([Line(descriptor.pairs) for descriptor in descriptors], True)
        aside: list[Line] = []
        lines = self._listed(descriptors, domain)
        if lines is None:
            lines = self._lines(descriptors, domain, hits)
        elif not lines[0].allowed:
            # Denied as a whole. Rules in shadow count it all the same, and debits are booked.
            aside = [line for line in self._lines(descriptors, domain, hits) if line.is_kept()]
        mode = ENFORCE if self._state is None else self._state.mode
        if mode != model.OFF:
            every = [*lines, *aside]
            yield from carry(every, self._store, self._now)
            yield from decide(every)
        return verdict_on(lines, mode == ENFORCE)

    def denial(self, descriptors: Sequence[Descriptor], domain: str) -> Verdict | None:
        """The refusal of a deny list, if the request is on one. Nothing is counted."""
        mode = ENFORCE if self._state is None else self._state.mode
        lines = self._listed_or_matched(descriptors, domain)
        if mode == model.OFF or not any(_is_denied(line) for line in lines):
            return None
        return verdict_on(lines, mode == ENFORCE)

    def treatment(self, descriptors: Sequence[Descriptor], domain: str) -> list[Treatment]:
        """What applies to each descriptor, whatever is counted. Nothing is."""
        return [
            (line.rule, line.reason, line.allowed, line.shadow, [c for c, _ in line.counted])
            for line in self._listed_or_matched(descriptors, domain)
        ]

    def _listed_or_matched(self, descriptors: Sequence[Descriptor], domain: str) -> list[Line]:
        if domain not in self._compiled.matchers:
            return [Line(descriptor.pairs) for descriptor in descriptors]
        listed = self._listed(descriptors, domain)
        return self._lines(descriptors, domain, 1) if listed is None else listed

    # Which limits ------------------------------------------------------------------------

    def _lines(self, descriptors: Sequence[Descriptor], domain: str, hits: int) -> list[Line]:
        matcher = self._compiled.matchers[domain]
        matches = [matcher.match(descriptor.pairs) for descriptor in descriptors]
        replaced = replaced_names(matches)
        return [
            self._line(descriptor, match, domain, hits, replaced)
            for descriptor, match in zip(descriptors, matches, strict=True)
        ]

    def _line(
        self,
        descriptor: Descriptor,
        match: Match | None,
        domain: str,
        hits: int,
        replaced: frozenset[str],
    ) -> Line:
        line = Line(descriptor.pairs, None if match is None else match.rule)
        line.hits = max(1, hits) if hits >= 0 else hits
        if descriptor.hits is not None:
            line.hits = descriptor.hits
        line.debit = line.hits > 1 or (line.hits == 1 and descriptor.hits is not None)
        line.cost = min(abs(line.hits), MOST_COST)
        # A limit that the request brings is no rule, and so in no rule's shadow or quota.
        own = descriptor.limit is not None or descriptor.closed_period_ns > 0
        if match is None:
            if own:
                self._count_own(line, descriptor, counter_key(domain, descriptor.pairs))
            return line
        rule = match.rule
        mode = self._mode_of(rule.id)
        line.shadow = (rule.shadow and not own) or mode == SHADOW
        line.quota = rule.quota and not own
        line.cost = min(line.cost * rule.cost, MOST_COST)
        line.key = match.key
        if mode == model.OFF:
            line.reason = verdict.OFF
        elif match.denied:
            line.refuse(verdict.DENIED)
        elif match.allowed:
            line.reason = verdict.ALLOWED
        elif own:
            self._count_own(line, descriptor, match.key)
        elif rule.unlimited:
            line.reason = verdict.UNLIMITED
        elif not rule.closed:
            self._count(line, self._compiled.counted(match, line.pairs, self._now), replaced)
        elif rule.name in replaced:
            line.reason = verdict.REPLACED
        else:
            line.refuse(verdict.CLOSED)
        if line.reason == verdict.REPLACED:
            line.quota = False  # another limit stands for it
        return line

    def _count_own(self, line: Line, descriptor: Descriptor, key: str) -> None:
        """The request brought its own limit."""
        line.key = key
        if descriptor.limit is None:
            line.refuse(verdict.CLOSED)
        else:
            counters = self._pool.brought(descriptor.limit, self._now)
            line.count(counters, str(descriptor.limit), descriptor.envoy)

    def _count(self, line: Line, limits: Sequence[Counted], replaced: frozenset[str]) -> None:
        override = None
        if self._state is not None and self._state.overrides:
            found = self._state.overrides
            override = next((found[pair] for pair in line.pairs if pair in found), None)
        reason = verdict.UNLIMITED
        for counted in limits:
            if counted.name in replaced:
                reason = verdict.REPLACED
                continue
            mode = ENFORCE if self._state is None else self._state.modes.get(counted.name)
            if mode == model.OFF:
                reason = verdict.OFF
                continue
            line.shadow = line.shadow or mode == SHADOW
            counters, inherited = overridden(counted, override, self._pool, self._now)
            if override is not None and any(counters is other for other, _ in line.counted):
                continue  # one limit in place of several: it is asked once
            # An override changes how much, not what a debit means.
            line.count(counters, counted.name, counted.envoy, inherited)
        if not line.counted:
            line.reason = reason

    # Lists and switches ------------------------------------------------------------------

    def _listed(self, descriptors: Sequence[Descriptor], domain: str) -> list[Line] | None:
        """Lines without any limit, if the whole request is on a list."""
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
                            return lines_alike(descriptors, reason)
        return None

    def _mode_of(self, name: str) -> str:
        if self._state is None:
            return ENFORCE
        # The switch for all flips the overall answer, not that of each rule.
        return self._state.modes.get(name, ENFORCE)


def _is_denied(line: Line) -> bool:
    return line.reason == verdict.DENIED and not line.allowed


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


def counter_key(domain: str, pairs: Sequence[Pair]) -> str:
    """The key of a descriptor that no rule knows and that brought its own limit."""
    told = [f"{escaped(key)}={escaped(value)}" for key, value in pairs]
    return "|".join([escaped(domain), *told])


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
