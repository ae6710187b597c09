"""Line: who waits for the slots of one key, and in what order. Pure: no lock, no clock.

Without ``fair`` the order is that of the ranks: see `penstock.concurrency.rules`.

With ``fair``, those with the same ``by`` are one party, and parties take turns::

    place = max(arrived of its first, when it last got a slot)
    order = place - (priority of its first - slots it holds) * patience

A party stands in the line once. Its next takes the place when the one before has got a
slot, so it stands behind all parties that came until then; and each slot that it holds
counts as one step of priority less. Within a party, ranks decide.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.concurrency.rules import Rules

if TYPE_CHECKING:
    from penstock.concurrency.leases import Lease
    from penstock.line import Ticket


class Stage(Enum):
    """How far somebody has come who wants a slot."""

    NEW = "has not joined"
    WAITING = "stands in the line"
    RUNNING = "has a slot"
    PUSHED_OUT = "had to give up its place to another"
    REFUSED = "cannot be let in, as the shared store cannot be asked"
    GONE = "has left"


class Place:
    """One who wants a slot of ``key``, from its arrival to the end of its run."""

    __slots__ = (
        "arrived", "asks", "began", "beside", "by", "dropped", "home", "key", "lease",
        "may_wait", "number", "order", "priority", "reason", "stage", "ticket",
    )  # fmt: skip

    def __init__(
        self, key: str, priority: int = 0, by: Hashable = None, may_wait: bool = True
    ) -> None:
        self.key = key
        self.priority = priority
        self.by = by
        self.may_wait = may_wait
        self.stage = Stage.NEW
        self.arrived = 0
        self.number = 0
        self.order = (0, 0)
        self.began = 0
        self.beside = 0  # how many ran when it began, itself included
        self.dropped = False
        self.reason = ""  # why it was not let in
        # What whoever waits is woken by; of a place that never had to wait, none.
        self.ticket: Ticket | None = None
        # Of the shared form: what is held in the store, whether it is this one who asks, and
        # in which event loop it waits; none for a thread.
        self.lease: Lease | None = None
        self.asks = False
        self.home: object = None

    def __repr__(self) -> str:
        return f"<Place {self.number} for {self.key!r}: {self.stage.value}>"


_ORDER = attrgetter("order")


class Party:
    """Those with one ``by``: in the line by class of their priority, and inside."""

    __slots__ = ("held", "lines", "since", "turn", "waiting")

    def __init__(self, classes: int) -> None:
        self.lines: list[list[Place]] = [[] for _ in range(classes)]
        self.waiting = 0
        self.held = 0
        self.since = 0
        self.turn = 0

    def first(self, lowest: int) -> Place | None:
        """By rank, of those whose class is at least the lowest."""
        return min((line[0] for line in self.lines[lowest:] if line), key=_ORDER, default=None)

    def last(self) -> Place:
        return max((line[-1] for line in self.lines if line), key=_ORDER)


class Line:
    """The line of one key."""

    __slots__ = ("_count", "_parties", "_rules")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._count = 0
        self._parties: dict[Hashable, Party] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, place: Place) -> None:
        party = self._party(place)
        insort(party.lines[self._rules.class_of(place.priority)], place, key=_ORDER)
        party.waiting += 1
        self._count += 1

    def remove(self, place: Place) -> None:
        """Take it out, if it is in."""
        party = self._parties.get(self._by(place))
        if party is None:
            return
        line = party.lines[self._rules.class_of(place.priority)]
        at = bisect_left(line, place.order, key=_ORDER)
        if at < len(line) and line[at] is place:
            del line[at]
            party.waiting -= 1
            self._count -= 1
            self._forget(place, party)

    def first(self, lowest: int) -> Place | None:
        """Whose turn it is, of those whose class is at least the lowest."""
        best: tuple[tuple[int, int], Place] | None = None
        for party in self._parties.values():
            place = party.first(lowest)
            if place is None:
                continue
            if len(self._parties) == 1:
                return place
            turn = self._turn(party, place)
            if best is None or turn < best[0]:
                best = turn, place
        return best[1] if best else None

    def last(self) -> Place:
        """Who has to go when there is one too many.

        With ``fair``, of the party with the most in the line.
        """
        _, _, place = max(
            ((party.waiting if self._rules.fair else 0, party.last().order, party.last()))
            for party in self._parties.values()
            if party.waiting
        )
        return place

    def highest(self) -> int:
        """The highest class that anybody in the line has; -1 if nobody is."""
        lines: Iterable[list[list[Place]]] = (party.lines for party in self._parties.values())
        return max((n for each in lines for n, line in enumerate(each) if line), default=-1)

    def everyone(self) -> list[Place]:
        """In the order of their ranks."""
        lines = (line for party in self._parties.values() for line in party.lines)
        return sorted((place for line in lines for place in line), key=_ORDER)

    # What parties hold -------------------------------------------------------------------

    def got_slot(self, place: Place, now: int, turn: int) -> None:
        """It runs now; the next of its party stands behind all others."""
        if self._rules.fair:
            party = self._party(place)
            party.held += 1
            party.since, party.turn = now, turn

    def gave_slot(self, place: Place) -> None:
        if self._rules.fair:
            party = self._party(place)
            party.held -= 1
            self._forget(place, party)

    def _turn(self, party: Party, first: Place) -> tuple[int, int]:
        place = max((first.arrived, first.number), (party.since, party.turn))
        return self._rules.rank(place[0], first.priority - party.held), place[1]

    def _by(self, place: Place) -> Hashable:
        return place.by if self._rules.fair else None

    def _party(self, place: Place) -> Party:
        by = self._by(place)
        party = self._parties.get(by)
        if party is None:
            party = self._parties[by] = Party(self._rules.classes)
        return party

    def _forget(self, place: Place, party: Party) -> None:
        if not party.waiting and not party.held:
            del self._parties[self._by(place)]
