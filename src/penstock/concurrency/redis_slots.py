"""RedisSlots: slots that a fleet shares, held as leases in Redis or Valkey.

In the store, waiting processes have a queue of their own and are granted one slot each in
turn, so that a busy process does not keep its slots for ever.

A grant must reach a waiter even if the one that asked is gone. For tasks, the call runs in a
task of its own, which survives when the caller is cancelled; and a call whose answer never
came is followed by one that gives back what it may have been granted.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from penstock.clock import Clock
from penstock.concurrency.events import SlotDegraded
from penstock.concurrency.fair_queue import SlotWaiter
from penstock.concurrency.lease_queue import MILLISECOND, LeaseQueue
from penstock.concurrency.lease_server import LeaseServer, NotAsked
from penstock.concurrency.leases import Lease, LeaseClock, LeaseFlow, ScriptCalls
from penstock.concurrency.queue_policy import Fixed, QueuePolicy
from penstock.concurrency.renewal import Renewal
from penstock.durations import Duration, parse_duration
from penstock.errors import StoreUnavailable
from penstock.events import Hooks
from penstock.limit_options import check_policy, check_share
from penstock.stores.redis import RedisStore
from penstock.stores.redis.thread_loop import running_loop

# A waiting process that is this much later than it announced counts as gone.
LATE = 300 * MILLISECOND
SHORTEST_LEASE = 500 * MILLISECOND
LONGEST_ANSWER = 1.0  # seconds


class RedisSlots(LeaseQueue):
    """Requests, gives back and renews leases. All processes with the same ``store`` share them."""

    def __init__(
        self,
        policy: QueuePolicy,
        clock: Clock,
        store: RedisStore,
        lease: Duration,
        on_failure: str,
        share: float | None,
        hooks: Hooks,
    ) -> None:
        if not isinstance(store, RedisStore):
            raise TypeError(f"store must be a RedisStore, which processes can share, not {store!r}")
        if not isinstance(policy.size, Fixed):
            raise TypeError(
                "the limit of shared slots must be a number such as 4: a size that adapts is"
                " computed by each process for itself"
            )
        length = parse_duration(lease, "lease")
        if length < SHORTEST_LEASE:
            raise ValueError(
                f"lease is at least 0.5 s, as it must be renewed in time, not {lease!r}"
            )
        share = store.fallback.share if share is None else check_share(share)
        self._length = length
        self._hooks = hooks
        self._lease_clock = LeaseClock()
        timeout = min(LONGEST_ANSWER, length / 4 / 1e9)
        server = LeaseServer(store, timeout, self._lease_clock, hooks)
        self._calls = ScriptCalls(store.prefix, policy.classes, length)
        renewal = Renewal(server, self._calls, length, self._lease_clock, hooks)
        super().__init__(policy, clock, check_policy(on_failure), share, server, renewal)
        self._tasks: set[asyncio.Task[Any]] = set()

    # Requesting ------------------------------------------------------------------------------

    def ask(self, waiter: SlotWaiter) -> int | None:
        pause: int | None = self._server.run(self._requesting(waiter))
        return pause

    async def ask_async(self, waiter: SlotWaiter) -> int | None:
        pause: int | None = await asyncio.shield(self._start(self._requesting(waiter)))
        return pause

    def _requesting(self, waiter: SlotWaiter) -> LeaseFlow:
        """Ask for a slot and hand it to the first waiter; returns how long not to ask again."""
        lease = self._renewal.new_lease(waiter.key)
        lease.home = waiter.home
        pause, number = self.plan(waiter)
        stays = waiter.may_wait and self.policy.waiting > 0
        limit = self.policy.limit
        capacities = [self.policy.capacity(each, limit) for each in range(self.policy.classes)]
        sent = self._lease_clock.now()
        try:
            granted, held, ahead = yield self._calls.ask(
                lease, pause + LATE if stays else 0, number, capacities
            )
        except BaseException as error:
            if not isinstance(error, NotAsked):
                self._renewal.owe(lease)  # it may have been granted all the same
            if not isinstance(error, StoreUnavailable):
                raise
            if self.failed(waiter, str(error)):
                event = SlotDegraded(self._server.name, waiter.key, self.on_failure, str(error))
                self._hooks.emit(event)
            return pause
        if not granted:
            self.refused(waiter, ahead)
            return round(pause * (0.5 + random.random() / 2))
        lease.renewed(sent, self._length)
        if not self.granted(waiter, lease, held):
            yield from self._giving_back(lease)
        return 0

    # Giving back ---------------------------------------------------------------------------

    def give_back(self, lease: Lease) -> None:
        self._server.run(self._giving_back(lease))

    async def give_back_async(self, lease: Lease) -> None:
        await asyncio.shield(self._start(self._giving_back(lease)))

    def give_back_later(self, lease: Lease) -> None:
        if lease.home is None:
            self.give_back(lease)
        elif lease.home is running_loop():
            self._start(self._giving_back(lease))
        else:
            self._renewal.forget(lease)  # its event loop is gone; the lease will expire

    def _giving_back(self, lease: Lease) -> LeaseFlow:
        self._renewal.forget(lease)
        try:
            if lease.counted:
                yield self._calls.release(lease.key, [lease.id])
        except BaseException as error:
            self._renewal.owe(lease)
            if not isinstance(error, StoreUnavailable):
                raise
        finally:
            self.ask_now(lease.key)

    # Tasks and closing ----------------------------------------------------------------------

    def _start(self, flow: LeaseFlow) -> asyncio.Task[Any]:
        """Run in a task of its own, which continues if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(self._server.run_async(flow))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, in case nobody awaits the task

    def close(self) -> None:
        self._renewal.close()
        self._server.close()

    async def close_async(self) -> None:
        loop = asyncio.get_running_loop()
        while under_way := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(under_way)
        await self._renewal.close_async()
        await self._server.close_async()

    def start_over(self) -> None:
        super().start_over()
        self._tasks = set()
        self._calls.start_over()
        self._renewal.start_over()
        self._server.start_over()

    def __repr__(self) -> str:
        return f"{super().__repr__()}, store=<RedisStore {self._server.name}>"
