"""The results of one request, put to the store: what is taken, booked and given back.

Limits that may refuse are decided in one group: all of them pass, or nothing is taken. A result
in quota mode is a group of its own, because another quota may do instead, and so is a result in
shadow, because it refuses nothing. The results are then judged together (`verdicts.judged`):

======================= =====================================================================
the request is allowed  what was taken stays: each limit has counted it once
the request is refused  what was taken is given back; only rules in shadow keep it: they count
                        every request, whoever refuses it, as in Envoy's service
======================= =====================================================================

Debits are different. A *debit* says what has been used already, such as the tokens of an answer:
more than one hit, or a number of hits that the descriptor states for itself. Limits in Envoy's
words book a debit whatever the answer is, also if it does not fit, and also beside a refusal by
another limit. That is what callers rely on who look first (``hits: 0``) and debit after.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from penstock.decision import Decision, decided
from penstock.rules.deciding import verdict
from penstock.rules.deciding.verdicts import DescriptorResult, judged, passes
from penstock.rules.deciding.work import Done, Item, Single, Work
from penstock.stores.base import Counters

Place = tuple[Counters, str]


class Group:
    """Limits that pass together or not at all."""

    __slots__ = ("costs", "debits", "decisions", "shadow", "taken")

    def __init__(self, shadow: bool = False) -> None:
        self.shadow = shadow
        self.costs: dict[Place, int] = {}
        self.debits: dict[Place, int] = {}  # the part of the costs that is booked in any case
        self.decisions: dict[Place, Decision] = {}
        self.taken = False

    def add(self, result: DescriptorResult) -> None:
        # Two descriptors may come to one counter: it is asked for both at once.
        for (counters, _), envoy in zip(result.counted, result.envoy, strict=True):
            place = counters, result.key
            self.costs[place] = self.costs.get(place, 0) + result.cost
            if envoy and result.debit:
                self.debits[place] = self.debits.get(place, 0) + result.cost

    def items(self) -> list[Item]:
        return [(counters, key, cost) for (counters, key), cost in self.costs.items()]

    def looks(self) -> list[Single]:
        return [("peek", counters, (key, cost)) for counters, key, cost in self.items()]

    def decided(self, decisions: Iterable[Decision]) -> None:
        self.decisions = dict(zip(self.costs, decisions, strict=True))
        self.taken = all(self.decisions.values())

    def decisions_of(self, result: DescriptorResult) -> list[Decision]:
        """Of the limits of a result, in their order; none if nobody was asked."""
        found = self.decisions
        return [found[counters, result.key] for counters, _ in result.counted] if found else []

    def amends(self, allowed: bool) -> dict[Place, Single]:
        """What is still to be booked or given back, now that the request has been judged."""
        if not self.taken:
            return {place: ("charge", place[0], (place[1], n)) for place, n in self.debits.items()}
        out: dict[Place, Single] = {}
        if allowed or self.shadow:
            return out
        for place, cost in self.costs.items():
            kept = self.debits.get(place, 0)
            if cost > kept:
                back = place[1], cost - kept, self.decisions[place]._mark, kept
                out[place] = "refund", place[0], back
        return out


def decide(results: Sequence[DescriptorResult]) -> Generator[Work, Done, None]:
    """Have the store decide on the results, and leave in it what the judgement demands."""
    # Where a closed limit or a deny list has refused already, nothing may be taken. A client
    # that is denied does not cost a look at the other limits either.
    hopeless = not judged(results)
    denied = hopeless and any(x.reason == verdict.DENIED and not x.allowed for x in results)
    placed, groups = _groups(results)
    asked, looked = groups, groups[:0]
    if hopeless:
        asked = [group for group in groups if group.shadow]
        looked = [] if denied else [group for group in groups if not group.shadow]
    work = Work([group.items() for group in asked])
    peeks: list[DescriptorResult] = []
    if len(placed) < len(results):
        peeks = _singles(results, denied, work)
    given_back = len(work.singles)
    for result in peeks:
        work.singles += [("peek", counters, (result.key, 1)) for counters, _ in result.counted]
    for group in looked:
        work.singles += group.looks()

    if work.groups or work.singles:
        decisions, answers = yield work
        for group, found in zip(asked, decisions, strict=True):
            group.decided(found)
        seen = iter(answers[given_back:])
        for result in peeks:
            result.decisions = [next(seen) for _ in result.counted]
        for group in looked:
            group.decisions = {place: next(seen) for place in group.costs}
    for result, group in placed:
        result.decisions = group.decisions_of(result)
    for result in results:
        result.allowed = result.allowed and passes(result)
    allowed = judged(results)
    amends = [
        (group, place, single)
        for group in groups
        if not (group.taken and allowed)
        for place, single in group.amends(allowed).items()
    ]
    if amends:
        yield from _amend(amends)
        for result, group in placed:
            result.decisions = group.decisions_of(result)


def _groups(
    results: Sequence[DescriptorResult],
) -> tuple[list[tuple[DescriptorResult, Group]], list[Group]]:
    """The results that take something, each with the group that it is decided in; the groups."""
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


def _singles(
    results: Sequence[DescriptorResult], denied: bool, work: Work
) -> list[DescriptorResult]:
    """Give back what is to be given back, and say which results only look."""
    peeks = []
    for result in results:
        if result.hits < 0 and result.counted:
            result.reason = verdict.REFUND
            for counters, _ in result.counted:
                work.singles.append(("refund", counters, (result.key, result.cost)))
        elif result.hits == 0 and result.counted and not denied:
            peeks.append(result)
    return peeks


def _amend(amends: Sequence[tuple[Group, Place, Single]]) -> Generator[Work, Done, None]:
    """Book and give back, and have the answer tell what is left then."""
    yield Work(singles=[single for _, _, single in amends])
    shown = [(group, place) for group, place, _ in amends if group.decisions]
    if not shown:
        return
    _, looks = yield Work(
        singles=[("peek", place[0], (place[1], group.costs[place])) for group, place in shown]
    )
    for (group, place), look in zip(shown, looks, strict=True):
        group.decisions[place] = _restated(group.decisions[place], look)


def _restated(before: Decision, look: Decision) -> Decision:
    """What was decided, with what is left by now."""
    if before.allowed == look.allowed:
        return look
    if not before.allowed:
        return look.refused(0)
    room, unit, reset = look._room, look._unit, look._reset
    return decided(look.limit, True, room, unit, 0, reset, 0, False, look._mark, look.degraded)
