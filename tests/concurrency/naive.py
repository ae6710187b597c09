"""The rules of the line a second time, written from the reference page, slowly and plainly.

Lists and sorting, everything worked out anew each time. `WatchedRoom` holds each step of
the real thing against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from penstock.concurrency.line import Place, Stage
from penstock.concurrency.room import Room
from penstock.concurrency.rules import Rules


@dataclass
class Options:
    """As a user gives them; times in nanoseconds."""

    waiting: int = 100
    patience: int = 10 * 10**9
    fair: bool = False
    shares: dict[int, float] | None = None


class NaiveRoom:
    """Who is in, who waits: two lists of places."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.inside: list[Place] = []
        self.waiting: list[Place] = []
        # Of those with one `by`: when they last got a slot, and as which happening.
        self.last_slot: dict[Any, tuple[int, int]] = {}

    def may_go_in(self, priority: int, limit: int) -> bool:
        shares = self.options.shares or {}
        named = sorted(other for other in shares if other >= priority)
        return not named or len(self.inside) < math.ceil(Fraction(str(shares[named[0]])) * limit)

    def rank(self, place: Place) -> tuple[int, int]:
        return place.arrived - place.priority * self.options.patience, place.number

    def next(self, limit: int) -> Place | None:
        """Whose turn it is."""
        if len(self.inside) >= limit:
            return None
        priorities = {p.priority for p in self.waiting}
        allowed = {priority for priority in priorities if self.may_go_in(priority, limit)}
        may = sorted((p for p in self.waiting if p.priority in allowed), key=self.rank)
        if not may or not self.options.fair:
            return may[0] if may else None
        firsts = {}
        for place in reversed(may):
            firsts[place.by] = place
        return min(firsts.values(), key=self.turn)

    def turn(self, place: Place) -> tuple[int, int]:
        """With ``fair``: the party's place in the line, less priority, more slots held."""
        held = sum(other.by == place.by for other in self.inside)
        began = max((place.arrived, place.number), self.last_slot.get(place.by, (0, 0)))
        return began[0] - (place.priority - held) * self.options.patience, began[1]

    def one_too_many(self) -> Place:
        """Who has to leave the line."""
        if not self.options.fair:
            return max(self.waiting, key=self.rank)
        parties = {place.by for place in self.waiting}
        sizes = {by: sum(p.by == by for p in self.waiting) for by in parties}
        longest = [p for p in self.waiting if sizes[p.by] == max(sizes.values())]
        return max(longest, key=self.rank)

    def went_in(self, place: Place, when: int, number: int) -> None:
        if place in self.waiting:
            self.waiting.remove(place)
        self.inside.append(place)
        self.last_slot[place.by] = when, number

    def left(self, place: Place) -> None:
        for places in (self.inside, self.waiting):
            if place in places:
                places.remove(place)
        self.forget()

    def forget(self) -> None:
        here = {place.by for place in (*self.inside, *self.waiting)}
        self.last_slot = {by: when for by, when in self.last_slot.items() if by in here}


def watched_rooms(options: Options, seen: list[str] | None = None) -> type[Room]:
    """A kind of room that does as `Room`, and asserts that the naive one would do the same."""

    class WatchedRoom(Room):
        __slots__ = ("naive", "rules")

        def __init__(self, rules: Rules) -> None:
            super().__init__(rules)
            self.rules = rules
            self.naive = NaiveRoom(options)

        def admit(self, place: Place, now: int) -> None:
            limit = self.rules.limit
            if place.stage is Stage.WAITING:
                assert self.naive.next(limit) is place, "not its turn"
                if seen is not None:
                    seen.append("from the line")
            else:
                assert self.naive.next(limit) is None, "others are before it"
                assert self.running < limit, "there is no slot"
                assert self.naive.may_go_in(place.priority, limit), "there is no slot for it"
            super().admit(place, now)
            self.naive.went_in(place, self._latest, self._numbers)
            assert len(self.inside) <= limit, "more than may be inside"

        def fill(self, limit: int, now: int) -> list[Place]:
            entered = super().fill(limit, now)
            assert self.naive.next(limit) is None, "a slot is free, and somebody waits for it"
            return entered

        def join(self, place: Place) -> Place | None:
            self.naive.waiting.append(place)
            pushed = super().join(place)
            if len(self.naive.waiting) > options.waiting:
                assert self.naive.one_too_many() is pushed
                self.naive.left(pushed)
                if seen is not None:
                    seen.append("pushed out" if pushed is not place else "full")
            else:
                assert pushed is None
            return pushed

        def leave(self, place: Place) -> bool:
            self.naive.left(place)
            had_slot = super().leave(place)
            assert self.inside == set(self.naive.inside)
            assert len(self.line) == len(self.naive.waiting)
            return had_slot

    return WatchedRoom
