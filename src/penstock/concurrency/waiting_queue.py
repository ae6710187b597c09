"""WaitingQueue: the slots of one key and the waiters for them. Pure: no lock, no clock.

Every method returns the waiters that were admitted or pushed out. The caller wakes them.
"""

from __future__ import annotations

from penstock.concurrency.fair_queue import FairQueue, SlotWaiter, Stage
from penstock.concurrency.queue_policy import QueuePolicy


class WaitingQueue:
    """At most a given number inside at once; the caller passes that number each time.

    For local slots ``inside`` is how many run in this process. For shared slots it is how
    many run anywhere, as reported by the shared store.
    """

    __slots__ = ("_latest", "_numbers", "_policy", "inside", "waiting")

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy
        self._numbers = 0
        self._latest = 0
        self.waiting = FairQueue(policy)
        self.inside: set[SlotWaiter] = set()

    @property
    def running(self) -> int:
        return len(self.inside)

    @property
    def is_empty(self) -> bool:
        return not self.inside and not len(self.waiting)

    def arrive(self, waiter: SlotWaiter, now: int) -> None:
        """Give the waiter its rank. It is neither in the queue nor inside yet."""
        # After the clock was set back, new waiters still do not overtake older ones.
        self._latest = max(self._latest, now)
        waiter.arrived, waiter.number = self._latest, self._next()
        waiter.order = self._policy.rank(waiter.arrived, waiter.priority), waiter.number

    def may_enter(self, waiter: SlotWaiter, inside: int, limit: int) -> bool:
        """Whether there is a free slot that its priority may use."""
        return self._policy.class_of(waiter.priority) >= self._policy.lowest(inside, limit)

    def admit(self, waiter: SlotWaiter, now: int) -> None:
        """Move the waiter into a slot, from the queue or from outside."""
        self.waiting.remove(waiter)
        self.inside.add(waiter)
        self._latest = max(self._latest, now)
        self.waiting.got_slot(waiter, self._latest, self._next())
        waiter.stage = Stage.RUNNING
        waiter.began = now
        waiter.beside = len(self.inside)

    def admit_first(self, inside: int, limit: int, now: int) -> SlotWaiter | None:
        """The waiter whose turn it is, if any."""
        waiter = self.waiting.first(self._policy.lowest(inside, limit))
        if waiter is not None:
            self.admit(waiter, now)
        return waiter

    def fill(self, limit: int, now: int) -> list[SlotWaiter]:
        """Admit all waiters that may enter, in order."""
        entered = []
        while len(self.waiting) and (waiter := self.admit_first(self.running, limit, now)):
            entered.append(waiter)
        return entered

    def join(self, waiter: SlotWaiter) -> SlotWaiter | None:
        """Enqueue the waiter. Returns the waiter that had to leave, maybe this one, if any."""
        self.waiting.add(waiter)
        waiter.stage = Stage.WAITING
        if len(self.waiting) <= self._policy.waiting:
            return None
        last = self.waiting.last()
        self.waiting.remove(last)
        last.stage = Stage.PUSHED_OUT
        return last

    def leave(self, waiter: SlotWaiter) -> bool:
        """Remove the waiter from wherever it is; returns whether it had a slot."""
        had_slot = waiter in self.inside
        if had_slot:
            self.inside.remove(waiter)
            self.waiting.gave_slot(waiter)
        else:
            self.waiting.remove(waiter)
        waiter.stage = Stage.GONE
        return had_slot

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers
