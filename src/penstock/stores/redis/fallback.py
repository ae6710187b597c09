"""What is answered when the server cannot be asked: the failure policies.

- ``open``: allowed, as if the key had never been seen
- ``closed``: refused, to be tried again in a second
- ``local``: decided by a `MemoryStore` of this process, with its share of the limit

What such a decision took lies in this process or nowhere, so it must never be given back
to the server: its mark says so. Marks of the server's are nanoseconds since 1970, those
of local decisions are negative.
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
from penstock.stores.redis.ticket import Question, Ticket
from penstock.stores.redis.wire import ATTEMPT, CHARGE, DECIDES, HIT, REFUND

if TYPE_CHECKING:
    from penstock.events import Hooks

ASK_AGAIN = SECOND
NOWHERE = -2  # the mark of a decision that took nothing anywhere
_LOCAL = -3  # and of those that were booked here: this minus their mark in the local store


class Fallback:
    """Answers tickets by policy, and tells the hooks."""

    def __init__(self, store: str, policy: str, share: float, max_keys: int, hooks: Hooks) -> None:
        self.policy = policy
        self.share = share
        self.local = MemoryStore(max_keys=max_keys)
        self._store = store
        self._hooks = hooks
        self._shares: dict[Limit, Counters] = {}

    def degrade(self, ticket: Ticket, reason: str) -> None:
        """Settle the ticket without the server."""
        if not ticket.claim():
            return
        if self._hooks:
            for question in ticket.questions:
                self._hooks.emit(self._event(question, reason))
        if ticket.members:
            ticket.tell(self._decide_group(ticket.questions))
        elif ticket.verb in DECIDES:
            ticket.tell(self._decide(ticket))
        elif ticket.verb in (CHARGE, REFUND):
            # Lost. Raising would hide what the caller was about; the event tells it.
            ticket.tell(None)
        else:
            ticket.tell(StoreUnavailable(f"{self._store}: {reason}"))

    def decide(self, question: Question, reason: str) -> Decision:
        """A decision on one question without the server."""
        if self._hooks:
            self._hooks.emit(self._event(question, reason))
        return self._decide(question)

    def refund_here(self, counters: Counters, key: str, cost: int, mark: int, kept: int) -> None:
        """Give back what a degraded decision took."""
        if mark <= _LOCAL:
            self.counters(counters.limit).refund(key, cost, _LOCAL - mark, kept)

    def _event(self, question: Question, reason: str) -> Event:
        limit = question.counters.limit
        policy = limit.on_failure or self.policy
        return Degraded(self._store, limit, question.name, str(question.verb), policy, reason)

    def _decide(self, question: Question) -> Decision:
        limit = question.counters.limit
        policy = limit.on_failure or self.policy
        if policy == "local":
            counters = self.counters(limit)
            name, cost = question.name, question.cost
            if question.verb == ATTEMPT:
                seen = counters.attempt(name, cost, question.mark)
            elif question.verb == HIT:
                seen = counters.hit(name, cost)
            else:
                seen = counters.peek(name, cost)
            return seen.as_degraded(limit, _LOCAL - seen._mark)
        if policy == "open":
            room = max(0, limit.burst - question.cost)
            return decided(limit, True, room, 1, 0, 0, 0, False, NOWHERE, True)
        return decided(limit, False, 0, 1, ASK_AGAIN, ASK_AGAIN, 0, False, NOWHERE, True)

    def _decide_group(self, questions: list[Question]) -> list[Decision]:
        """All or nothing here, too: what was taken is given back when another refuses."""
        decisions = [self._decide(question) for question in questions]
        if all(decisions):
            return decisions
        for question, decision in zip(questions, decisions, strict=True):
            if decision:
                counters = question.counters
                self.refund_here(counters, question.name, question.cost, decision._mark, 0)
        return decisions

    def counters(self, limit: Limit) -> Counters:
        found = self._shares.get(limit)
        if found is None:
            share = self.share if limit.share is None else limit.share
            found = self._shares[limit] = self.local.counters(scaled(limit, share))
        return found

    def release(self, limit: Limit) -> bool:
        """Let go of this process's part of a limit, if nothing in it matters any more."""
        found = self._shares.get(limit)
        if found is None or self.local.release(found.limit):
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
