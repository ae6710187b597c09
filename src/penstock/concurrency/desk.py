"""Desk: the rooms of one limiter behind a lock, for threads and tasks alike.

It does what is done at once: let in, line up, let out, wake those whose turn has come.
Waiting is done by flows: see `penstock.concurrency.flow`.

A slot that is given back goes to the first in the line in the same step. Nobody can take
it in between, and only the one whose turn it is wakes up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.concurrency.leases import Lease
from penstock.concurrency.line import Place, Stage
from penstock.concurrency.room import Room
from penstock.concurrency.rules import Rules
from penstock.errors import LineFull, NoSlot, WaitedTooLong
from penstock.line import Ticket

# Makes what a place is woken by: a thread's or a task's.
MakeTicket = Callable[[Hashable], Ticket]


@dataclass(frozen=True, slots=True)
class State:
    """How it stands with one key, at one moment, in this process."""

    limit: int
    running: int
    waiting: int


class Desk:
    """Slots of this process."""

    def __init__(self, rules: Rules, clock: Clock) -> None:
        self.rules = rules
        self.clock = clock
        self.lock = threading.Lock()
        self.rooms: dict[str, Room] = {}

    def enter(self, place: Place, make_ticket: MakeTicket) -> bool:
        """Let it in if a slot is free, else into the line; whether it is in.

        Raises `LineFull` where it can do neither.
        """
        with self.lock:
            now = self.clock.now()
            room = self._room(place.key)
            room.arrive(place, now)
            limit = self.rules.limit
            if len(room.line):  # a size that has grown is for those who wait
                self._wake(room, room.fill(limit, now))
            if room.may_enter(place, room.running, limit):
                room.admit(place, now)
                return True
            place.ticket = make_ticket(place.key)
            self._line_up(room, place)
            if place.stage is not Stage.WAITING:
                raise self._refusal(place)
            return False

    def leave(self, place: Place, recorded: bool = False) -> Lease | None:
        """Out of the line or out of its slot, wherever it is; the slot is handed on.

        The lease of a slot that is held elsewhere is the caller's to give back.
        """
        with self.lock:
            room = self.rooms.get(place.key)
            if room is None:
                return None
            now = self.clock.now()
            try:
                if room.leave(place) and recorded:
                    took = max(0, now - place.began)
                    self.rules.size.record(took, place.beside, place.dropped, now)
            finally:
                self._wake(room, room.fill(self.rules.limit, now))
                self._tidy(place.key, room)
        return None

    def ask(self, place: Place) -> int | None:
        """Ask for a slot where they are counted; for how long not to ask again."""
        raise NotImplementedError("slots of this process are handed out, not asked for")

    async def ask_async(self, place: Place) -> int | None:
        """The same for a task."""
        return self.ask(place)

    def give_back(self, lease: Lease) -> None:
        """Let go of a slot where they are counted."""
        raise NotImplementedError("slots of this process have no lease")

    async def give_back_async(self, lease: Lease) -> None:
        """The same for a task. It goes on when the task is cancelled."""
        self.give_back(lease)

    def give_back_later(self, lease: Lease) -> None:
        """The same where nothing can be waited for."""
        self.give_back(lease)

    def give_up(self, place: Place, waited: int) -> None:
        """Its time is up: it leaves with `WaitedTooLong`, unless it was let in meanwhile."""
        with self.lock:
            if place.stage is Stage.WAITING:
                reason = f"its time was up after {waited / 1e9:.3f} s"
                raise WaitedTooLong(*self._count(place.key), reason)

    def refusal(self, place: Place) -> NoSlot:
        """Why it is not in."""
        with self.lock:
            return self._refusal(place)

    def state(self, key: str) -> State:
        with self.lock:
            _, running, waiting = self._count(key)
            return State(self.rules.limit, running, waiting)

    def close(self) -> None:
        """Nothing is open for slots of this process."""

    async def close_async(self) -> None:
        """The same for the running event loop."""

    def start_over(self) -> None:
        """In a forked child: who runs and waits in the parent does so there."""
        self.lock = threading.Lock()
        self.rooms = {}

    def __repr__(self) -> str:
        waiting = f", waiting={self.rules.waiting}" if self.rules.waiting else ""
        return f"{self.rules.limit}{waiting}"

    # Under the lock ----------------------------------------------------------------------

    def _room(self, key: str) -> Room:
        room = self.rooms.get(key)
        if room is None:
            room = self.rooms[key] = Room(self.rules)
        return room

    def _tidy(self, key: str, room: Room) -> None:
        """A key that nobody holds or awaits takes no memory."""
        if room.is_empty:
            self.rooms.pop(key, None)

    def _line_up(self, room: Room, place: Place) -> None:
        """Into the line; the one who had no place there any more is told."""
        if not place.may_wait or not self.rules.waiting:
            place.stage = Stage.PUSHED_OUT
            place.reason = "all slots are taken" + (
                "" if place.may_wait else ", and there is no time to wait"
            )
            return
        place.reason = "the line is full"
        pushed = room.join(place)
        if pushed is not None and pushed is not place:
            pushed.reason = "the line is full, and somebody came who ranks before"
            self._wake(room, [pushed])

    def _wake(self, room: Room, places: list[Place]) -> None:
        """Tell them. Whose event loop is closed will never come: the next one is let in."""
        while places:
            deaf = [place for place in places if place.ticket and not place.ticket.call()]
            for place in deaf:
                room.leave(place)
            places = room.fill(self.rules.limit, self.clock.now()) if deaf else []

    def _refusal(self, place: Place) -> NoSlot:
        kind = LineFull if place.stage is Stage.PUSHED_OUT else NoSlot
        return kind(*self._count(place.key), place.reason)

    def _count(self, key: str) -> tuple[str, int, int]:
        room = self.rooms.get(key)
        return (key, room.running, len(room.line)) if room else (key, 0, 0)
