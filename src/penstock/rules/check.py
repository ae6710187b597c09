"""One request against the rules: which limits, and decided how. What it means, weigh.py says.

`Check` is a flow, written once for threads and coroutines: it yields `Work` for the
store and is sent the decisions.

Limits that may refuse are decided in one group: all pass, or nothing is consumed. Beside
it go those that refuse nothing by themselves: rules in shadow, and in quota mode.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.decision import Decision
from penstock.errors import InvalidKey
from penstock.limit import Limit
from penstock.rules import model, verdict
from penstock.rules.compiled import Compiled, Counted, replaced_names
from penstock.rules.match import Match, escaped
from penstock.rules.model import ENFORCE, SHADOW
from penstock.rules.switches import State
from penstock.rules.verdict import Descriptor, Pair, Verdict
from penstock.rules.weigh import Line, lines_alike, passes, verdict_on
from penstock.stores.base import Counters, Store

Item = tuple[Counters, str, int]
# (verb, counters, arguments)
Single = tuple[str, Counters, tuple[Any, ...]]


@dataclass(slots=True)
class Work:
    """For the store: a group to decide as a whole, and single verbs. Either may be empty."""

    group: list[Item] = field(default_factory=list)
    singles: list[Single] = field(default_factory=list)


# What comes back: the decisions of the group, and what each single verb returned.
Done = tuple[Sequence[Decision], Sequence[Any]]
Flow = Generator[Work, Done, Verdict]


class Check:
    """The request, as one set of rules and one state of the switches see it."""

    def __init__(self, compiled: Compiled, store: Store, state: State | None, now: int) -> None:
        self._compiled = compiled
        self._store = store
        self._state = state  # None: nothing is switched
        self._now = now

    def flow(self, descriptors: Sequence[Descriptor], domain: str, hits: int) -> Flow:
        lines = self._lines(descriptors, domain, hits)
        mode = ENFORCE if self._state is None else self._state.mode
        if mode != model.OFF:
            yield from self._inherit(lines)
            if all(line.allowed for line in lines):
                yield from self._decide(lines)
        return verdict_on(lines, mode == ENFORCE)

    # Which limits ------------------------------------------------------------------------

    def _lines(self, descriptors: Sequence[Descriptor], domain: str, hits: int) -> list[Line]:
        matcher = self._compiled.matchers.get(domain)
        if matcher is None:
            return [Line(descriptor.pairs) for descriptor in descriptors]
        listed = self._listed(descriptors, domain)
        if listed is not None:
            return listed
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
        line.cost = abs(line.hits)
        if match is None:
            if descriptor.limit is not None:
                self._count_by(line, descriptor.limit, counter_key(domain, descriptor.pairs))
            return line
        rule = match.rule
        mode = self._mode_of(rule.id)
        # A limit that the request brings is no rule, and so in no rule's shadow.
        own = descriptor.limit is not None
        line.shadow = (rule.shadow and not own) or mode == SHADOW
        line.quota = rule.quota and not own
        line.cost *= rule.cost
        line.key = match.key
        if mode == model.OFF:
            line.reason = verdict.OFF
        elif match.denied or (rule.closed and descriptor.limit is None):
            line.reason = verdict.DENIED if match.denied else verdict.CLOSED
            line.allowed = line.shadow or line.hits <= 0
        elif match.allowed:
            line.reason = verdict.ALLOWED
        elif descriptor.limit is not None:
            self._count_by(line, descriptor.limit, match.key)
        elif rule.unlimited:
            line.reason = verdict.UNLIMITED
        else:
            self._count(line, self._compiled.counted(match, line.pairs, self._now), replaced)
        return line

    def _count_by(self, line: Line, limit: Limit, key: str) -> None:
        """The request brought its own limit."""
        line.key = key
        line.reason = verdict.LIMIT
        line.counted.append((self._store.counters(limit), str(limit)))
        line.heritages.append(None)

    def _count(self, line: Line, limits: Sequence[Counted], replaced: frozenset[str]) -> None:
        override = None
        if self._state is not None and self._state.overrides:
            found = self._state.overrides
            override = next((found[pair] for pair in line.pairs if pair in found), None)
        line.reason = verdict.LIMIT if limits else verdict.UNLIMITED
        for counted in limits:
            if counted.name in replaced:
                line.reason = verdict.REPLACED
                continue
            mode = ENFORCE if self._state is None else self._state.modes.get(counted.name)
            if mode == model.OFF:
                line.reason = verdict.OFF
                continue
            line.shadow = line.shadow or mode == SHADOW
            counters, heritage = counted.counters, counted.heritage
            if override is not None:
                counters, heritage = self._store.counters(override.apply(counted.limit)), None
                if any(counters is other for other, _ in line.counted):
                    continue  # one limit in place of several: it is asked once
            line.counted.append((counters, counted.name))
            line.heritages.append(heritage)
        if line.counted:
            line.reason = verdict.LIMIT

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

    # Deciding ----------------------------------------------------------------------------

    def _inherit(self, lines: list[Line]) -> Generator[Work, Done, None]:
        """Bring over what keys had used of limits that have changed since."""
        due: list[tuple[Counters, Counters, str]] = []
        for line in lines:
            for (counters, _), heritage in zip(line.counted, line.heritages, strict=True):
                if heritage is None or heritage.until <= self._now:
                    continue
                if heritage.is_due(line.key):
                    due.append((heritage.counters, counters, line.key))
        if not due:
            return
        looks: list[Single] = [
            ("peek", counters, (key, 1)) for old, new, key in due for counters in (old, new)
        ]
        _, seen = yield Work(singles=looks)
        charges: list[Single] = []
        for at, (old, new, key) in enumerate(due):
            before, now = seen[2 * at], seen[2 * at + 1]
            used = old.limit.burst - before.remaining
            if used > 0 and now.remaining == new.limit.burst:
                part = -(-used * new.limit.burst // old.limit.burst)
                charges.append(("charge", new, (key, part)))
                if not before and new.limit.lockout_ns:
                    charges.append(("hit", new, (key, 1)))  # shut out there, shut out here
        if charges:
            yield Work(singles=charges)

    def _decide(self, lines: list[Line]) -> Generator[Work, Done, None]:
        group: dict[tuple[Counters, str], int] = {}
        work = Work()
        beside: list[tuple[Line, Single]] = []
        for line in lines:
            for counters, _ in line.counted:
                if line.hits == 0:
                    beside.append((line, ("peek", counters, (line.key, 1))))
                elif line.hits < 0:
                    line.reason = verdict.REFUND
                    beside.append((line, ("refund", counters, (line.key, line.cost))))
                elif line.shadow or line.quota:
                    beside.append((line, ("hit", counters, (line.key, line.cost))))
                else:
                    # Two descriptors may come to one counter: it is asked for both at once.
                    group[counters, line.key] = group.get((counters, line.key), 0) + line.cost
        work.group = [(counters, key, cost) for (counters, key), cost in group.items()]
        work.singles = [single for _, single in beside]
        if not work.group and not work.singles:
            return
        together, single = yield work
        found = dict(zip(group, together, strict=True))
        for (line, (verb, _, _)), answer in zip(beside, single, strict=True):
            if verb != "refund":
                line.decisions.append(answer)
        for line in lines:
            if line.hits > 0 and not line.shadow and not line.quota:
                line.decisions += [found[counters, line.key] for counters, _ in line.counted]
            line.allowed = passes(line)
        yield from self._undo(lines)

    def _undo(self, lines: list[Line]) -> Generator[Work, Done, None]:
        """Give back what was taken beside a refusal: by quotas, or for want of one."""
        quotas = [line for line in lines if line.quota and line.decisions and not line.shadow]
        if not quotas:
            return
        others = [line for line in lines if not line.quota]
        refused = not all(line.allowed for line in others)
        taken: list[Line] = []
        if refused:
            taken = [line for line in quotas if line.allowed]
        elif not any(line.allowed for line in quotas):
            taken = [line for line in others if not line.shadow]
        back: list[Single] = [
            ("refund", counters, (line.key, line.cost, decision._mark, 0))
            for line in taken
            if line.hits > 0
            for (counters, _), decision in zip(line.counted, line.decisions, strict=True)
            if decision
        ]
        if back:
            yield Work(singles=back)


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
