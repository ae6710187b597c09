"""Room: the slots of one key and the line before them. Pure: no lock, no clock, no waiting.

Every verb says who it let in or pushed out. Whoever calls it wakes them.
"""

from __future__ import annotations

from penstock.concurrency.line import Line, Place, Stage
from penstock.concurrency.rules import Rules


class Room:
    """At most so many inside at once; how many that is, the caller says each time.

    For slots of this process ``inside`` is how many run here. For those of a fleet it is how
    many run anywhere, as the shared store has told.
    """

    __slots__ = ("_latest", "_numbers", "_rules", "inside", "line")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._numbers = 0
        self._latest = 0
        self.line = Line(rules)
        self.inside: set[Place] = set()

    @property
    def running(self) -> int:
        return len(self.inside)

    @property
    def is_empty(self) -> bool:
        return not self.inside and not len(self.line)

    def arrive(self, place: Place, now: int) -> None:
        """Give it its rank. It is neither in the line nor inside yet."""
        # A clock that was set back lets nobody go before those who are here.
        self._latest = max(self._latest, now)
        place.arrived, place.number = self._latest, self._next()
        place.order = self._rules.rank(place.arrived, place.priority), place.number

    def may_enter(self, place: Place, inside: int, limit: int) -> bool:
        """Whether a slot is free that its priority may use."""
        return self._rules.class_of(place.priority) >= self._rules.lowest(inside, limit)

    def admit(self, place: Place, now: int) -> None:
        """Into a slot, from the line or from outside."""
        self.line.remove(place)
        self.inside.add(place)
        self._latest = max(self._latest, now)
        self.line.got_slot(place, self._latest, self._next())
        place.stage = Stage.RUNNING
        place.began = now
        place.beside = len(self.inside)

    def admit_first(self, inside: int, limit: int, now: int) -> Place | None:
        """Whose turn it is, if anybody's."""
        place = self.line.first(self._rules.lowest(inside, limit)) if len(self.line) else None
        if place is not None:
            self.admit(place, now)
        return place

    def fill(self, limit: int, now: int) -> list[Place]:
        """Let in all who may, in their order."""
        entered = []
        while len(self.line) and (place := self.admit_first(self.running, limit, now)):
            entered.append(place)
        return entered

    def join(self, place: Place) -> Place | None:
        """Into the line. If that is too long now, who had to leave it: maybe this one."""
        self.line.add(place)
        place.stage = Stage.WAITING
        if len(self.line) <= self._rules.waiting:
            return None
        last = self.line.last()
        self.line.remove(last)
        last.stage = Stage.PUSHED_OUT
        return last

    def leave(self, place: Place) -> bool:
        """Out of wherever it is; whether that was a slot."""
        had_slot = place in self.inside
        if had_slot:
            self.inside.remove(place)
            self.line.gave_slot(place)
        else:
            self.line.remove(place)
        place.stage = Stage.GONE
        return had_slot

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers
