"""LocalSlots: the slots of one process, behind a lock, for threads and tasks alike.

It does what can be done at once: admit, enqueue, release, and wake whoever is next. Waiting
is done by flows: see `penstock.concurrency.flow`.

A released slot goes to the first waiter in the same step. Nobody can take it in between, and
only that waiter wakes up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.concurrency.fair_queue import SlotWaiter, Stage
from penstock.concurrency.leases import Lease
from penstock.concurrency.queue_policy import QueuePolicy
from penstock.concurrency.waiting_queue import WaitingQueue
from penstock.errors import LineFull, NoSlot, WaitedTooLong
from penstock.waiters import Waiter

# Makes what a waiter is woken by: of a thread or of a task.
MakeWakeup = Callable[[Hashable], Waiter]


@dataclass(frozen=True, slots=True)
class State:
    """Slots and waiters of one key, at one moment, in this process."""

    limit: int
    running: int
    waiting: int


class LocalSlots:
    """Slots of this process."""

    def __init__(self, policy: QueuePolicy, clock: Clock) -> None:
        self.policy = policy
        self.clock = clock
        self.lock = threading.Lock()
        self.queues: dict[str, WaitingQueue] = {}

    def enter(self, waiter: SlotWaiter, make_wakeup: MakeWakeup) -> bool:
        """Let it in if a slot is free, else into the queue; whether it is in.

        Raises `LineFull` where it can do neither.
        """
        with self.lock:
            now = self.clock.now()
            queue = self._queue(waiter.key)
            queue.arrive(waiter, now)
            limit = self.policy.limit
            if len(queue.waiting):  # a size that has grown is for those who wait
                self._wake(queue, queue.fill(limit, now))
            if queue.may_enter(waiter, queue.running, limit):
                queue.admit(waiter, now)
                return True
            waiter.wakeup = make_wakeup(waiter.key)
            self._line_up(queue, waiter)
            if waiter.stage is not Stage.WAITING:
                raise self._refusal(waiter)
            return False

    def leave(self, waiter: SlotWaiter, recorded: bool = False) -> Lease | None:
        """Out of the queue or out of its slot, wherever it is; the slot is handed on.

        The lease of a slot that is held elsewhere is the caller's to give back.
        """
        with self.lock:
            queue = self.queues.get(waiter.key)
            if queue is None:
                return None
            now = self.clock.now()
            try:
                if queue.leave(waiter) and recorded:
                    took = max(0, now - waiter.began)
                    self.policy.size.record(took, waiter.beside, waiter.dropped, now)
            finally:
                self._wake(queue, queue.fill(self.policy.limit, now))
                self._tidy(waiter.key, queue)
        return None

    def ask(self, waiter: SlotWaiter) -> int | None:
        """Ask for a slot where they are counted; for how long not to ask again."""
        raise NotImplementedError("slots of this process are handed out, not asked for")

    async def ask_async(self, waiter: SlotWaiter) -> int | None:
        """The same for a task."""
        return self.ask(waiter)

    def give_back(self, lease: Lease) -> None:
        """Let go of a slot where they are counted."""
        raise NotImplementedError("slots of this process have no lease")

    async def give_back_async(self, lease: Lease) -> None:
        """The same for a task. It goes on when the task is cancelled."""
        self.give_back(lease)

    def give_back_later(self, lease: Lease) -> None:
        """The same where nothing can be waited for."""
        self.give_back(lease)

    def give_up(self, waiter: SlotWaiter, waited: int) -> None:
        """Its time is up: it leaves with `WaitedTooLong`, unless it was let in meanwhile."""
        with self.lock:
            if waiter.stage is Stage.WAITING:
                reason = f"its time was up after {waited / 1e9:.3f} s"
                raise WaitedTooLong(*self._count(waiter.key), reason)

    def refusal(self, waiter: SlotWaiter) -> NoSlot:
        """Why it is not in."""
        with self.lock:
            return self._refusal(waiter)

    def state(self, key: str) -> State:
        with self.lock:
            _, running, waiting = self._count(key)
            return State(self.policy.limit, running, waiting)

    def close(self) -> None:
        """Nothing is open for slots of this process."""

    async def close_async(self) -> None:
        """The same for the running event loop."""

    def start_over(self) -> None:
        """In a forked child: who runs and waits in the parent does so there."""
        self.lock = threading.Lock()
        self.queues = {}

    def __repr__(self) -> str:
        waiting = f", waiting={self.policy.waiting}" if self.policy.waiting else ""
        return f"{self.policy.limit}{waiting}"

    # Under the lock ----------------------------------------------------------------------

    def _queue(self, key: str) -> WaitingQueue:
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = WaitingQueue(self.policy)
        return queue

    def _tidy(self, key: str, queue: WaitingQueue) -> None:
        """A key that nobody holds or awaits takes no memory."""
        if queue.is_empty:
            self.queues.pop(key, None)

    def _line_up(self, queue: WaitingQueue, waiter: SlotWaiter) -> None:
        """Into the queue; a waiter that had to make room for it is told."""
        if not waiter.may_wait or not self.policy.waiting:
            waiter.stage = Stage.PUSHED_OUT
            waiter.reason = "all slots are taken" + (
                "" if waiter.may_wait else ", and there is no time to wait"
            )
            return
        waiter.reason = "the queue is full"
        pushed = queue.join(waiter)
        if pushed is not None and pushed is not waiter:
            pushed.reason = "the queue is full, and a request with a higher rank arrived"
            self._wake(queue, [pushed])

    def _wake(self, queue: WaitingQueue, waiters: list[SlotWaiter]) -> None:
        """Tell them. Whose event loop is closed will never come: the next one is let in."""
        while waiters:
            deaf = [waiter for waiter in waiters if waiter.wakeup and not waiter.wakeup.wake()]
            for waiter in deaf:
                queue.leave(waiter)
            waiters = queue.fill(self.policy.limit, self.clock.now()) if deaf else []

    def _refusal(self, waiter: SlotWaiter) -> NoSlot:
        kind = LineFull if waiter.stage is Stage.PUSHED_OUT else NoSlot
        return kind(*self._count(waiter.key), waiter.reason)

    def _count(self, key: str) -> tuple[str, int, int]:
        queue = self.queues.get(key)
        return (key, queue.running, len(queue.waiting)) if queue else (key, 0, 0)
