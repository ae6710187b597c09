"""WaitingQueue: the slots of one key and who waits for them. Pure: no lock, no clock.

Every verb says who was admitted or pushed out. The caller wakes them.
"""

from __future__ import annotations

from penstock.concurrency.fair_queue import FairQueue, SlotWaiter, Stage
from penstock.concurrency.queue_policy import QueuePolicy


class WaitingQueue:
    """At most so many inside at once; how many that is, the caller says each time.

    For slots of this process ``inside`` is how many run here. For those of a fleet it is how
    many run anywhere, as the shared store has told.
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
        """Give it its rank. It is neither in the queue nor inside yet."""
        # A clock that was set back lets nobody go before those who are here.
        self._latest = max(self._latest, now)
        waiter.arrived, waiter.number = self._latest, self._next()
        waiter.order = self._policy.rank(waiter.arrived, waiter.priority), waiter.number

    def may_enter(self, waiter: SlotWaiter, inside: int, limit: int) -> bool:
        """Whether a slot is free that its priority may use."""
        return self._policy.class_of(waiter.priority) >= self._policy.lowest(inside, limit)

    def admit(self, waiter: SlotWaiter, now: int) -> None:
        """Into a slot, from the queue or from outside."""
        self.waiting.remove(waiter)
        self.inside.add(waiter)
        self._latest = max(self._latest, now)
        self.waiting.got_slot(waiter, self._latest, self._next())
        waiter.stage = Stage.RUNNING
        waiter.began = now
        waiter.beside = len(self.inside)

    def admit_first(self, inside: int, limit: int, now: int) -> SlotWaiter | None:
        """Whose turn it is, if anybody's."""
        waiter = (
            self.waiting.first(self._policy.lowest(inside, limit)) if len(self.waiting) else None
        )
        if waiter is not None:
            self.admit(waiter, now)
        return waiter

    def fill(self, limit: int, now: int) -> list[SlotWaiter]:
        """Let in all who may, in their order."""
        entered = []
        while len(self.waiting) and (waiter := self.admit_first(self.running, limit, now)):
            entered.append(waiter)
        return entered

    def join(self, waiter: SlotWaiter) -> SlotWaiter | None:
        """Into the queue. If that is too long now, who had to leave it: maybe this one."""
        self.waiting.add(waiter)
        waiter.stage = Stage.WAITING
        if len(self.waiting) <= self._policy.waiting:
            return None
        last = self.waiting.last()
        self.waiting.remove(last)
        last.stage = Stage.PUSHED_OUT
        return last

    def leave(self, waiter: SlotWaiter) -> bool:
        """Out of wherever it is; whether that was a slot."""
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
