"""The failure policies: how to answer when the server cannot be asked.

- ``open``: allowed, as if the key had never been seen
- ``closed``: refused, to be tried again in a second
- ``local``: decided by a `MemoryStore` of this process, with its share of the limit

Such a decision took its units in this process or nowhere, so they must never be given back
to the server. Its mark says so: the server's marks are nanoseconds since 1970, those of local
decisions are negative.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from penstock.decision import Decision, decided
from penstock.durations import DAY, LONGEST, SECOND
from penstock.errors import StoreUnavailable
from penstock.events import Degraded, Event
from penstock.limit import Limit, Soft
from penstock.stores.base import Counters
from penstock.stores.memory import MemoryStore
from penstock.stores.redis.pending_call import KeyOperation, PendingCall
from penstock.stores.redis.wire import ATTEMPT, CHARGE, DECIDES, HIT, REFUND

if TYPE_CHECKING:
    from penstock.events import Hooks

ASK_AGAIN = SECOND
NOWHERE = -2  # the mark of a decision that took nothing anywhere
_LOCAL = -3  # of one that took here: this minus its mark in the local store


class Fallback:
    """Answers calls by policy, and emits events."""

    def __init__(self, store: str, policy: str, share: float, max_keys: int, hooks: Hooks) -> None:
        self.policy = policy
        self.share = share
        self.local = MemoryStore(max_keys=max_keys)
        self._store = store
        self._hooks = hooks
        self._shares: dict[Limit, Counters] = {}

    def degrade(self, call: PendingCall, reason: str) -> None:
        """Settle the call without the server."""
        if not call.claim():
            return
        if self._hooks:
            for operation in call.operations:
                self._hooks.emit(self._event(operation, reason))
        if call.is_group:
            call.resolve(self._decide_group(call.operations))
        elif call.first.verb in DECIDES:
            call.resolve(self._decide(call.first))
        elif call.first.verb in (CHARGE, REFUND):
            # Lost. An exception would hide what the caller is doing; the event reports it.
            call.resolve(None)
        else:
            call.resolve(StoreUnavailable(f"{self._store}: {reason}"))

    def decide(self, operation: KeyOperation, reason: str) -> Decision:
        """A decision on one operation without the server."""
        if self._hooks:
            self._hooks.emit(self._event(operation, reason))
        return self._decide(operation)

    def refund_here(self, counters: Counters, key: str, cost: int, mark: int, kept: int) -> None:
        """Give back what a degraded decision took."""
        if mark <= _LOCAL:
            self.counters(counters.limit).refund(key, cost, _LOCAL - mark, kept)

    def _event(self, operation: KeyOperation, reason: str) -> Event:
        limit = operation.counters.limit
        policy = limit.on_failure or self.policy
        return Degraded(self._store, limit, operation.name, str(operation.verb), policy, reason)

    def _decide(self, operation: KeyOperation) -> Decision:
        limit = operation.counters.limit
        policy = limit.on_failure or self.policy
        if policy == "local":
            counters = self.counters(limit)
            name, cost = operation.name, operation.cost
            if operation.verb == ATTEMPT:
                seen = counters.attempt(name, cost, operation.mark)
            elif operation.verb == HIT:
                seen = counters.hit(name, cost)
            else:
                seen = counters.peek(name, cost)
            return seen.as_degraded(limit, _LOCAL - seen._mark)
        if policy == "open":
            room = max(0, limit.burst - operation.cost)
            return decided(limit, True, room, 1, 0, 0, 0, False, NOWHERE, True)
        return decided(limit, False, 0, 1, ASK_AGAIN, ASK_AGAIN, 0, False, NOWHERE, True)

    def _decide_group(self, operations: list[KeyOperation]) -> list[Decision]:
        """All or nothing: what was taken is given back if another member refuses."""
        decisions = [self._decide(operation) for operation in operations]
        if all(decisions):
            return decisions
        for operation, decision in zip(operations, decisions, strict=True):
            if decision:
                counters = operation.counters
                self.refund_here(counters, operation.name, operation.cost, decision._mark, 0)
        return decisions

    def counters(self, limit: Limit) -> Counters:
        counters = self._shares.get(limit)
        if counters is None:
            share = self.share if limit.share is None else limit.share
            counters = self._shares[limit] = self.local.counters(scaled(limit, share))
        return counters

    def release(self, limit: Limit) -> bool:
        """Forget this process's part of a limit, if nothing in it matters any more."""
        counters = self._shares.get(limit)
        if counters is None or self.local.release(counters.limit):
            self._shares.pop(limit, None)
            return True
        return False


def scaled(limit: Limit, share: float) -> Limit:
    """The part of a limit that is one process's.

    Amounts are rounded down, so that shares which add up to one never admit more than the
    limit. A part of less than one unit is one unit: for a bucket in a time that is longer
    in proportion, for a window in the same one.
    """
    if share == 1:
        return limit
    part = limit.amount * share
    changes: dict[str, Any] = {"amount": max(1, math.floor(part))}
    period = limit.period_ns
    if limit.algorithm in ("token_bucket", "leaky_bucket"):
        changes["burst"] = max(1, math.floor(limit.burst * share))
        if part < 1:
            period = min(math.ceil(period / part), LONGEST)
            changes["per"] = f"{period}ns"
    if limit.debt:
        changes["debt"] = math.floor(limit.debt * share) or None
    if limit.soft is not None:
        overrun = math.floor(limit.soft.overrun * share)
        changes["soft"] = Soft(overrun, limit.soft.grace_ns) if overrun else None
    if period // changes["amount"] > DAY:
        changes["warm_up"] = None  # there is none for what is so slow
    return limit.changed(**changes, on_failure=None, share=None)
