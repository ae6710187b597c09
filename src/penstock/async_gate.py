"""AsyncGate: `Gate` for coroutines.

>>> import asyncio
>>> from penstock import AsyncGate
>>> rules = {"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]}
>>> gate = AsyncGate.from_rules(rules)
>>> bool(asyncio.run(gate.check({"user": "42"})))
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from penstock import flows
from penstock.clock import Clock
from penstock.events import Hook
from penstock.gate import Gate, Prepared, Where, load_rules, read_rules
from penstock.rules.deciding.compiled import Compiled, Counted
from penstock.rules.deciding.heritage import Inherited
from penstock.rules.deciding.lineage import Lineage
from penstock.rules.deciding.switches import Override, Switches
from penstock.rules.deciding.taken import Taken, do_work_async
from penstock.rules.deciding.verdict import DescriptorLike, Verdict
from penstock.rules.matching.match import Matcher
from penstock.rules.model import RuleSet
from penstock.stores.base import Counters, Store


class AsyncGate:
    """`Gate` for coroutines: ``await gate.check(...)``. Everything else is the same.

    ``sync`` is the gate that it holds: it has the rules, the switches and the store, and
    may be asked directly where the store answers at once.
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
        self.sync = Gate(
            rules, store, clock=clock, files=files, merge_domains=merge_domains, lineage=lineage
        )

    @classmethod
    def from_file(
        cls,
        *files: Where,
        store: Store | None = None,
        clock: Clock | None = None,
        merge_domains: bool = False,
    ) -> Self:
        """See `Gate.from_file`."""
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
        """See `Gate.from_rules`."""
        return cls(read_rules(rules), store, clock=clock)

    async def check(
        self, *descriptors: DescriptorLike, domain: str | None = None, hits: int = 1
    ) -> Verdict:
        """May the request go ahead? See `Gate.check`. A cancelled check has taken nothing."""
        if not self.store.waits:
            return self.sync.check(*descriptors, domain=domain, hits=hits)
        taken = Taken()
        try:
            return await self.check_into(taken, descriptors, domain, hits)
        except BaseException:
            taken.give_back_async()
            raise

    async def check_into(
        self, taken: Taken, descriptors: Sequence[DescriptorLike], domain: str | None, hits: int
    ) -> Verdict:
        """See `Gate.check_into`. If it is cancelled or fails, the caller gives back."""
        store, gate = self.store, self.sync
        if not store.waits:
            return gate.check_into(taken, descriptors, domain, hits)
        plan = gate.planner.plan(domain, descriptors) if hits == 1 else None
        if plan is not None:
            decisions = await plan.hit_async()
            taken.group(plan.items, decisions)
            return plan.verdict(decisions)
        flow = gate.begin(descriptors, domain, hits)
        return await flows.run_async(flow, lambda work: do_work_async(store, work, taken))

    # As in `Gate` ----------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """Where the state lives."""
        return self.sync.store

    @property
    def clock(self) -> Clock:
        """Tells the time for schedules and for what runs out."""
        return self.sync.clock

    @property
    def rules(self) -> RuleSet:
        """The rules in force."""
        return self.sync.rules

    @property
    def compiled(self) -> Compiled:
        """The rules in force, with their counters."""
        return self.sync.compiled

    @property
    def matchers(self) -> Mapping[str, Matcher]:
        """See `Gate.matchers`."""
        return self.sync.matchers

    @property
    def switches(self) -> Switches:
        """What operators change while requests come in."""
        return self.sync.switches

    @property
    def enforces(self) -> bool:
        """See `Gate.enforces`."""
        return self.sync.enforces

    def denial(self, *descriptors: DescriptorLike, domain: str | None = None) -> Verdict | None:
        """See `Gate.denial`. The store is not asked, so there is nothing to await."""
        return self.sync.denial(*descriptors, domain=domain)

    def treats_alike(
        self,
        one: Sequence[DescriptorLike],
        other: Sequence[DescriptorLike],
        *,
        domain: str | None = None,
    ) -> bool:
        """See `Gate.treats_alike`."""
        return self.sync.treats_alike(one, other, domain=domain)

    def counters_of(
        self, counted: Counted, override: Override | None
    ) -> tuple[Counters, Inherited | None]:
        """See `Gate.counters_of`."""
        return self.sync.counters_of(counted, override)

    def reload(self) -> None:
        """See `Gate.reload`. It reads files: call it in a thread."""
        self.sync.reload()

    def replace(self, rules: RuleSet | str | Mapping[str, Any]) -> None:
        """See `Gate.replace`."""
        self.sync.replace(rules)

    def prepare(self, rules: RuleSet) -> Prepared:
        """See `Gate.prepare`."""
        return self.sync.prepare(rules)

    def swap(self, prepared: Prepared) -> None:
        """See `Gate.swap`."""
        self.sync.swap(prepared)

    def reject(self, reason: str, prepared: Prepared | None = None) -> None:
        """See `Gate.reject`."""
        self.sync.reject(reason, prepared)

    def group(self, key: str, ipv4: int = 32, ipv6: int = 64) -> None:
        """See `Gate.group`."""
        self.sync.group(key, ipv4, ipv6)

    def watch(self) -> None:
        """See `Gate.watch`."""
        self.sync.watch()

    def subscribe(self, hook: Hook) -> None:
        """See `Gate.subscribe`."""
        self.sync.subscribe(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """See `Gate.unsubscribe`."""
        self.sync.unsubscribe(hook)

    def close(self) -> None:
        """See `Gate.close`."""
        self.sync.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"


AnyGate = Gate | AsyncGate
