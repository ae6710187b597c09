"""Groups: several keys that are taken from together, all or none.

The script decides on a group as a whole. In a cluster it can only do so for keys of one slot,
so there may be several groups, and what one took is given back when another refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis.crc import key_slot

from penstock.decision import Decision
from penstock.stores.base import Counters, check_cost, check_key
from penstock.stores.redis.fallback import Fallback
from penstock.stores.redis.operation import (
    ATTEMPT,
    CANCEL,
    HIT,
    REFUND,
    RESERVE,
    TAKES,
    KeyedCounters,
    KeyOperation,
)
from penstock.stores.redis.pending_call import PendingCall

Item = tuple[Counters, str, int]
# The operations of a group, and the place of each in the list of items.
Group = tuple[list[KeyOperation], list[int]]


def groups_of(items: Iterable[Item], by_slots: bool, attempt: bool) -> list[Group]:
    """The groups that can be decided as a whole: one, or in a cluster one for each slot."""
    verb = ATTEMPT if attempt else HIT
    groups: dict[int, Group] = {}
    for at, (counters, key, cost) in enumerate(items):
        assert isinstance(counters, KeyedCounters)
        operation = KeyOperation(counters, check_key(key), verb, check_cost(cost), size=0)
        slot = key_slot(operation.key) if by_slots else 0
        operations, places = groups.setdefault(slot, ([], []))
        operations.append(operation)
        places.append(at)
    for operations, _ in groups.values():
        operations[0].size = len(operations)
    return [*groups.values()]


def in_order(groups: list[Group], answers: Sequence[Any]) -> list[Decision]:
    """The decisions of all groups, in the order of the items."""
    placed = [
        (at, decision)
        for (_, places), answer in zip(groups, answers, strict=True)
        for at, decision in zip(places, _decisions(answer), strict=True)
    ]
    return [decision for _, decision in sorted(placed, key=lambda pair: pair[0])]


class GroupRemainder(PendingCall):
    """A group without one member, on which the failure policy has decided."""

    def __init__(self, whole: PendingCall, at: int, decision: Decision, fallback: Fallback) -> None:
        first, *others = [one for number, one in enumerate(whole.operations) if number != at]
        size = 1 + len(others)
        first = KeyOperation(first.counters, first.name, first.verb, first.cost, size=size)
        super().__init__([first, *others])
        self.due, self.slot, self.tries = whole.due, whole.slot, whole.tries
        self._whole, self._at, self._decision = whole, at, decision
        self._fallback = fallback

    @property
    def settled(self) -> bool:
        return self._whole.settled

    @property
    def abandoned(self) -> bool:
        return self._whole.abandoned

    def claim(self) -> bool:
        return self._whole.claim()

    def resolve(self, answer: Any) -> None:
        if not isinstance(answer, Exception):
            answer = [*_decisions(answer)]
            if not all(answer):
                missing, mark = self._whole.operations[self._at], self._decision._mark
                self._fallback.refund(missing.counters, missing.name, missing.cost, mark)
            answer.insert(self._at, self._decision)
        self._whole.resolve(answer)


# Giving back ------------------------------------------------------------------------


def refunds(calls: Sequence[PendingCall], answers: Sequence[Any]) -> list[KeyOperation]:
    """What must be given back if some groups were allowed and others were not."""
    taken = [taken_by(call, answer) for call, answer in zip(calls, answers, strict=True)]
    return [] if all(taken) else [refund for refunds in taken for refund in refunds]


def taken_by(call: PendingCall, answer: Any) -> list[KeyOperation]:
    """The refunds of what a call took; none if it took nothing."""
    decisions = _decisions(answer)
    if call.first.verb not in TAKES or not decisions or not all(decisions):
        return []
    verb = CANCEL if call.first.verb == RESERVE else REFUND
    return [
        KeyOperation(taken.counters, taken.name, verb, taken.cost, decision._mark)
        for taken, decision in zip(call.operations, decisions, strict=True)
    ]


def _decisions(answer: Any) -> list[Decision]:
    """Those of a group or of a single operation; none if there is no decision."""
    if isinstance(answer, Decision):
        return [answer]
    return answer if isinstance(answer, list) else []
