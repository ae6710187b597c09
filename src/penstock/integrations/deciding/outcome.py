"""Outcome: what was decided on a request, and how to give back what was taken for it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

from penstock.async_gate import AnyGate
from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.flow_steps import CallCounters
from penstock.integrations.deciding.responses import NamedDecision
from penstock.rules.deciding.store_calls import Taken
from penstock.rules.deciding.verdict import DENIED, Descriptor, Status, Verdict
from penstock.stores.base import Counters

logger = logging.getLogger("penstock")

# Counters, each with the name of its limit in headers.
NamedCounters = Sequence[tuple[str, Counters]]


class Outcome:
    """Whether the request may go ahead. Frameworks hand it to handlers.

    - ``allowed``: the answer, also as the truth value
    - ``shadow``: it would have been refused
    - ``named_decisions``: the name and the `Decision` of every limit that was checked
    - ``key``: the key that was counted
    - ``returned``: what was taken was given back
    """

    __slots__ = ("allowed", "key", "returned", "shadow")

    def __init__(self, allowed: bool, key: str) -> None:
        self.allowed = allowed
        self.key = key
        self.shadow = False
        self.returned = False

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def named_decisions(self) -> Sequence[NamedDecision]:
        return ()

    @property
    def denied(self) -> bool:
        """Refused by a deny list, whatever the limits say."""
        return False

    @property
    def holds_slots(self) -> bool:
        """Whether the request holds slots of a rule with ``concurrency``."""
        return False

    @property
    def final(self) -> bool:
        """Refused for what it is, not for its rate: no fallback and no queue."""
        return self.denied

    # Each of these returns what has to be awaited, if anything. If the store fails, the hit
    # stays counted, and the response is sent all the same.

    def give_back(self, asynchronous: bool) -> Awaitable[Any] | None:
        """Return what was taken, if anything was, once."""
        return self._settle(self._refunds(), asynchronous, peek=False)

    def withdraw(self, asynchronous: bool) -> Awaitable[Any] | None:
        """`give_back` because another limit refused; ``named_decisions`` is updated."""
        return self._settle([*self._refunds(), *self._releases()], asynchronous, peek=True)

    def release(self, asynchronous: bool) -> Awaitable[Any] | None:
        """Free the slots of the request, once: it has ended."""
        return self._settle(self._releases(), asynchronous, peek=False)

    def confirm(self, asynchronous: bool) -> Awaitable[Any] | None:
        """Count what was taken. From now on, it may start a lockout."""
        return None

    def _refunds(self) -> Sequence[CallCounters]:
        return ()

    def _releases(self) -> Sequence[CallCounters]:
        return ()

    def _peek(self) -> None:
        """Update ``named_decisions``."""

    async def _peek_async(self) -> None:
        """Update ``named_decisions``."""

    def _settle(
        self, steps: Sequence[CallCounters], asynchronous: bool, peek: bool
    ) -> Awaitable[Any] | None:
        if not steps:
            return None
        if asynchronous:
            return self._settle_async(steps, peek)
        try:
            for step in steps:
                step.run()
            if peek:
                self._peek()
        except StoreError as error:
            _log_kept(error)
        return None

    async def _settle_async(self, steps: Sequence[CallCounters], peek: bool) -> None:
        if await _all_of(steps) and peek:
            try:
                await self._peek_async()
            except StoreError as error:
                _log_kept(error)


async def _all_of(steps: Sequence[CallCounters]) -> bool:
    """Whether the store did all of it.

    All are submitted before the first is awaited: a task that is cancelled here has given
    back everything.
    """
    submitted, done = [], True
    for step in steps:
        try:
            submitted.append(step.run_async())
        except StoreError as error:
            _log_kept(error)
            done = False
    for refund in submitted:
        try:
            await refund
        except StoreError as error:
            _log_kept(error)
            done = False
    return done


def _log_kept(error: StoreError) -> None:
    logger.warning("a hit was not given back, as the store failed: %s", error)


class Undecided(Outcome):
    """The store was not available, and the failure policy decided."""

    __slots__ = ()

    def __init__(self, allowed: bool) -> None:
        super().__init__(allowed, "")


class Unclear(Outcome):
    """The path has several meanings, with different rules."""

    __slots__ = ("error",)

    def __init__(self, error: str) -> None:
        super().__init__(False, "")
        self.error = error

    @property
    def final(self) -> bool:
        return True


class FromLimits(Outcome):
    """Of one key against one limit or several."""

    __slots__ = ("_cost", "_counted", "_undecided", "decisions")

    def __init__(
        self,
        counted: NamedCounters,
        key: str,
        cost: int,
        decisions: Sequence[Decision],
        undecided: Sequence[CallCounters] = (),
    ) -> None:
        self.allowed = decisions[0].allowed if len(decisions) == 1 else all(decisions)
        self.key = key
        self.shadow = self.returned = False
        self._counted = counted
        self._cost = cost
        self.decisions = decisions
        self._undecided = undecided  # what to do when it is known whether the request counts

    @property
    def named_decisions(self) -> Sequence[NamedDecision]:
        if len(self.decisions) == 1:
            return ((self._counted[0][0], self.decisions[0]),)
        return [(n, d) for (n, _), d in zip(self._counted, self.decisions, strict=True)]

    def confirm(self, asynchronous: bool) -> Awaitable[Any] | None:
        return self._settle(self._take_undecided(), asynchronous, peek=False)

    def _refunds(self) -> Sequence[CallCounters]:
        if self.returned or not all(self.decisions):
            return ()
        self.returned = True
        hits = zip(self._counted, self._keys(), self.decisions, strict=True)
        refunds = [
            CallCounters(counters, "refund", (key, self._cost, decision._mark))
            for (_, counters), key, decision in hits
        ]
        return [*refunds, *self._take_undecided()]

    def _take_undecided(self) -> Sequence[CallCounters]:
        steps, self._undecided = self._undecided, ()
        return steps

    def _keys(self) -> Sequence[str]:
        """What each of the counters counts."""
        return [self.key] * len(self._counted)

    def _peek(self) -> None:
        hits = zip(self._counted, self._keys(), strict=True)
        self.decisions = [c.peek(key, self._cost) for (_, c), key in hits]

    async def _peek_async(self) -> None:
        hits = zip(self._counted, self._keys(), strict=True)
        self.decisions = [await c.submit("peek", key, self._cost) for (_, c), key in hits]


class FromKeys(FromLimits):
    """Of several keys, each against its own limits. ``key`` is the first that was refused."""

    __slots__ = ("_all_keys",)

    def __init__(
        self,
        counted: NamedCounters,
        keys: Sequence[str],
        cost: int,
        decisions: Sequence[Decision],
        undecided: Sequence[CallCounters] = (),
    ) -> None:
        refused = [key for key, each in zip(keys, decisions, strict=True) if not each.allowed]
        super().__init__(counted, (refused or keys)[0], cost, decisions, undecided)
        self._all_keys = keys

    def _keys(self) -> Sequence[str]:
        return self._all_keys


class FromGate(Outcome):
    """Of a request against rules."""

    __slots__ = ("_descriptors", "_domain", "_gate", "_taken", "verdict")

    def __init__(
        self,
        gate: AnyGate,
        descriptors: Sequence[Descriptor],
        domain: str | None,
        verdict: Verdict,
        taken: Taken,
    ) -> None:
        super().__init__(verdict.allowed, "" if verdict.rule is None else verdict.rule.id)
        self._gate = gate
        self._descriptors = descriptors
        self._domain = domain
        self._taken = taken
        self.verdict = verdict

    @property
    def named_decisions(self) -> Sequence[NamedDecision]:
        return self.verdict.named_decisions()

    @property
    def denied(self) -> bool:
        return any(s.reason == DENIED and not s.allowed for s in self.verdict.statuses)

    @property
    def holds_slots(self) -> bool:
        return bool(self.verdict.slots)

    def _refunds(self) -> Sequence[CallCounters]:
        refunds = [] if self.returned else self._taken.refunds()
        self.returned = self.returned or bool(refunds)
        slots = [(slot.counters, slot.key) for slot in self.verdict.slots]
        return [
            CallCounters(counters, verb, args)
            for verb, counters, args in refunds
            if (counters, args[0]) not in slots
        ]

    def _releases(self) -> Sequence[CallCounters]:
        """Slots are free when the request has ended, whether it is counted or not."""
        return [
            CallCounters(counters, verb, args)
            for verb, counters, args in self._gate.slots.take(self.verdict)
        ]

    def _peek(self) -> None:
        self.verdict = self._gate.check_now(*self._without_hits(), domain=self._domain)

    async def _peek_async(self) -> None:
        check: Any = self._gate.check
        self.verdict = await check(*self._without_hits(), domain=self._domain)

    def _without_hits(self) -> list[Descriptor]:
        return [replace(each, hits=0) for each in self._descriptors]

    def under(self, closed: bool) -> Outcome:
        """The outcome under an ``on_failure`` option, for limits without a policy of their own.

        A store with a failure policy has decided by that while it was not available.
        """
        statuses = [status for status in self.verdict.statuses if not status.shadow]
        degraded = [status for status in statuses if _without_store(status)]
        if not degraded or self.allowed is not closed:
            return self
        if closed or all(status.allowed or status in degraded for status in statuses):
            return Undecided(not closed)
        return self


def _without_store(status: Status) -> bool:
    decision = status.decision
    if decision is None or not decision.degraded or decision.limit.on_failure is not None:
        return False
    return decision._mark < 0  # else it was decided: by a site that is cut off
