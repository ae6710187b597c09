"""Outcome: what was decided on a request, and how to take it back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator, Sequence
from dataclasses import replace
from typing import Any

from penstock.async_gate import AnyGate
from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.gate import Gate
from penstock.integrations.deciding.http import NamedDecision
from penstock.rules.deciding.taken import Taken
from penstock.rules.deciding.verdict import DENIED, Descriptor, Status, Verdict
from penstock.rules.deciding.work import Single as StoreCall
from penstock.steps import CallCounters, drive, drive_async
from penstock.stores.base import Counters, Store
from penstock.undecided import has_lockout, take

logger = logging.getLogger("penstock")

# Counters, and what clients are told that the limit is called.
Named = Sequence[tuple[str, Counters]]


class Outcome:
    """May the request go ahead? Handlers find it where their framework keeps such things.

    - ``allowed``: the answer, also as the truth value
    - ``shadow``: it would have been refused
    - ``told``: the name and the `Decision` of every limit that was asked
    - ``key``: what was counted by
    - ``returned``: what was taken was given back, as the request came to nothing
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
    def told(self) -> Sequence[NamedDecision]:
        return ()

    @property
    def denied(self) -> bool:
        """Refused by a deny list, whatever the limits say."""
        return False

    @property
    def final(self) -> bool:
        """Refused for what it is, and not for coming too often: nothing is answered instead."""
        return self.denied

    def give_back(self, asynchronous: bool) -> Awaitable[Any] | None:
        """Return what was taken, if anything was, once. A coroutine has to await the result.

        A store that fails keeps it: the answer to the request is not spoiled for that.
        """
        return None

    def withdraw(self, asynchronous: bool) -> Awaitable[Any] | None:
        """`give_back`, as another limit has refused the request; ``told`` is as it is then."""
        return None

    def confirm(self, asynchronous: bool) -> Awaitable[Any] | None:
        """What was taken counts: from now on, it may be what starts a lockout."""
        return None


class Undecided(Outcome):
    """The store could not be asked, and the failure policy answered."""

    __slots__ = ()

    def __init__(self, allowed: bool) -> None:
        super().__init__(allowed, "")


class Unclear(Outcome):
    """The path has several meanings, and which rules apply depends on which is meant."""

    __slots__ = ("error",)

    def __init__(self, error: str) -> None:
        super().__init__(False, "")
        self.error = error

    @property
    def final(self) -> bool:
        return True


def limits_in(error: StoreError, counted: Sequence[tuple[str, Counters]]) -> StoreError:
    """The error, which knows by now what could not be decided."""
    error.policies = tuple(counters.limit.on_failure for _, counters in counted)
    return error


def fails_closed(error: StoreError, said: str | None, store: Store) -> bool:
    """Whether who cannot be decided on is refused: a limit's own policy goes before all."""
    return "closed" in [own or said or store.on_failure for own in error.policies or (None,)]


