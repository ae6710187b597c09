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
from penstock.stores.redis.counters import RedisCounters
from penstock.stores.redis.pending_call import KeyOperation, PendingCall
from penstock.stores.redis.wire import ATTEMPT, HIT, REFUND, TAKES

Item = tuple[Counters, str, int]
# The operations of a group, and the place of each in the list of items.
Group = tuple[list[KeyOperation], list[int]]


def groups_of(items: Iterable[Item], by_slots: bool, attempt: bool) -> list[Group]:
    """The groups that can be decided as a whole: one, or in a cluster one for each slot."""
    verb = ATTEMPT if attempt else HIT
    groups: dict[int, Group] = {}
    for at, (counters, key, cost) in enumerate(items):
        assert isinstance(counters, RedisCounters)
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
    return [
        KeyOperation(taken.counters, taken.name, REFUND, taken.cost, decision._mark)
        for taken, decision in zip(call.operations, decisions, strict=True)
    ]


def _decisions(answer: Any) -> list[Decision]:
    """Those of a group or of a single operation; none if there is no decision."""
    if isinstance(answer, Decision):
        return [answer]
    return answer if isinstance(answer, list) else []
