"""What `Gate` and `AsyncGate` share: rules in force, reloads, and checks that block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from penstock import flows
from penstock.clock import WALL, Clock
from penstock.errors import RulesError, UnsupportedLimit
from penstock.events import Hook, Hooks, RulesLoaded, RulesRejected
from penstock.limits import Limit
from penstock.rules.deciding.check import Check, Flow, Treatment, only_domain, overridden
from penstock.rules.deciding.compiled import Compiled, Counted, Prepared
from penstock.rules.deciding.lineage import Inherited, Lineage
from penstock.rules.deciding.overrides import check_override, problems_of
from penstock.rules.deciding.plan import Planner
from penstock.rules.deciding.pool import LimitPool
from penstock.rules.deciding.slots import Slots
from penstock.rules.deciding.store_calls import Taken, do_work
from penstock.rules.deciding.switches import Override, Switches
from penstock.rules.deciding.verdict import (
    DescriptorLike,
    Descriptors,
    Slot,
    Verdict,
    as_descriptors,
    check_hits,
)
from penstock.rules.matching.match import Matcher
from penstock.rules.model import ENFORCE, RuleSet, grouped
from penstock.rules.reading.loading import RulesPath, load_rules, read_rules
from penstock.rules.reading.watch import Watcher
from penstock.stores.base import Counters, Store, check_clock
from penstock.stores.url import as_store

if TYPE_CHECKING:  # sqlite3 and more, which most gates do without
    from penstock.control.following import Following
    from penstock.kv import KeyValue

logger = logging.getLogger("penstock.rules")


class LedgerOfQuotas(Protocol):
    """A `penstock.quota.Ledger`: quotas in a ledger, spent from a stock in a store."""

    def quota_store(self, store: Store | str | None = None) -> Store: ...


class BaseGate:
    """Rules over a store. Subclasses add ``check``, which blocks or is awaited.

    ``clock`` is for schedules and expiry; the store has its own clock. ``lineage`` is what
    another process knows about rules that were in force before. Rules with a ``quota`` need a
    ``ledger``, or a `QuotaStore` as their store.
    """

    def __init__(
        self,
        rules: RuleSet,
        store: Store | str | None = None,
        *,
        clock: Clock | None = None,
        files: Sequence[RulesPath] = (),
        merge_domains: bool = False,
        lineage: Lineage | None = None,
        ledger: LedgerOfQuotas | None = None,
    ) -> None:
        if not isinstance(rules, RuleSet):
            name = type(self).__name__
            raise TypeError(
                f"{name} takes a RuleSet, not {rules!r:.50}: for a file, write {name}.from_file("
                f"'rules.yaml'), and for a text or a dict, {name}.from_rules(...)"
            )
        self.store = as_store(store) if ledger is None else ledger.quota_store(store)
        self._owns_store = ledger is not None
        self.clock = check_clock(clock) or WALL
        self._files = tuple(files)
        self._merge_domains = merge_domains
        self._hooks = Hooks()
        self._loading = threading.RLock()
        self._reloading = threading.Lock()
        self._watcher: Watcher | None = None
        self._following: Following | None = None
        self._groups: dict[str, tuple[int, int]] = {}
        self.compiled = Compiled(rules, self.store, lineage=lineage)
        self.switches = Switches(self.clock, self._check_override, self._renew_planner)
        self._planning = threading.Lock()
        self._renew_planner()
        self.pool = LimitPool(self.store, lambda limit: self.compiled.uses(limit))
        self.slots = Slots(self.pool, self.clock, self._hooks)
        self._warn_of_leases()
        self.store.define_plans(rules.plans)

    @classmethod
    def from_file(
        cls,
        *files: RulesPath,
        store: Store | str | None = None,
        clock: Clock | None = None,
        merge_domains: bool = False,
        ledger: LedgerOfQuotas | None = None,
    ) -> Self:
        """Rules from YAML files or folders; `RulesError` lists all problems.

        Rules with a ``quota`` need a ``ledger``, a `penstock.quota.Ledger`, which stays open.
        """
        rules = load_rules(files, merge_domains=merge_domains)
        return cls(
            rules, store, clock=clock, files=files, merge_domains=merge_domains, ledger=ledger
        )

    @classmethod
    def from_rules(
        cls,
        rules: str | Mapping[str, Any],
        store: Store | str | None = None,
        *,
        clock: Clock | None = None,
        ledger: LedgerOfQuotas | None = None,
    ) -> Self:
        """Rules from the text of a file, or the same as a dict."""
        return cls(read_rules(rules), store, clock=clock, ledger=ledger)

    @classmethod
    def from_store(
        cls, kv: KeyValue, store: Store | str | None = None, *, clock: Clock | None = None
    ) -> Self:
        """Rules, overrides and switches from a key-value store, as they change, until `close`.

        `penstock rules push` and `penstock admin` write them. While the store is away, those that
        are known stay in force. It blocks until the store has answered; ``kv`` stays open.
        """
        from penstock.control.following import Following, rules_in

        rules, digest = rules_in(kv)
        gate = cls(rules, store, clock=clock)
        gate._following = Following(gate, kv, digest)
        return gate

    @property
    def rules(self) -> RuleSet:
        """The rules in force."""
        return self.compiled.rules

    @property
    def matchers(self) -> Mapping[str, Matcher]:
        """The matcher of each domain; `Matcher.trace` explains a match."""
        return self.compiled.matchers

    def check_now(
        self, *descriptors: DescriptorLike, domain: str | None = None, hits: int = 1
    ) -> Verdict:
        """May the request go ahead?

        A descriptor is a mapping, a list of pairs or a `Descriptor`. Either all limits that apply
        allow the request, or nothing is consumed. Negative ``hits`` give units back.
        """
        plan = self.planner.plan(domain, descriptors) if hits == 1 else None
        if plan is not None:
            return plan.verdict(plan.hit())
        taken = Taken()
        try:
            return self._run(taken, descriptors, domain, hits)
        except BaseException:
            taken.give_back()
            raise

    def check_into_now(
        self, taken: Taken, descriptors: Descriptors, domain: str | None, hits: int
    ) -> Verdict:
        """A check that records in ``taken`` what it takes, so that it can be given back.

        If the check is interrupted or fails, giving back is up to the caller.
        """
        plan = self.planner.plan(domain, descriptors) if hits == 1 else None
        if plan is not None:
            decisions = plan.hit()
            taken.group(plan.items, decisions)
            return plan.verdict(decisions)
        return self._run(taken, descriptors, domain, hits)

    def _run(
        self, taken: Taken, descriptors: Descriptors, domain: str | None, hits: int
    ) -> Verdict:
        flow = self._flow(descriptors, domain, hits)
        return flows.run(flow, lambda work: do_work(self.store, work, taken))

    def release_now(self, verdict: Verdict) -> None:
        """Free the slots that a request holds of rules with ``concurrency``.

        Call it when the request has ended. Without slots, or a second time, nothing happens.
        """
        slots, verdict.slots = verdict.slots, ()
        if slots:
            self.release_slots_now(slots)

    def release_slots_now(self, slots: Sequence[Slot], once: str | None = None) -> bool:
        """Free slots. With ``once``, a key of its own for them, that is done only once.

        Returns whether it was done.
        """
        flow = self.slots.release(slots, once)
        return flows.run(flow, lambda work: do_work(self.store, work, Taken()))

    def _flow(self, descriptors: Descriptors, domain: str | None, hits: int) -> Flow:
        checked = as_descriptors(descriptors)
        flow = self._check(domain).flow(checked, check_hits(hits))
        return self.slots.observed(flow) if self._hooks else flow

    def denial(self, *descriptors: DescriptorLike, domain: str | None = None) -> Verdict | None:
        """The refusal by a deny list, or None if the request is on none. Counts nothing."""
        return self._check(domain).denial(as_descriptors(descriptors))

    def treats_alike(
        self, one: Descriptors, other: Descriptors, *, domain: str | None = None
    ) -> bool:
        """Whether the same rules, lists and limits apply to both. Counts nothing."""
        check = self._check(domain)
        return check.treatment(as_descriptors(one)) == check.treatment(as_descriptors(other))

    def treatment(self, descriptor: DescriptorLike, *, domain: str | None = None) -> Treatment:
        """What applies to a descriptor on its own. Counts nothing."""
        return self._check(domain).treatment(as_descriptors([descriptor]))[0]

    @property
    def enforces(self) -> bool:
        """Whether it refuses requests: it is neither in shadow mode nor switched off."""
        return self.switches.calm or self.switches.state().mode == ENFORCE

    def counters_of(
        self, counted: Counted, override: Override | None
    ) -> tuple[Counters, Inherited | None]:
        """Where a limit is counted under this override, and what it inherits."""
        return overridden(counted, override, self.pool, self.clock.now())

    def _check(self, domain: str | None) -> Check:
        """A check by the rules and switches of this moment."""
        compiled = self.compiled  # once: a reload may come at any time
        state = None if self.switches.calm else self.switches.state()
        name = only_domain(compiled, domain)
        return Check(compiled, name, self.store, self.pool, state, self.clock.now())

    # Reloading -----------------------------------------------------------------------------

    def reload(self) -> None:
        """Read the files again, in a thread if called from a coroutine.

        If they are wrong, `RulesError` is raised and the old rules stay. Counters of unchanged
        limits continue; usage of a changed limit is carried over, in proportion, at a key's next
        request.
        """
        if not self._files:
            raise RulesError("these rules did not come from files: use `replace`")
        with self._reloading:  # an older read must not replace a newer one
            try:
                rules = load_rules(self._files, merge_domains=self._merge_domains)
            except RulesError as error:
                self.reject(str(error))
                raise
            self.replace(rules)

    def replace(self, rules: RuleSet | str | Mapping[str, Any]) -> None:
        """Put other rules in force, between two requests.

        An override that does not work with a new limit is logged and not applied to that limit.
        """
        ruleset = rules if isinstance(rules, RuleSet) else read_rules(rules)
        try:
            prepared = self.prepare(ruleset)
        except RulesError as error:
            self.reject(str(error))
            raise
        self.swap(prepared)

    def prepare(self, rules: RuleSet) -> Prepared:
        """Compile rules for `swap` or `reject`; the old rules stay in force.

        `RulesError` if the store does not support one of their limits.
        """
        with self._loading:
            before, now = self.compiled, self.clock.now()
            try:
                compiled = Compiled(grouped(rules, self._groups), self.store, now, before)
            except UnsupportedLimit as error:
                raise RulesError(str(error)) from None
            return Prepared(before, compiled)

    def swap(self, prepared: Prepared) -> None:
        """Put prepared rules in force, as `replace` does."""
        with self._loading:
            if prepared.before is not self.compiled:  # replaced in between
                prepared = self.prepare(prepared.compiled.rules)
            self._put_in_force(prepared.compiled)
            overrides = {} if self.switches.calm else self.switches.state().overrides
            for (key, value), problem in problems_of(self.rules, overrides, self.try_limit):
                logger.warning("the override of %s=%s is left out there: %s", key, value, problem)
            self._warn_of_leases()
            domains = len(self.rules.domains)
        self._hooks.emit(RulesLoaded("rules", domains))

    def reject(self, reason: str, prepared: Prepared | None = None) -> None:
        """Drop new rules: tell subscribers, and release what was prepared."""
        if prepared is not None:
            now = self.clock.now()
            for limit in prepared.compiled.limits - self.compiled.limits:
                self.pool.retire(limit, now)
        self._hooks.emit(RulesRejected("rules", reason))

    def _put_in_force(self, compiled: Compiled) -> None:
        now, before = self.clock.now(), self.compiled
        self.compiled = compiled
        self._renew_planner()
        for limit in before.limits - compiled.limits:
            self.pool.retire(limit, now)
        self.pool.free(now)
        self.store.define_plans(compiled.rules.plans)

    def _warn_of_leases(self) -> None:
        ids = self.compiled.not_leased
        if ids:
            logger.warning(
                "'lease' has no effect in %d rule(s) (%s): the store does not lease, and they are"
                " decided directly; use a LeasedStore, or penstock serve --leased",
                len(ids), ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else ""),
            )  # fmt: skip

    def _renew_planner(self) -> None:
        """Rules or switches have changed: plans that were made before are no longer valid."""
        with self._planning:  # so that the last planner sees the last change
            self.planner = Planner(self.compiled, self.switches.last, self.store)

    def _check_override(self, pair: tuple[str, str], override: Override) -> None:
        check_override(self.rules, pair, override, self.try_limit)

    def try_limit(self, limit: Limit) -> None:
        """Raise an error if the store cannot count this limit."""
        self.pool.counters(limit, self.clock.now())

    def group(self, key: str, ipv4: int = 32, ipv6: int = 64) -> None:
        """Count addresses under ``key`` by network, where a rule has no ``group``.

        This stays in force after a reload. Lists still match the whole address.
        """
        for version, length, most in (("ipv4", ipv4, 32), ("ipv6", ipv6, 128)):
            if type(length) is not int or not 1 <= length <= most:
                raise RulesError(f"{version} is a length from 1 to {most}, not {length!r:.100}")
        with self._loading:
            self._groups[key] = (ipv4, ipv6)
            rules = grouped(self.rules, self._groups)
            if rules is not self.rules:
                self._put_in_force(self.prepare(rules).compiled)

    def watch(self) -> None:
        """Reload when files change, until `close`. A wrong file is logged and emits an event."""
        if not self._files:
            raise RulesError("these rules did not come from files: there is nothing to watch")
        if self._watcher is None:
            self._watcher = Watcher(self._files, self.reload, lambda: self.rules.digests)
            self._watcher.start()

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with every event: see `penstock.events`."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks.remove(hook)

    def close(self) -> None:
        """Stop watching, and settle quotas. The store and the ledger stay open for their owners."""
        following, self._following = self._following, None
        if following is not None:
            following.stop()
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
        if self._owns_store:
            self.store.close()

    def __repr__(self) -> str:
        domains = ", ".join(sorted(self.rules.domains))
        return f"<{type(self).__name__} {domains:.200} store={self.store!r}>"
