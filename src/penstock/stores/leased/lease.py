"""Lease: what an instance holds of one key, and how it spends that.

    spend      takes units that are in hand, before the deadline; refuses while the bank is
               known to be empty; else says that the key must be decided directly
    message    what to tell the bank: counts that only grow
    receive    takes what the bank granted, and the time until which it may be spent
    give_up    what is in hand goes back
    put_back   undoes spending that the bank was not told of yet

There is no clock in here. All times are in nanoseconds by a clock that also runs while the
machine sleeps. Each method is one step for other threads: between its reads and its writes it
calls nothing, so it is not interrupted.
"""

from __future__ import annotations

from typing import Any

from penstock.stores.leased import law
from penstock.stores.leased.law import REFUSED, TAKEN, UNKNOWN
from penstock.stores.leased.messages import Message, Reply


class Lease:
    """One key's, of one limit, in this process."""

    def __init__(self, counters: Any, key: str, terms: law.Terms, now: int) -> None:
        self.counters = counters
        self.key = key
        self.terms = terms
        self.holder = b""
        self.available = 0
        self.deadline = 0  # nothing is spent from then on
        self.low = 0  # with so much in hand it is time to ask for more
        self.trip = 0  # how long the bank takes to answer
        self.closed_until = 0  # until then the bank is known to be empty
        self.retry_at = 0  # when more is expected
        self.usual = 0  # the most that a closed bank's grant could cover
        self.room = 0  # what the bank had left, in steps of its row
        self.mark = 0
        self.window_end = 0
        self.granted = 0
        self.returned = 0
        self.reported = 0  # of what was spent, so much cannot be put back any more
        self.offered = 0
        self.measured = 0
        self.measured_at = now
        self.demand = 0
        self.asking = False  # a message is on its way, or about to be
        self.due = 0  # when the bank is to be told or asked next
        self.lapsed = 0
        self.latest: Message | None = None  # the one message whose reply counts
        self.places: tuple[bytes, bytes] = (b"", b"")  # in Redis: the counter's key, its leases'

    def spend(self, cost: int, now: int) -> int:
        """Take ``cost`` units, if that can be decided here."""
        self.offered += cost
        if now < self.deadline and self.available >= cost:
            self.available -= cost
            return TAKEN
        if now < self.closed_until and cost <= self.usual:
            return REFUSED
        return UNKNOWN

    def put_back(self, cost: int, now: int) -> bool:
        """Undo spending. False if the bank knows of it, or the lease or the window has ended."""
        unreported = self.granted - self.returned - self.available - self.reported
        if now < self.deadline and cost <= unreported:
            self.available += cost
            return True
        return False

    def give_up(self, keep: int = 0) -> int:
        """Spend no more of what is in hand beyond ``keep``; how much that is."""
        units = self.available - keep
        if units <= 0:
            return 0
        self.available = keep
        self.returned += units
        return units

    def wanted(self) -> int:
        """How much more to ask for. What is more than twice the demand goes back."""
        target = law.wanted(self.terms, self.demand, self.trip)
        if self.available > 2 * target:
            self.give_up(target)
        spent_meanwhile = self.demand * self.trip // 1_000_000_000
        return max(0, target + spent_meanwhile - self.available)

    def measure(self, now: int) -> None:
        """Bring the demand up to date."""
        elapsed = now - self.measured_at
        if elapsed >= 2_000_000:
            offered = self.offered
            self.demand = law.smoothed(self.terms, self.demand, offered - self.measured, elapsed)
            self.measured = offered
            self.measured_at = now

    def message(self, holder: bytes, now: int, want: int) -> Message:
        """What to tell the bank. ``holder`` is the name to use if the lease begins anew."""
        if not self.holder or (now >= self.deadline and self.available > 0):
            self.restart(holder)
        spent = self.granted - self.returned - self.available
        self.reported = spent
        latest = Message(self.holder, self.granted, spent, self.returned, self.demand, want)
        self.latest = latest
        return latest

    def restart(self, holder: bytes) -> None:
        """Begin anew: what is still in hand is dead, and the bank knows that by itself."""
        self.holder = holder
        self.lapsed += self.available
        self.available = 0
        self.deadline = 0
        self.granted = self.returned = self.reported = 0
        self.latest = None

    def receive(self, message: Message, reply: Reply, sent: int, received: int = 0) -> None:
        """The answer to a message that was sent at ``sent``, and came at ``received``.

        Only the first answer to the latest message counts. An older one may speak of units
        that have died in the bank since then.
        """
        if message is not self.latest:
            return
        self.latest = None
        got = reply.granted - self.granted
        if got < 0:  # the bank does not know this lease, and cannot take it over
            self.restart(b"")
            return
        if got > 0:
            self.granted += got
            self.available += got
        self.deadline = max(self.deadline, sent + reply.life * law.SPENDABLE_PERCENT // 100)
        trip = received - sent
        self.trip = trip if trip > self.trip else self.trip - (self.trip - max(trip, 0)) // 8
        self.low = law.low(self.demand, self.available, self.trip)
        self.room = reply.room
        if reply.end and reply.mark != self.mark:
            # What was spent in the last window must not come back to this one.
            self.reported = self.granted - self.returned - self.available
        self.mark = reply.mark
        self.window_end = sent + reply.end
        self.usual = max(1, got)
        if reply.wait:
            self.retry_at = sent + reply.wait
            # If the next answer is late, somebody else must decide.
            self.closed_until = self.retry_at + self.terms.cover
        else:
            self.closed_until = 0
