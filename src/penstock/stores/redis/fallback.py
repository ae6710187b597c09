"""The failure policies: how to answer when the server cannot be asked.

- ``open``: allowed, as if the key had never been seen
- ``closed``: refused, to be tried again in a second
- ``local``: decided by a `MemoryStore` of this process, with its share of the limit

A limit of 0 refuses by any policy.

Such a decision took its units in this process or nowhere, so they must never be given back
to the server. Its mark says so: the server's marks are nanoseconds since 1970, those of local
decisions are negative.
"""

from __future__ import annotations

import math
from typing import Any

from penstock.decision import Decision, decided
from penstock.durations import DAY, LONGEST, SECOND
from penstock.errors import StoreUnavailable
from penstock.events import Degraded, Hooks
from penstock.limit_options import Soft
from penstock.limits import Limit
from penstock.stores.base import Counters
from penstock.stores.memory import MemoryStore
from penstock.stores.redis.operation import (
    ATTEMPT,
    CANCEL,
    CHARGE,
    DECIDES,
    GIVES_BACK,
    HIT,
    RESERVE,
    KeyOperation,
)
from penstock.stores.redis.pending_call import PendingCall

ASK_AGAIN = SECOND
NOWHERE = -2  # the mark of a decision that took nothing anywhere
_LOCAL = -3  # of one that took here: this minus its mark in the local store


class Fallback:
    """Answers calls by policy, and emits events."""

    def __init__(self, store: str, policy: str, share: float, max_keys: int, hooks: Hooks) -> None:
        self.policy = policy
        self.share = share
        self.part = 1.0  # of each limit, that all processes of this site share
        self.local = MemoryStore(max_keys=max_keys)
        self._store = store
        self._hooks = hooks
        self._shares: dict[tuple[Limit, str | None], Counters] = {}

    def degrade(self, call: PendingCall, reason: str) -> None:
        """Settle the call without the server."""
        if not call.claim():
            return
        for operation in call.operations:
            self._report(operation, reason)
        if call.is_group:
            call.resolve(self._decide_group(call.operations))
        elif call.first.verb in DECIDES:
            call.resolve(self._decide(call.first))
        elif call.first.verb == CHARGE or call.first.verb in GIVES_BACK:
            # Lost. An exception would hide what the caller is doing; the event reports it.
            call.resolve(None)
        else:
            call.resolve(StoreUnavailable(f"{self._store}: {reason}"))

    def decide(self, operation: KeyOperation, reason: str) -> Decision:
        """A decision on one operation without the server."""
        self._report(operation, reason)
        return self._decide(operation)

    def refund(self, counters: Counters, key: str, cost: int, mark: int, kept: int = 0) -> None:
        """Give back what a degraded decision took."""
        if mark <= _LOCAL:
            self.counters(counters.limit, counters.name).refund(key, cost, _LOCAL - mark, kept)

    def give_back(self, operation: KeyOperation) -> None:
        """`refund`, or the cancellation of a reservation."""
        counters, mark = operation.counters, operation.mark
        if operation.verb != CANCEL:
            self.refund(counters, operation.name, operation.cost, mark, operation.kept)
        elif mark <= _LOCAL:
            local = self.counters(counters.limit, counters.name)
            local.cancel(operation.name, operation.cost, _LOCAL - mark, operation.kept)

    def _report(self, operation: KeyOperation, reason: str) -> None:
        if self._hooks:
            limit, name, verb = operation.counters.limit, operation.name, operation.verb
            policy = limit.on_failure or self.policy
            self._hooks.emit(Degraded(self._store, limit, name, verb, policy, reason))

    def _decide(self, operation: KeyOperation) -> Decision:
        limit = operation.counters.limit
        if limit.amount == 0:  # the server would say nothing else
            return decided(limit, False, 0, 1, -1, 0, 0, False, NOWHERE)
        policy = limit.on_failure or self.policy
        if policy == "local":
            counters = self.counters(limit, operation.counters.name)
            name, cost = operation.name, operation.cost
            if operation.verb == ATTEMPT:
                decision = counters.attempt(name, cost, operation.mark)
            elif operation.verb == RESERVE:
                decision = counters.reserve(name, cost, operation.mark)
            elif operation.verb == HIT:
                decision = counters.hit(name, cost)
            else:
                decision = counters.peek(name, cost)
            return decision.as_degraded(limit, _LOCAL - decision._mark)
        if policy == "open":
            full = limit.burst if limit.initial is None else limit.initial
            room = max(0, full - operation.cost)
            return decided(limit, True, room, 1, 0, 0, 0, False, NOWHERE, True)
        return decided(limit, False, 0, 1, ASK_AGAIN, ASK_AGAIN, 0, False, NOWHERE, True)

    def _decide_group(self, operations: list[KeyOperation]) -> list[Decision]:
        """All or nothing: what was taken is given back if another member refuses."""
        decisions = [self._decide(operation) for operation in operations]
        if all(decisions):
            return decisions
        for operation, decision in zip(operations, decisions, strict=True):
            if decision:
                self.refund(operation.counters, operation.name, operation.cost, decision._mark)
        return decisions

    def counters(self, limit: Limit, name: str | None = None) -> Counters:
        counters = self._shares.get((limit, name))
        if counters is None:
            share = self.share if limit.share is None else limit.share
            counters = self.local.counters(scaled(limit, share * self.part), name)
            self._shares[limit, name] = counters
        return counters

    def clear(self, counters: Counters) -> None:
        """Forget this process's part of a limit."""
        share = self._shares.get((counters.limit, counters.name))
        if share is not None:
            share.clear()

    def release(self, limit: Limit) -> bool:
        """Drop this process's part of a limit, unless live keys would be lost."""
        counters = self._shares.get((limit, None))
        if counters is None or self.local.release(counters.limit):
            self._shares.pop((limit, None), None)
            return True
        return False


def scaled(limit: Limit, share: float) -> Limit:
    """The part of a limit that one process may use.

    Amounts are rounded down, so that shares that add up to one never admit more than the
    limit. A part of less than one unit becomes one unit; a bucket then refills it in a time
    that is longer in proportion.
    """
    if share == 1 or limit.amount == 0:
        return limit
    part = limit.amount * share
    changes: dict[str, Any] = {"amount": max(1, math.floor(part))}
    period = limit.period_ns
    if limit.algorithm in ("token_bucket", "leaky_bucket"):
        changes["burst"] = max(1, math.floor(limit.burst * share))
        if part < 1:
            period = min(math.ceil(period / part), LONGEST)
            changes["per"] = f"{period}ns"
    if limit.initial is not None:
        changes["initial"] = min(changes["burst"], math.floor(limit.initial * share))
    if limit.debt:
        changes["debt"] = math.floor(limit.debt * share) or None
    if limit.soft is not None:
        overrun = math.floor(limit.soft.overrun * share)
        changes["soft"] = Soft(overrun, limit.soft.grace_ns) if overrun else None
    if period // changes["amount"] > DAY:
        changes["warm_up"] = None  # so slow a limit has none
    return limit.changed(**changes, on_failure=None, share=None)
