"""Outcome: what was decided on a request, and how to take it back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.gate import Gate
from penstock.integrations.http import Told
from penstock.rules.verdict import DENIED, Descriptor, Status, Verdict
from penstock.rules.weigh import judged
from penstock.stores.base import Counters, Store

logger = logging.getLogger("penstock")


class Outcome:
    """May the request go ahead? Handlers find it where their framework keeps such things.

    - ``allowed``: the answer, also as the truth value
    - ``shadow``: it would have been refused
    - ``told``: the name and the `Decision` of every limit that was asked
    - ``key``: what was counted by
    """

    __slots__ = ("allowed", "key", "shadow")

    def __init__(self, allowed: bool, key: str) -> None:
        self.allowed = allowed
        self.key = key
        self.shadow = False

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def told(self) -> Sequence[Told]:
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
        """Return what was taken, if anything was. What it returns, a coroutine has to await.

        A store that fails keeps it: the answer to the request is not spoiled for that.
        """
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

    __slots__ = ("_cost", "_counted", "decisions")

    def __init__(
        self,
        counted: Sequence[tuple[str, Counters]],
        key: str,
        cost: int,
        decisions: Sequence[Decision],
    ) -> None:
        self.allowed = decisions[0].allowed if len(decisions) == 1 else all(decisions)
        self.key = key
        self.shadow = False
        self._counted = counted
        self._cost = cost
        self.decisions = decisions

    @property
    def told(self) -> Sequence[Told]:
        if len(self.decisions) == 1:
            return ((self._counted[0][0], self.decisions[0]),)
        return [(n, d) for (n, _), d in zip(self._counted, self.decisions, strict=True)]

    def give_back(self, asynchronous: bool) -> Awaitable[Any] | None:
        if not all(self.decisions):
            return None
        pairs = zip(self._counted, self.decisions, strict=True)
        refunds = [(counters, decision._mark) for (_, counters), decision in pairs]
        if asynchronous:
            return _give_back(refunds, self.key, self._cost)
        try:
            for counters, mark in refunds:
                counters.refund(self.key, self._cost, mark)
        except StoreError as error:
            _kept(error)
        return None


async def _give_back(refunds: Sequence[tuple[Counters, int]], key: str, cost: int) -> None:
    # All are asked before the first is awaited: who is cancelled then has given back all.
    asked = []
    for counters, mark in refunds:
        try:
            asked.append(counters.submit("refund", key, cost, mark))
        except StoreError as error:
            _kept(error)
    for back in asked:
        await _await_back(back)


async def _await_back(back: Awaitable[Any]) -> None:
    try:
        await back
    except StoreError as error:
        _kept(error)


def _kept(error: StoreError) -> None:
    logger.warning("a hit was not given back, as the store failed: %s", error)


class FromGate(Outcome):
    """Of a request against rules."""

    __slots__ = ("_cost", "_descriptors", "_domain", "_gate", "verdict")

    def __init__(
        self,
        gate: Gate,
        descriptors: Sequence[Descriptor],
        domain: str | None,
        cost: int,
        verdict: Verdict,
    ) -> None:
        super().__init__(verdict.allowed, "" if verdict.rule is None else verdict.rule.id)
        self._gate = gate
        self._descriptors = descriptors
        self._domain = domain
        self._cost = cost
        self.verdict = verdict

    @property
    def told(self) -> Sequence[Told]:
        return self.verdict.told()

    @property
    def denied(self) -> bool:
        return any(s.reason == DENIED and not s.allowed for s in self.verdict.statuses)

    def give_back(self, asynchronous: bool) -> Awaitable[Any] | None:
        taken = self._taken()
        if not taken:
            return None
        try:
            back: Any = self._gate.check(*taken, domain=self._domain, hits=-self._cost)
        except StoreError as error:
            _kept(error)
            return None
        return _await_back(back) if asynchronous else None

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

    def _taken(self) -> list[Descriptor]:
        """The descriptors for which something was taken: a gate in shadow allows, and takes not."""
        statuses = self.verdict.statuses
        refused = not judged(statuses)
        return [
            descriptor
            for descriptor, status in zip(self._descriptors, statuses, strict=True)
            if status.decision is not None
            and status.decision.allowed
            and (status.shadow or not refused)
        ]


def _without_store(status: Status) -> bool:
    decision = status.decision
    return decision is not None and decision.degraded and decision.limit.on_failure is None
