"""LocalSlots: the slots of one process, behind a lock, for threads and tasks alike.

It does what can be done at once: admit, enqueue, release, and wake whoever is next. Waiting
is done by a flow: see `penstock.concurrency.slot`.

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

# Makes what wakes a waiter: for a thread or for a task.
MakeWakeup = Callable[[Hashable], Waiter]


@dataclass(frozen=True, slots=True)
class State:
    """The slots and waiters of one key in this process, at one moment."""

    limit: int
    running: int
    waiting: int


class LocalSlots:
    """The slots of this process."""

    def __init__(self, policy: QueuePolicy, clock: Clock) -> None:
        self.policy = policy
        self.clock = clock
        self.lock = threading.Lock()
        self.queues: dict[str, WaitingQueue] = {}

    def enter(self, waiter: SlotWaiter, make_wakeup: MakeWakeup) -> bool:
        """Admit the waiter if a slot is free, else enqueue it; returns whether it was admitted.

        Raises `LineFull` if it can do neither.
        """
        with self.lock:
            now = self.clock.now()
            queue = self._queue(waiter.key)
            queue.arrive(waiter, now)
            limit = self.policy.limit
            if len(queue.waiting):  # if the size has grown, waiters go first
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
        """Remove the waiter from the queue or from its slot; the slot is handed on.

        The caller gives back the lease of a shared slot.
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
        """Ask the shared store for a slot; returns how long not to ask again."""
        raise NotImplementedError("slots of this process are handed out, not asked for")

    async def ask_async(self, waiter: SlotWaiter) -> int | None:
        """The same for a task."""
        return self.ask(waiter)

    def give_back(self, lease: Lease) -> None:
        """Give a shared slot back to the store."""
        raise NotImplementedError("slots of this process have no lease")

    async def give_back_async(self, lease: Lease) -> None:
        """The same for a task; it completes even if the task is cancelled."""
        self.give_back(lease)

    def give_back_later(self, lease: Lease) -> None:
        """The same, without waiting for it."""
        self.give_back(lease)

    def give_up(self, waiter: SlotWaiter, waited: int) -> None:
        """Its time is up: it leaves with `WaitedTooLong`, unless it has been admitted."""
        with self.lock:
            if waiter.stage is Stage.WAITING:
                reason = f"its time was up after {waited / 1e9:.3f} s"
                raise WaitedTooLong(*self._count(waiter.key), reason)

    def refusal(self, waiter: SlotWaiter) -> NoSlot:
        """The error that says why it was not admitted."""
        with self.lock:
            return self._refusal(waiter)

    def state(self, key: str) -> State:
        with self.lock:
            _, running, waiting = self._count(key)
            return State(self.policy.limit, running, waiting)

    def close(self) -> None:
        """Local slots have nothing to close."""

    async def close_async(self) -> None:
        """The same for the running event loop."""

    def start_over(self) -> None:
        """In a forked child: forget the runs and waiters of the parent."""
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
        """A key without holders and waiters takes no memory."""
        if queue.is_empty:
            self.queues.pop(key, None)

    def _line_up(self, queue: WaitingQueue, waiter: SlotWaiter) -> None:
        """Enqueue the waiter; wake the one that had to make room for it."""
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
        """Wake them. If a waiter's event loop is closed, the next waiter is admitted instead."""
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
