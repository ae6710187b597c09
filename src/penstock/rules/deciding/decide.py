"""Has the store decide on the results of a request: what is taken, booked and given back.

Limits that may refuse are decided in one group: all of them allow the request, or nothing is
taken. A result in quota mode is a group of its own, because another quota may do instead, and so
is a result in shadow mode, because it refuses nothing. Then `results.is_allowed` combines them:

======================= =====================================================================
the request is allowed  what was taken stays: each limit has counted it once
the request is refused  what was taken is given back, except by rules in shadow mode: they count
                        every request, no matter what refuses it, as in Envoy's service
======================= =====================================================================

Debits are different. A *debit* reports usage after the fact, such as the tokens of an answer: more
than one hit, or a number of hits that the descriptor states for itself. Limits in Envoy's format
always book a debit, even if it does not fit or another limit refuses the request. Callers that
look first (``hits: 0``) and debit after rely on that.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from penstock.decision import Decision, decided
from penstock.rules.deciding import verdict
from penstock.rules.deciding.results import DescriptorResult, is_allowed, passes
from penstock.rules.deciding.store_calls import Done, Item, StoreCall, Work
from penstock.rules.deciding.verdict import Slot
from penstock.stores.base import Counters

Place = tuple[Counters, str]


class Group:
    """Limits that allow a request together or not at all."""

    __slots__ = ("before", "costs", "debits", "decisions", "shadow", "slots", "taken")

    def __init__(self, shadow: bool = False) -> None:
        self.shadow = shadow
        self.costs: dict[Place, int] = {}
        self.debits: dict[Place, int] = {}  # the part of the costs that is always booked
        self.slots: dict[Place, str] = {}  # those that are a concurrency, and their rules
        self.before: dict[Place, DescriptorResult] = {}  # those with slots of former limits
        self.decisions: dict[Place, Decision] = {}
        self.taken = False

    def add(self, result: DescriptorResult) -> None:
        # Two descriptors may share a counter: then it decides on both at once.
        places = result.places()
        if result.holds:
            assert result.rule is not None
            place = places.pop()
            self.costs[place] = self.costs.get(place, 0) + 1  # however many hits it is for
            self.slots[place] = result.rule.id
            if result.held_before:
                self.before[place] = result
        for place, envoy in zip(places, result.envoy, strict=False):
            self.costs[place] = self.costs.get(place, 0) + result.cost
            if envoy and result.debit:
                self.debits[place] = self.debits.get(place, 0) + result.cost

    def items(self) -> list[Item]:
        before = self.before
        return [
            (*place, cost + (before[place].held_before if place in before else 0))
            for place, cost in self.costs.items()
        ]

    def looks(self) -> list[StoreCall]:
        return [("peek", counters, (key, cost)) for counters, key, cost in self.items()]

    def decided(self, decisions: Iterable[Decision]) -> None:
        self.decisions = dict(zip(self.costs, decisions, strict=True))
        self.taken = all(self.decisions.values())
        for place, result in self.before.items():
            decision = self.decisions[place]
            if not decision and decision._retry < 0:  # former slots alone fill the limit
                self.decisions[place] = decision.refused(result.held_until)

    def decisions_of(self, result: DescriptorResult) -> list[Decision]:
        """Of the limits of a result, in their order; empty if none was asked."""
        decisions = self.decisions
        if not decisions:
            return []
        return [decisions[place] for place in result.places()]

    def corrections(self, allowed: bool) -> dict[Place, StoreCall]:
        """What is still to be booked or given back, now that the answer is known."""
        if not self.taken:
            return {place: ("charge", place[0], (place[1], n)) for place, n in self.debits.items()}
        out: dict[Place, StoreCall] = {}
        for counters, key, cost in self.items():
            place = counters, key
            kept = self.debits.get(place, 0)
            if allowed:
                kept = self.costs[place]
            elif self.shadow and place not in self.slots:
                kept = cost
            if cost > kept:
                out[place] = (
                    "refund",
                    counters,
                    (key, cost - kept, self.decisions[place]._mark, kept),
                )
        return out

    def held(self, now: int) -> list[Slot]:
        """The slots that the request holds from now on."""
        if not self.taken:
            return []
        return [
            Slot(
                rule,
                place[0],
                place[1],
                self.costs[place],
                self.decisions[place]._mark,
                now + place[0].limit.period_ns,
            )
            for place, rule in self.slots.items()
        ]


def decide(results: Sequence[DescriptorResult], now: int) -> Generator[Work, Done, list[Slot]]:
    """Have the store decide on the results, and correct what it counted if that is needed.

    Returns the slots that the request holds.
    """
    # If a closed limit or a deny list has refused already, nothing may be taken. For a denied
    # client, the other limits are not even looked at.
    refused = not is_allowed(results)
    denied = refused and any(result.is_denied() for result in results)
    placed, groups = _groups(results)
    hit, looked = groups, groups[:0]
    if refused:
        hit = [group for group in groups if group.shadow]
        looked = [] if denied else [group for group in groups if not group.shadow]
    work = Work([group.items() for group in hit])
    peeks: list[DescriptorResult] = []
    if len(placed) < len(results):
        peeks = _refund_or_peek(results, denied, work)
    refunds = len(work.calls)
    for result in peeks:
        work.calls += [("peek", counters, (key, 1)) for counters, key in result.places()]
    for group in looked:
        work.calls += group.looks()

    if work.groups or work.calls:
        decisions, answers = yield work
        for group, group_decisions in zip(hit, decisions, strict=True):
            group.decided(group_decisions)
        looks = iter(answers[refunds:])
        for result in peeks:
            result.decisions = [next(looks) for _ in result.counted]
        for group in looked:
            group.decisions = {place: next(looks) for place in group.costs}
    for result, group in placed:
        result.decisions = group.decisions_of(result)
    for result in results:
        result.allowed = result.allowed and passes(result)
    allowed = is_allowed(results)
    corrections = [
        (group, place, call)
        for group in groups
        if not (group.taken and allowed)
        for place, call in group.corrections(allowed).items()
    ]
    if corrections:
        yield from _correct(corrections)
        for result, group in placed:
            result.decisions = group.decisions_of(result)
    if not allowed:
        return []
    # The decisions stay as they are: slots of former limits leave that much less.
    former = [
        call
        for group in groups
        if group.taken and group.before
        for call in group.corrections(True).values()
    ]
    if former:
        yield Work(calls=former)
    return [slot for group in groups if group.slots for slot in group.held(now)]


def _groups(
    results: Sequence[DescriptorResult],
) -> tuple[list[tuple[DescriptorResult, Group]], list[Group]]:
    """The results that take something, each with its group; and all groups."""
    together: Group | None = None
    placed, groups = [], []
    for result in results:
        if result.hits <= 0 or not result.counted:
            continue
        if result.shadow or result.quota:
            groups.append(group := Group(result.shadow))
        elif together is None:
            groups.append(group := Group())
            together = group
        else:
            group = together
        group.add(result)
        placed.append((result, group))
    return placed, groups


def _refund_or_peek(
    results: Sequence[DescriptorResult], denied: bool, work: Work
) -> list[DescriptorResult]:
    """Add the refunds to ``work``, and return the results that only look."""
    peeks = []
    for result in results:
        if result.hits < 0 and result.counted:
            result.reason = verdict.REFUND
            for counters, key in result.places():
                work.calls.append(("refund", counters, (key, result.cost)))
        elif result.hits == 0 and result.counted and not denied:
            peeks.append(result)
    return peeks


def _correct(
    corrections: Sequence[tuple[Group, Place, StoreCall]],
) -> Generator[Work, Done, None]:
    """Book and give back, and update the decisions to what is left then."""
    yield Work(calls=[call for _, _, call in corrections])
    shown = [(group, place) for group, place, _ in corrections if group.decisions]
    if not shown:
        return
    _, looks = yield Work(
        calls=[("peek", place[0], (place[1], group.costs[place])) for group, place in shown]
    )
    for (group, place), look in zip(shown, looks, strict=True):
        group.decisions[place] = _restated(group.decisions[place], look)


def _restated(before: Decision, look: Decision) -> Decision:
    """The same decision, with what is left now."""
    if before.allowed == look.allowed:
        return look
    if not before.allowed:
        return look.refused(0)
    room, unit, reset = look._room, look._unit, look._reset
    return decided(look.limit, True, room, unit, 0, reset, 0, False, look._mark, look.degraded)
