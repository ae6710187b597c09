"""LeaseQueue: this process's queues for slots that a shared store counts. Does no I/O itself.

A waiter that finds the queue empty asks the store at once. Otherwise one waiter polls the
store for all of them, at growing intervals, and a slot that it is granted goes to whoever is
first by then.

While the store cannot be asked, ``on_failure`` decides for all waiters: ``open`` admits
all of them, ``closed`` none, ``local`` as many as this process's share.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.clock import Clock
from penstock.concurrency.fair_queue import SlotWaiter, Stage
from penstock.concurrency.lease_server import LeaseServer
from penstock.concurrency.leases import Lease
from penstock.concurrency.local_slots import LocalSlots, MakeWakeup
from penstock.concurrency.queue_policy import QueuePolicy
from penstock.concurrency.renewal import Renewal
from penstock.concurrency.waiting_queue import WaitingQueue
from penstock.stores.redis.thread_loop import running_loop
from penstock.waiters import TaskWaiter

MILLISECOND = 1_000_000
FIRST_PAUSE = 5 * MILLISECOND
GROWTH = 1.5
LONGEST_PAUSE = 100 * MILLISECOND
LONGEST_BEHIND = 1000 * MILLISECOND  # for waiters with many before them


@dataclass(slots=True)
class Poller:
    """The waiter that polls for its queue, and how long it pauses after the next refusal."""

    waiter: SlotWaiter
    pause: int


class LeaseQueue(LocalSlots):
    """Moves waiters on when the store grants a slot, refuses one, or does not answer."""

    def __init__(
        self,
        policy: QueuePolicy,
        clock: Clock,
        on_failure: str,
        share: float,
        server: LeaseServer,
        renewal: Renewal,
    ) -> None:
        super().__init__(policy, clock)
        self.on_failure = on_failure
        self._share = max(1, int(policy.limit * share))
        self._pollers: dict[str, Poller] = {}
        self._server = server
        self._renewal = renewal

    # Coming and going ------------------------------------------------------------------------

    def enter(self, waiter: SlotWaiter, make_wakeup: MakeWakeup) -> bool:
        if make_wakeup is TaskWaiter:
            waiter.home = running_loop()
        with self.lock:
            queue = self._queue(waiter.key)
            queue.arrive(waiter, self.clock.now())
            waiter.wakeup = make_wakeup(waiter.key)
            if not len(queue.waiting):
                waiter.asks = True
                return False
            self._line_up(queue, waiter)
            if waiter.stage is not Stage.WAITING:
                raise self._refusal(waiter)
            return False

    def leave(self, waiter: SlotWaiter, recorded: bool = False) -> Lease | None:
        with self.lock:
            queue = self.queues.get(waiter.key)
            had_slot = queue is not None and queue.leave(waiter)
            waiter.stage = Stage.GONE
            waiter.asks = False
            if queue is None:
                return None
            if self._server.is_down:
                self._fill(queue)
            self._pass_on(waiter.key, queue)
            self._tidy(waiter.key, queue)
        return waiter.lease if had_slot else None

    def start_over(self) -> None:
        super().start_over()
        self._pollers = {}

    # What the store said ---------------------------------------------------------------------

    def plan(self, waiter: SlotWaiter) -> tuple[int, int]:
        """How long to pause after a refusal, and for which class to ask.

        A waiter that asks for itself asks for its own class, otherwise for the highest class
        in the queue.
        """
        with self.lock:
            poller, queue = self._pollers.get(waiter.key), self.queues.get(waiter.key)
            pause = poller.pause if poller and poller.waiter is waiter else FIRST_PAUSE
            number = self.policy.class_of(waiter.priority)
            if queue is not None and waiter.stage is not Stage.NEW:
                number = max(number, queue.waiting.highest())
            return pause, number

    def granted(self, asker: SlotWaiter, lease: Lease, held: int) -> bool:
        """Give the slot to the waiter that asked, or to the first in the queue; False if none."""
        with self.lock:
            queue, now = self._queue(asker.key), self.clock.now()
            lowest = self.policy.lowest(held, self.policy.limit)
            waiter: SlotWaiter | None = asker
            if asker.stage is not Stage.NEW:
                waiter = queue.waiting.first(lowest)
            while waiter is not None:
                self._admit(queue, waiter, lease, now)
                if waiter is asker or (waiter.wakeup and waiter.wakeup.wake()):
                    self._renewal.keep(lease)
                    break
                queue.leave(waiter)  # its event loop is closed
                waiter = queue.waiting.first(lowest)
            self._pass_on(asker.key, queue)
            self._tidy(asker.key, queue)
            return waiter is not None

    def refused(self, waiter: SlotWaiter, ahead: int) -> None:
        """A waiter that is not in the queue joins it; the first to join polls from then on."""
        with self.lock:
            queue = self._queue(waiter.key)
            if waiter.stage is Stage.NEW:
                self._line_up(queue, waiter)
            longest = LONGEST_PAUSE * max(1, ahead // self.policy.limit)
            self._ask_later(waiter, min(longest, LONGEST_BEHIND))
            self._tidy(waiter.key, queue)

    def failed(self, waiter: SlotWaiter, reason: str) -> bool:
        """The store could not be asked; whether the policy has decided for this waiter."""
        with self.lock:
            queue = self._queue(waiter.key)
            waiting = queue.waiting.everyone()
            if self.on_failure == "closed":
                waits = [waiter] if waiter.stage is Stage.NEW else []
                self._turn_away(queue, [*waits, *waiting], reason)
            elif waiter.stage is Stage.NEW:
                if self.on_failure == "open" or (
                    not waiting and queue.may_enter(waiter, queue.running, self._share)
                ):
                    self._admit_uncounted(queue, waiter)
                else:
                    self._line_up(queue, waiter)
            self._fill(queue)
            self._ask_later(waiter, LONGEST_PAUSE)
            self._pass_on(waiter.key, queue)
            self._tidy(waiter.key, queue)
            return waiter.stage is not Stage.WAITING

    def ask_now(self, key: str) -> None:
        """A slot has become free: the poller need not wait for its pause to end."""
        with self.lock:
            poller = self._pollers.get(key)
            if poller is not None and poller.waiter.wakeup is not None:
                poller.pause = FIRST_PAUSE
                poller.waiter.wakeup.wake()

    # Under the lock --------------------------------------------------------------------------

    def _ask_later(self, waiter: SlotWaiter, longest: int) -> None:
        if waiter.stage is Stage.WAITING:
            poller = self._pollers.setdefault(waiter.key, Poller(waiter, FIRST_PAUSE))
            waiter.asks = poller.waiter is waiter
            if waiter.asks:
                poller.pause = min(round(poller.pause * GROWTH), longest)

    def _pass_on(self, key: str, queue: WaitingQueue) -> None:
        """If the poller no longer waits, the first in the queue polls from now on."""
        poller = self._pollers.get(key)
        if poller is not None and poller.waiter.stage is Stage.WAITING:
            return
        self._pollers.pop(key, None)
        while first := queue.waiting.first(0):
            first.asks = True
            if first.wakeup and first.wakeup.wake():
                self._pollers[key] = Poller(first, FIRST_PAUSE)
                return
            queue.leave(first)

    def _fill(self, queue: WaitingQueue) -> None:
        """Admit the waiters that the failure policy allows while the store is down."""
        if self.on_failure == "closed":
            return
        entered = []
        limit = self._share if self.on_failure == "local" else queue.running + len(queue.waiting)
        while waiter := queue.waiting.first(self.policy.lowest(queue.running, limit)):
            self._admit_uncounted(queue, waiter)
            entered.append(waiter)
        self._wake(queue, entered)

    def _admit(self, queue: WaitingQueue, waiter: SlotWaiter, lease: Lease, now: int) -> None:
        lease.home = waiter.home
        waiter.lease = lease
        waiter.asks = False
        queue.admit(waiter, now)

    def _admit_uncounted(self, queue: WaitingQueue, waiter: SlotWaiter) -> None:
        lease = self._renewal.new_lease(waiter.key)
        self._admit(queue, waiter, lease, self.clock.now())
        self._renewal.keep(lease)

    def _turn_away(self, queue: WaitingQueue, waiters: list[SlotWaiter], reason: str) -> None:
        for waiter in waiters:
            queue.leave(waiter)
            waiter.stage = Stage.REFUSED
            waiter.reason = reason
            waiter.asks = False
        self._wake(queue, waiters)

    def _wake(self, queue: WaitingQueue, waiters: list[SlotWaiter]) -> None:
        """A waiter that cannot be woken leaves; its slot is given out at the next request."""
        for waiter in waiters:
            if waiter.wakeup and not waiter.wakeup.wake():
                queue.leave(waiter)
                if waiter.lease is not None:
                    self._renewal.forget(waiter.lease)