class FromLimits(Outcome):
    """Of one key against one limit or several."""

    __slots__ = ("_cost", "_counted", "_undecided", "decisions")

    def __init__(
        self,
        counted: Named,
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
        self._undecided = undecided  # what to ask when it is known whether it counts

    @property
    def told(self) -> Sequence[NamedDecision]:
        if len(self.decisions) == 1:
            return ((self._counted[0][0], self.decisions[0]),)
        return [(n, d) for (n, _), d in zip(self._counted, self.decisions, strict=True)]

    def give_back(self, asynchronous: bool) -> Awaitable[Any] | None:
        return self._return(asynchronous, look=False)

    def withdraw(self, asynchronous: bool) -> Awaitable[Any] | None:
        return self._return(asynchronous, look=True)

    def confirm(self, asynchronous: bool) -> Awaitable[Any] | None:
        return self._settle(self._decided(), asynchronous, look=False)

    def _return(self, asynchronous: bool, look: bool) -> Awaitable[Any] | None:
        if self.returned or not all(self.decisions):
            return None
        self.returned = True
        pairs = zip(self._counted, self.decisions, strict=True)
        refunds = [
            CallCounters(counters, "refund", (self.key, self._cost, decision._mark))
            for (_, counters), decision in pairs
        ]
        return self._settle([*refunds, *self._decided()], asynchronous, look)

    def _decided(self) -> Sequence[CallCounters]:
        """Once: what was undecided until now."""
        steps, self._undecided = self._undecided, ()
        return steps

    def _settle(
        self, steps: Sequence[CallCounters], asynchronous: bool, look: bool
    ) -> Awaitable[Any] | None:
        if not steps:
            return None
        if asynchronous:
            return self._settle_async(steps, look)
        try:
            for step in steps:
                step.run()
            if look:
                self.decisions = [c.peek(self.key, self._cost) for _, c in self._counted]
        except StoreError as error:
            _kept(error)
        return None

    async def _settle_async(self, steps: Sequence[CallCounters], look: bool) -> None:
        if await _all_of(steps) and look:
            try:
                self.decisions = [
                    await c.submit("peek", self.key, self._cost) for _, c in self._counted
                ]
            except StoreError as error:
                _kept(error)


async def _all_of(steps: Sequence[CallCounters]) -> bool:
    """Whether the store did all of it.

    All are asked before the first is awaited: who is cancelled then has given back all.
    """
    asked, done = [], True
    for step in steps:
        try:
            asked.append(step.run_async())
        except StoreError as error:
            _kept(error)
            done = False
    for back in asked:
        try:
            await back
        except StoreError as error:
            _kept(error)
            done = False
    return done


def by_gate(
    gate: AnyGate, descriptors: Sequence[Descriptor], domain: str | None, cost: int, waits: bool
) -> Generator[Awaitable[Any], Any, FromGate]:
    """Decide by rules, so that exactly what was taken can be given back."""
    taken = Taken()
    waits = waits and gate.store.waits
    try:
        if isinstance(gate, Gate):
            verdict = gate.check_into(taken, descriptors, domain, cost)
        elif waits:
            verdict = yield gate.check_into(taken, descriptors, domain, cost)
        else:
            verdict = gate.sync.check_into(taken, descriptors, domain, cost)
    except BaseException:
        (taken.give_back_async if waits else taken.give_back)()
        raise
    return FromGate(gate, descriptors, domain, verdict, taken)


def undecided(
    store: Store, counted: Named, key: str, cost: int, waits: bool
) -> Generator[Awaitable[Any], Any, FromLimits]:
    """Decide on a request of which only its answer says whether it counts."""
    flow = take(store, [(counters, key, cost) for _, counters in counted])
    taken = (yield drive_async(flow)) if waits else drive(flow)
    return FromLimits(counted, key, cost, taken.decisions, taken.settle)


def needs_answer(counted: Named) -> bool:
    """Whether it matters before a request has ended if it will count."""
    return any(has_lockout(counters) for _, counters in counted)


def _kept(error: StoreError) -> None:
    logger.warning("a hit was not given back, as the store failed: %s", error)


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
    def told(self) -> Sequence[NamedDecision]:
        return self.verdict.told()

    @property
    def denied(self) -> bool:
        return any(s.reason == DENIED and not s.allowed for s in self.verdict.statuses)

    def give_back(self, asynchronous: bool) -> Awaitable[Any] | None:
        return self._return(asynchronous, look=False)

    def withdraw(self, asynchronous: bool) -> Awaitable[Any] | None:
        return self._return(asynchronous, look=True)

    def _return(self, asynchronous: bool, look: bool) -> Awaitable[Any] | None:
        refunds = [] if self.returned else self._taken.refunds()
        if not refunds:
            return None
        self.returned = True
        if asynchronous:
            return self._return_async(refunds, look)
        try:
            for verb, counters, args in refunds:
                getattr(counters, verb)(*args)
            if look:
                gate = self._gate if isinstance(self._gate, Gate) else self._gate.sync
                self.verdict = gate.check(*self._looks(), domain=self._domain)
        except StoreError as error:
            _kept(error)
        return None

    async def _return_async(self, refunds: Sequence[StoreCall], look: bool) -> None:
        if await _all_of([CallCounters(counters, verb, args) for verb, counters, args in refunds]):
            check: Any = self._gate.check
            try:
                if look:
                    self.verdict = await check(*self._looks(), domain=self._domain)
            except StoreError as error:
                _kept(error)

    def _looks(self) -> list[Descriptor]:
        return [replace(each, hits=0) for each in self._descriptors]

    def under(self, closed: bool) -> Outcome:
        """The same, if ``on_failure`` is said, for limits that do not say it themselves.

        A store with a failure policy has decided by its own while it could not be asked.
        """
        statuses = [status for status in self.verdict.statuses if not status.shadow]
        away = [status for status in statuses if _without_store(status)]
        if not away or self.allowed is not closed:
            return self
        if closed or all(status.allowed or status in away for status in statuses):
            return Undecided(not closed)
        return self


def _without_store(status: Status) -> bool:
    decision = status.decision
    return decision is not None and decision.degraded and decision.limit.on_failure is None
