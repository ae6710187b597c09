"""The lines of one request, put to the store: what is taken, booked and given back.

Limits that may refuse are decided in one group: all of them pass, or nothing is taken. A line
in quota mode is a group of its own, because another quota may do instead, and so is a line in
shadow, because it refuses nothing. The lines are then judged together (`weigh.judged`):

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
from penstock.rules import verdict
from penstock.rules.weigh import Line, judged, passes
from penstock.rules.work import Done, Item, Single, Work
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

    def add(self, line: Line) -> None:
        # Two descriptors may come to one counter: it is asked for both at once.
        for (counters, _), envoy in zip(line.counted, line.envoy, strict=True):
            place = counters, line.key
            self.costs[place] = self.costs.get(place, 0) + line.cost
            if envoy and line.debit:
                self.debits[place] = self.debits.get(place, 0) + line.cost

    def items(self) -> list[Item]:
        return [(counters, key, cost) for (counters, key), cost in self.costs.items()]

    def looks(self) -> list[Single]:
        return [("peek", counters, (key, cost)) for counters, key, cost in self.items()]

    def decided(self, decisions: Iterable[Decision]) -> None:
        self.decisions = dict(zip(self.costs, decisions, strict=True))
        self.taken = all(self.decisions.values())

    def decisions_of(self, line: Line) -> list[Decision]:
        """Of the limits of a line, in their order; none if nobody was asked."""
        found = self.decisions
        return [found[counters, line.key] for counters, _ in line.counted] if found else []

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


def decide(lines: Sequence[Line]) -> Generator[Work, Done, None]:
    """Have the store decide on the lines, and leave in it what the judgement demands."""
    # Where a closed limit or a deny list has refused already, nothing may be taken. A client
    # that is denied does not cost a look at the other limits either.
    hopeless = not judged(lines)
    denied = hopeless and any(x.reason == verdict.DENIED and not x.allowed for x in lines)
    placed, groups = _groups(lines)
    asked, looked = groups, groups[:0]
    if hopeless:
        asked = [group for group in groups if group.shadow]
        looked = [] if denied else [group for group in groups if not group.shadow]
    work = Work([group.items() for group in asked])
    peeks: list[Line] = []
    if len(placed) < len(lines):
        peeks = _singles(lines, denied, work)
    given_back = len(work.singles)
    for line in peeks:
        work.singles += [("peek", counters, (line.key, 1)) for counters, _ in line.counted]
    for group in looked:
        work.singles += group.looks()

    if work.groups or work.singles:
        decisions, answers = yield work
        for group, found in zip(asked, decisions, strict=True):
            group.decided(found)
        seen = iter(answers[given_back:])
        for line in peeks:
            line.decisions = [next(seen) for _ in line.counted]
        for group in looked:
            group.decisions = {place: next(seen) for place in group.costs}
    for line, group in placed:
        line.decisions = group.decisions_of(line)
    for line in lines:
        line.allowed = line.allowed and passes(line)
    allowed = judged(lines)
    amends = [
        (group, place, single)
        for group in groups
        if not (group.taken and allowed)
        for place, single in group.amends(allowed).items()
    ]
    if amends:
        yield from _amend(amends)
        for line, group in placed:
            line.decisions = group.decisions_of(line)


def _groups(lines: Sequence[Line]) -> tuple[list[tuple[Line, Group]], list[Group]]:
    """The lines that take something, each with the group that it is decided in; the groups."""
    together: Group | None = None
    placed, groups = [], []
    for line in lines:
        if line.hits <= 0 or not line.counted:
            continue
        if line.shadow or line.quota:
            groups.append(group := Group(line.shadow))
        elif together is None:
            groups.append(group := Group())
            together = group
        else:
            group = together
        group.add(line)
        placed.append((line, group))
    return placed, groups


def _singles(lines: Sequence[Line], denied: bool, work: Work) -> list[Line]:
    """Give back what is to be given back, and say which lines only look."""
    peeks = []
    for line in lines:
        if line.hits < 0 and line.counted:
            line.reason = verdict.REFUND
            for counters, _ in line.counted:
                work.singles.append(("refund", counters, (line.key, line.cost)))
        elif line.hits == 0 and line.counted and not denied:
            peeks.append(line)
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
