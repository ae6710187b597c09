"""Groups: several keys that are taken from together, all or none.

The script decides on one group as a whole. In a cluster it can do so only with keys of one
slot, so there may be several groups, and what one took is given back when another refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis.crc import key_slot

from penstock.decision import Decision
from penstock.stores.base import Counters, check_cost, check_key
from penstock.stores.redis.counters import RedisCounters
from penstock.stores.redis.ticket import Question, Ticket
from penstock.stores.redis.wire import ATTEMPT, HIT, REFUND, TAKES

Wanted = tuple[Counters, str, int]
# What a refund's ticket is made of: counters, key, verb, cost, mark.
Refund = tuple[RedisCounters, str, str, int, int]
# What a group's ticket is made of, its other members, and where they stood in what was wanted.
Group = tuple[tuple[RedisCounters, str, str, int], list[Question], list[int]]


def groups_of(wanted: Iterable[Wanted], by_slots: bool, attempt: bool) -> list[Group]:
    """What can be decided as a whole: all of it, or in a cluster what shares a slot."""
    verb = ATTEMPT if attempt else HIT
    by_slot: dict[int, list[tuple[int, Question]]] = {}
    for at, (counters, key, cost) in enumerate(wanted):
        assert isinstance(counters, RedisCounters)
        question = Question(counters, check_key(key), verb, check_cost(cost), size=0)
        slot = key_slot(question.key) if by_slots else 0
        by_slot.setdefault(slot, []).append((at, question))
    groups = []
    for members in by_slot.values():
        (_, first), *rest = members
        told = (first.counters, first.name, verb, first.cost)
        groups.append((told, [question for _, question in rest], [at for at, _ in members]))
    return groups


def in_order(groups: list[Group], found: Sequence[Any]) -> list[Decision]:
    """The decisions of all groups, as they were asked for."""
    placed = [
        (at, decision)
        for (_, _, places), answer in zip(groups, found, strict=True)
        for at, decision in zip(places, _decisions(answer), strict=True)
    ]
    return [decision for _, decision in sorted(placed, key=lambda pair: pair[0])]


# Giving back ------------------------------------------------------------------------


def refunds(tickets: Sequence[Ticket], found: Sequence[Any]) -> list[Refund]:
    """What must be given back when some groups were decided and not all were allowed."""
    taken = [taken_by(ticket, answer) for ticket, answer in zip(tickets, found, strict=True)]
    return [] if all(taken) else [refund for refunds in taken for refund in refunds]


def taken_by(ticket: Ticket, answer: Any) -> list[Refund]:
    """Tickets that would give back what this one took; nothing if it took nothing."""
    decisions = _decisions(answer)
    if ticket.verb not in TAKES or not decisions or not all(decisions):
        return []
    return [
        (question.counters, question.name, REFUND, question.cost, decision._mark)
        for question, decision in zip(ticket.questions, decisions, strict=True)
    ]


def _decisions(answer: Any) -> list[Decision]:
    """Of a group, or of a single one; none if it was not decided."""
    if isinstance(answer, Decision):
        return [answer]
    return answer if isinstance(answer, list) else []
