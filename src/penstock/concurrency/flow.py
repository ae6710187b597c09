"""Waiting for a slot, written once for threads and for tasks.

The flow yields steps, a `Pause` or an `Ask` of the shared store: see `penstock.steps`. It
holds nothing. When it is interrupted, at whatever point, the slots know what its waiter has at
that moment: a place in the queue, or a slot that it was handed just before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from dataclasses import dataclass

from penstock.concurrency.fair_queue import SlotWaiter, Stage
from penstock.concurrency.local_slots import LocalSlots
from penstock.steps import Pause


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the shared store for a slot and hand it out; returns how long not to ask again."""

    slots: LocalSlots
    waiter: SlotWaiter

    def run(self) -> int | None:
        return self.slots.ask(self.waiter)

    def run_async(self) -> Awaitable[int | None]:
        return self.slots.ask_async(self.waiter)


Flow = Generator[Ask | Pause, int | None, None]


def wait(slots: LocalSlots, waiter: SlotWaiter, timeout: int | None) -> Flow:
    """Wait until the waiter has its slot; it was not admitted at once."""
    clock, wakeup = slots.clock, waiter.wakeup
    assert wakeup is not None
    pause: int | None
    while True:
        pause = None
        if waiter.asks and waiter.stage in (Stage.NEW, Stage.WAITING):
            pause = yield Ask(slots, waiter)
        if waiter.stage is Stage.RUNNING:
            return
        if waiter.stage is not Stage.WAITING:
            raise slots.refusal(waiter)
        if timeout is not None:
            waited = clock.now() - waiter.arrived
            if waited >= timeout:
                slots.give_up(waiter, waited)
                continue
            pause = timeout - waited if pause is None else min(pause, timeout - waited)
        yield Pause(clock, pause, wakeup)
