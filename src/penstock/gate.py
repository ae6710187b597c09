"""Gate: rules over a store. Descriptors in, verdict out.

>>> from penstock import Gate
>>> gate = Gate.from_rules({"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]})
>>> [bool(gate.check({"user": "42"})) for _ in range(3)]
[True, True, False]
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from penstock import flows
from penstock.clock import WALL, Clock
from penstock.errors import LimitError, RulesError, UnsupportedLimit
from penstock.events import Hook, Hooks, RulesLoaded, RulesRejected
from penstock.limit import Limit
from penstock.rules.deciding.check import Check, Flow, only_domain, overridden
from penstock.rules.deciding.compiled import Compiled, Counted
from penstock.rules.deciding.heritage import Inherited
from penstock.rules.deciding.lineage import Lineage
from penstock.rules.deciding.overrides import problem_of, problems_of
from penstock.rules.deciding.plan import Planner
from penstock.rules.deciding.pool import LimitPool
from penstock.rules.deciding.switches import Override, Switches
from penstock.rules.deciding.taken import Taken, do_work
from penstock.rules.deciding.verdict import (
    Descriptor,
    DescriptorLike,
    Verdict,
    as_descriptor,
    check_hits,
)
from penstock.rules.matching.match import Matcher
from penstock.rules.model import ENFORCE, RuleSet, grouped
from penstock.rules.reading.watch import Watcher
from penstock.stores.base import Counters, Store, check_clock
from penstock.stores.memory import MemoryStore

logger = logging.getLogger("penstock.rules")

Where = str | Path


class Prepared(NamedTuple):
    """Rules that are compiled and not yet in force, and those that they are to replace."""

    before: Compiled
    compiled: Compiled


class Gate:
    """Decides on requests by rules. Made with `from_file` or `from_rules`.

    ``clock`` tells the time for schedules and for what runs out; the store has its own.
    ``lineage`` is what another process knows of the rules that were in force before.
    `AsyncGate` is the same for coroutines.
    """

    def __init__(
        self,
        rules: RuleSet,
        store: Store | None = None,
        *,
        clock: Clock | None = None,
        files: Sequence[Where] = (),
        merge_domains: bool = False,
        lineage: Lineage | None = None,
    ) -> None:
        if store is not None and not isinstance(store, Store):
            raise TypeError(f"store is a Store such as MemoryStore(), not {store!r}")
        self.store = MemoryStore() if store is None else store
        self.clock = check_clock(clock) or WALL
        self._files = tuple(files)
        self._merge_domains = merge_domains
        self._hooks = Hooks()
        self._loading = threading.Lock()
        self._reloading = threading.Lock()
        self._watcher: Watcher | None = None
        self._groups: dict[str, tuple[int, int]] = {}
        self.compiled = Compiled(rules, self.store, lineage=lineage)
        self.switches = Switches(self.clock, self._check_override, self._plan_anew)
        self._planning = threading.Lock()
        self._plan_anew()
        self.pool = LimitPool(self.store, lambda limit: self.compiled.uses(limit))

    @classmethod
    def from_file(
        cls,
        *files: Where,
        store: Store | None = None,
        clock: Clock | None = None,
        merge_domains: bool = False,
    ) -> Self:
        """Rules from files or folders of YAML; `RulesError` lists all that is wrong with them."""
        rules = load_rules(files, merge_domains=merge_domains)
        return cls(rules, store, clock=clock, files=files, merge_domains=merge_domains)

    @classmethod
    def from_rules(
        cls,
        rules: str | Mapping[str, Any],
        store: Store | None = None,
        *,
        clock: Clock | None = None,
    ) -> Self:
        """Rules from the text of a file, or the same as a dict."""
        return cls(read_rules(rules), store, clock=clock)

    @property
    def rules(self) -> RuleSet:
        """The rules in force."""
        return self.compiled.rules

    @property
    def matchers(self) -> Mapping[str, Matcher]:
        """What finds a domain's rules, by its name; `Matcher.trace` explains how."""
        return self.compiled.matchers

    def check(
        self, *descriptors: DescriptorLike, domain: str | None = None, hits: int = 1
    ) -> Verdict:
        """May the request go ahead?

        Each descriptor is a mapping, a list of pairs or a `Descriptor`. All limits that
        apply pass, or nothing is consumed. ``hits`` below zero gives back.
        """
        plan = self.planner.plan(domain, descriptors) if hits == 1 else None
        if plan is not None:
            return plan.verdict(plan.hit())
        taken = Taken()
        try:
            return self._finish(self.begin(descriptors, domain, hits), taken)
        except BaseException:
            taken.give_back()
            raise

    def check_into(
        self, taken: Taken, descriptors: Sequence[DescriptorLike], domain: str | None, hits: int
    ) -> Verdict:
        """`check` for who may give it back: what it takes is noted in ``taken``.

        If it is interrupted or fails, the caller gives that back.
        """
        plan = self.planner.plan(domain, descriptors) if hits == 1 else None
        if plan is not None:
            decisions = plan.hit()
            taken.group(plan.items, decisions)
            return plan.verdict(decisions)
        return self._finish(self.begin(descriptors, domain, hits), taken)

    def _finish(self, flow: Flow, taken: Taken) -> Verdict:
        return flows.run(flow, lambda work: do_work(self.store, work, taken))

    def begin(self, descriptors: Sequence[DescriptorLike], domain: str | None, hits: int) -> Flow:
        """A check, to be driven."""
        asked: list[Descriptor] = [as_descriptor(descriptor) for descriptor in descriptors]
        check, name = self._check(domain)
        return check.flow(asked, name, check_hits(hits))

    def denial(self, *descriptors: DescriptorLike, domain: str | None = None) -> Verdict | None:
        """The refusal of a deny list, if the request is on one; None if not. Counts nothing."""
        asked = [as_descriptor(descriptor) for descriptor in descriptors]
        check, name = self._check(domain)
        return check.denial(asked, name)

    def treats_alike(
        self,
        one: Sequence[DescriptorLike],
        other: Sequence[DescriptorLike],
        *,
        domain: str | None = None,
    ) -> bool:
        """Whether the same rules, lists and limits apply to both. Counts nothing."""
        check, name = self._check(domain)
        first, second = ([as_descriptor(each) for each in asked] for asked in (one, other))
        return check.treatment(first, name) == check.treatment(second, name)

    @property
    def enforces(self) -> bool:
        """Whether it refuses anybody: neither in shadow nor switched off."""
        return self.switches.calm or self.switches.state().mode == ENFORCE

    def counters_of(
        self, counted: Counted, override: Override | None
    ) -> tuple[Counters, Inherited | None]:
        """Where a limit is counted for who has this override, and what that inherits."""
        return overridden(counted, override, self.pool, self.clock.now())

    def _check(self, domain: str | None) -> tuple[Check, str]:
        """What decides at this moment, and the name of the domain that is meant."""
        compiled = self.compiled  # once: a reload may come at any moment
        name = only_domain(compiled, domain)
        state = None if self.switches.calm else self.switches.state()
        return Check(compiled, self.store, self.pool, state, self.clock.now()), name

    # Reloading -----------------------------------------------------------------------------

    def reload(self) -> None:
        """Read the files again. If they are wrong, `RulesError`, and the old rules stay.

        Counters of unchanged limits go on. What a key had used of a changed one is
        carried over, in proportion, at its next request.
        """
        if not self._files:
            raise RulesError("these rules did not come from files: use `replace`")
        with self._reloading:  # what was read first must not come into force last
            try:
                rules = load_rules(self._files, merge_domains=self._merge_domains)
            except RulesError as error:
                self._hooks.emit(RulesRejected("rules", str(error)))
                raise
            self.replace(rules)

    def replace(self, rules: RuleSet | str | Mapping[str, Any]) -> None:
        """Put other rules in force, between two requests.

        An override that cannot be counted by with the new limits is left out where that is
        so, and logged: there the rule's own limit holds.
        """
        ruleset = rules if isinstance(rules, RuleSet) else read_rules(rules)
        try:
            prepared = self.prepare(ruleset)
        except RulesError as error:
            self.reject(str(error))
            raise
        self.swap(prepared)

    def prepare(self, rules: RuleSet) -> Prepared:
        """Compile other rules over the store, for `swap` or `reject`. The old ones stay in force.

        `RulesError` if the store cannot count by one of their limits.
        """
        with self._loading:
            return self._prepare(rules)

    def swap(self, prepared: Prepared) -> None:
        """Put prepared rules in force, as `replace` does."""
        with self._loading:
            if prepared.before is not self.compiled:  # replaced in between
                prepared = self._prepare(prepared.compiled.rules)
            self._put_in_force(prepared.compiled)
            overrides = {} if self.switches.calm else self.switches.state().overrides
            for (key, value), problem in problems_of(self.rules, overrides, self._try_override):
                logger.warning("the override of %s=%s is left out there: %s", key, value, problem)
            domains = len(self.rules.domains)
        self._hooks.emit(RulesLoaded("rules", domains))

    def reject(self, reason: str, prepared: Prepared | None = None) -> None:
        """New rules are not used: tell subscribers, and let go of what was prepared for them."""
        if prepared is not None:
            now = self.clock.now()
            for limit in prepared.compiled.limits - self.compiled.limits:
                self.pool.retire(limit, now)
        self._hooks.emit(RulesRejected("rules", reason))

    def _prepare(self, rules: RuleSet) -> Prepared:
        before = self.compiled
        try:
            compiled = Compiled(grouped(rules, self._groups), self.store, self.clock.now(), before)
        except UnsupportedLimit as error:
            raise RulesError(str(error)) from None
        return Prepared(before, compiled)

    def _put_in_force(self, compiled: Compiled) -> None:
        now, before = self.clock.now(), self.compiled
        self.compiled = compiled
        self._plan_anew()
        for limit in before.limits - compiled.limits:
            self.pool.retire(limit, now)
        self.pool.free(now)

    def _plan_anew(self) -> None:
        """Other rules or switches are in force: no plan that was made before holds."""
        with self._planning:  # what changed last is seen by the last planner
            self.planner = Planner(self.compiled, self.switches.last, self.store)

    def _check_override(self, pair: tuple[str, str], override: Override) -> None:
        problem = problem_of(self.rules, pair, override, self._try_override)
        if problem is not None:
            raise LimitError(f"the override of {pair[0]}={pair[1]:.100} cannot be: {problem}")

    def _try_override(self, limit: Limit) -> None:
        self.pool.counters(limit, self.clock.now())

    def group(self, key: str, ipv4: int = 32, ipv6: int = 64) -> None:
        """Count addresses under ``key`` by their networks, where a rule has no ``group``.

        From now on, also after a reload. Lists still see the whole address.
        """
        for version, length, most in (("ipv4", ipv4, 32), ("ipv6", ipv6, 128)):
            if type(length) is not int or not 1 <= length <= most:
                raise RulesError(f"{version} is a length from 1 to {most}, not {length!r:.100}")
        with self._loading:
            self._groups[key] = (ipv4, ipv6)
            rules = grouped(self.rules, self._groups)
            if rules is not self.rules:
                self._put_in_force(self._prepare(rules).compiled)

    def watch(self) -> None:
        """Reload when the files change, until `close`. A wrong file is an event and a log line."""
        if not self._files:
            raise RulesError("these rules did not come from files: there is nothing to watch")
        if self._watcher is None:
            self._watcher = Watcher(self._files, self.reload, lambda: self.rules.digests)
            self._watcher.start()

    def subscribe(self, hook: Hook) -> None:
        """Have ``hook`` called with every event: see `penstock.events`."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Have it called no more."""
        self._hooks.remove(hook)

    def close(self) -> None:
        """Stop watching. The store is its owner's to close."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()

    def __repr__(self) -> str:
        domains = ", ".join(sorted(self.rules.domains))
        return f"<Gate {domains:.200} store={self.store!r}>"


def read_rules(rules: str | Mapping[str, Any]) -> RuleSet:
    """From the text of a file, or the same as a dict."""
    parse = _parser()
    domain = parse.parse_text(rules) if isinstance(rules, str) else parse.load_mapping(rules)
    return RuleSet({domain.name: domain})


def load_rules(files: Sequence[Where], *, merge_domains: bool = False) -> RuleSet:
    """From files or folders."""
    rules: RuleSet = _parser().load_files(files, merge_domains=merge_domains)
    return rules


def _parser() -> Any:
    """What reads rules; it is needed only here, and needs what not everybody has."""
    try:
        from penstock.rules.reading import parse
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"reading rules needs {error.name}: pip install 'penstock[rules]'", name=error.name
        ) from None
    return parse
