"""AskingDesk: lines before slots that are counted elsewhere. It decides; it asks nobody.

A line is a process's own. Who comes to an empty line asks the store at once. Once somebody
waits, one of those in the line asks for all of them, with pauses that grow; a slot that it
is granted goes to whoever is first by then.

While the store cannot be asked, a policy decides for all who wait: ``open`` lets everybody
in, ``closed`` nobody, ``local`` as many as are this process's share.
"""

from __future__ import annotations

from penstock.clock import Clock
from penstock.concurrency.desk import Desk, MakeTicket
from penstock.concurrency.leases import Lease, running_loop
from penstock.concurrency.line import Place, Stage
from penstock.concurrency.room import Room
from penstock.concurrency.rules import Rules
from penstock.line import TaskTicket

MILLISECOND = 1_000_000
FIRST_PAUSE = 5 * MILLISECOND
GROWTH = 1.5
LONGEST_PAUSE = 100 * MILLISECOND
LONGEST_BEHIND = 1000 * MILLISECOND  # for those who have many before them


class Asking:
    """Who asks for those in one line, and for how long it does not after the next refusal."""

    __slots__ = ("pause", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.pause = FIRST_PAUSE


class AskingDesk(Desk):
    """What happens to places when the store answers, refuses, or does not answer."""

    def __init__(self, rules: Rules, clock: Clock, policy: str, share: float) -> None:
        super().__init__(rules, clock)
        self.policy = policy
        self._share = max(1, int(rules.limit * share))
        self._askers: dict[str, Asking] = {}

    # What asks and counts says these ---------------------------------------------------------

    @property
    def is_down(self) -> bool:
        """Whether the store is not asked these days."""
        raise NotImplementedError

    def new_lease(self, key: str) -> Lease:
        """One that is not counted yet."""
        raise NotImplementedError

    def keep(self, lease: Lease) -> None:
        """It is held from now on."""
        raise NotImplementedError

    def forget(self, lease: Lease) -> None:
        """It is not held any more, and nobody can say so to the store."""
        raise NotImplementedError

    # Coming and going ------------------------------------------------------------------------

    def enter(self, place: Place, make_ticket: MakeTicket) -> bool:
        if make_ticket is TaskTicket:
            place.home = running_loop()
        with self.lock:
            room = self._room(place.key)
            room.arrive(place, self.clock.now())
            place.ticket = make_ticket(place.key)
            if not len(room.line):
                place.asks = True
                return False
            self._line_up(room, place)
            if place.stage is not Stage.WAITING:
                raise self._refusal(place)
            return False

    def leave(self, place: Place, recorded: bool = False) -> Lease | None:
        with self.lock:
            room = self.rooms.get(place.key)
            had_slot = room is not None and room.leave(place)
            place.stage = Stage.GONE
            place.asks = False
            if room is None:
                return None
            if self.is_down:
                self._fill(room)
            self._pass_on(place.key, room)
            self._tidy(place.key, room)
        return place.lease if had_slot else None

    def start_over(self) -> None:
        super().start_over()
        self._askers = {}

    # What the store said ---------------------------------------------------------------------

    def plan(self, place: Place) -> tuple[int, int]:
        """How long to pause after a refusal, and for which class to ask.

        That is its own of one who asks for itself, else the best of those in the line.
        """
        with self.lock:
            asking, room = self._askers.get(place.key), self.rooms.get(place.key)
            pause = asking.pause if asking and asking.place is place else FIRST_PAUSE
            number = self.rules.class_of(place.priority)
            if room is not None and place.stage is not Stage.NEW:
                number = max(number, room.line.highest())
            return pause, number

    def granted(self, asker: Place, lease: Lease, held: int) -> bool:
        """To the one who asked, if it stands in no line, else to the first; whether to any."""
        with self.lock:
            room, now = self._room(asker.key), self.clock.now()
            lowest = self.rules.lowest(held, self.rules.limit)
            place: Place | None = asker
            if asker.stage is not Stage.NEW:
                place = room.line.first(lowest) if len(room.line) else None
            while place is not None:
                self._admit(room, place, lease, now)
                if place is asker or (place.ticket and place.ticket.call()):
                    self.keep(lease)
                    break
                room.leave(place)  # its event loop is closed
                place = room.line.first(lowest) if len(room.line) else None
            self._pass_on(asker.key, room)
            self._tidy(asker.key, room)
            return place is not None

    def refused(self, place: Place, ahead: int) -> None:
        """Who has not lined up does so now; the first who does asks from then on."""
        with self.lock:
            room = self._room(place.key)
            if place.stage is Stage.NEW:
                self._line_up(room, place)
            longest = LONGEST_PAUSE * max(1, ahead // self.rules.limit)
            self._ask_later(place, min(longest, LONGEST_BEHIND))
            self._tidy(place.key, room)

    def failed(self, place: Place, reason: str) -> bool:
        """The store could not be asked; whether the policy has decided on this one."""
        with self.lock:
            room = self._room(place.key)
            waiting = room.line.everyone()
            if self.policy == "closed":
                waits = [place] if place.stage is Stage.NEW else []
                self._turn_away(room, [*waits, *waiting], reason)
            elif place.stage is Stage.NEW:
                if self.policy == "open" or (
                    not waiting and room.may_enter(place, room.running, self._share)
                ):
                    self._admit_uncounted(room, place)
                else:
                    self._line_up(room, place)
            self._fill(room)
            self._ask_later(place, LONGEST_PAUSE)
            self._pass_on(place.key, room)
            self._tidy(place.key, room)
            return place.stage is not Stage.WAITING

    def ask_now(self, key: str) -> None:
        """A slot has become free: whoever asks need not wait for its pause to end."""
        with self.lock:
            asking = self._askers.get(key)
            if asking is not None and asking.place.ticket is not None:
                asking.pause = FIRST_PAUSE
                asking.place.ticket.call()

    # Under the lock --------------------------------------------------------------------------

    def _ask_later(self, place: Place, longest: int) -> None:
        if place.stage is Stage.WAITING:
            asking = self._askers.setdefault(place.key, Asking(place))
            place.asks = asking.place is place
            if place.asks:
                asking.pause = min(round(asking.pause * GROWTH), longest)

    def _pass_on(self, key: str, room: Room) -> None:
        """If whoever asked waits no more, the first in the line asks from now on."""
        asking = self._askers.get(key)
        if asking is not None and asking.place.stage is Stage.WAITING:
            return
        self._askers.pop(key, None)
        while first := room.line.first(0):
            first.asks = True
            if first.ticket and first.ticket.call():
                self._askers[key] = Asking(first)
                return
            room.leave(first)

    def _fill(self, room: Room) -> None:
        """Let in those who may, while nobody can be asked."""
        if self.policy == "closed":
            return
        entered = []
        limit = self._share if self.policy == "local" else room.running + len(room.line)
        while place := room.line.first(self.rules.lowest(room.running, limit)):
            self._admit_uncounted(room, place)
            entered.append(place)
        self._wake(room, entered)

    def _admit(self, room: Room, place: Place, lease: Lease, now: int) -> None:
        lease.home = place.home
        place.lease = lease
        place.asks = False
        room.admit(place, now)

    def _admit_uncounted(self, room: Room, place: Place) -> None:
        lease = self.new_lease(place.key)
        self._admit(room, place, lease, self.clock.now())
        self.keep(lease)

    def _turn_away(self, room: Room, places: list[Place], reason: str) -> None:
        for place in places:
            room.leave(place)
            place.stage = Stage.REFUSED
            place.reason = reason
            place.asks = False
        self._wake(room, places)

    def _wake(self, room: Room, places: list[Place]) -> None:
        """Who cannot hear it leaves; the next one is let in when somebody asks again."""
        for place in places:
            if place.ticket and not place.ticket.call():
                room.leave(place)
                if place.lease is not None:
                    self.forget(place.lease)
