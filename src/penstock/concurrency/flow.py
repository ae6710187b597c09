"""Waiting for a slot, written once for threads and for tasks.

A flow is a generator. It yields what it needs done, a `Pause` or an `Ask` of the shared
store, and two small drivers do it, one blocking, one awaiting. A flow holds nothing: who
is interrupted, at whatever point, takes the waiter to the slots, which knows what it has at
that moment, a waiter in the queue or the slot that it was handed just before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass

from penstock import flows
from penstock.clock import Clock, MonotonicClock, WallClock
from penstock.concurrency.fair_queue import SlotWaiter, Stage
from penstock.concurrency.local_slots import LocalSlots
from penstock.drivers import await_call
from penstock.line import TaskTicket, ThreadTicket, Ticket


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the shared store for a slot, and hand out what it says; for how long not to ask."""

    waiter: SlotWaiter


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long (``None``: for ever) or until the ticket is called."""

    clock: Clock
    ticket: Ticket
    nanoseconds: int | None


Flow = Generator[Ask | Pause, int | None, None]


def wait(slots: LocalSlots, waiter: SlotWaiter, timeout: int | None) -> Flow:
    """Until it has its slot. It has come to the slots and was not let in at once."""
    clock, ticket = slots.clock, waiter.ticket
    assert ticket is not None
    pause: int | None
    while True:
        pause = None
        if waiter.asks and waiter.stage in (Stage.NEW, Stage.WAITING):
            pause = yield Ask(waiter)
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
        yield Pause(clock, ticket, pause)


def drive(slots: LocalSlots, flow: Flow) -> None:
    """Run a flow to its end, blocking."""

    def do(step: Ask | Pause) -> int | None:
        return slots.ask(step.waiter) if isinstance(step, Ask) else _sleep(step)

    flows.run(flow, do)


async def drive_async(slots: LocalSlots, flow: Flow) -> None:
    """Run a flow to its end, suspending."""

    async def do(step: Ask | Pause) -> int | None:
        if isinstance(step, Ask):
            return await slots.ask_async(step.waiter)
        return await _sleep_async(step)

    await flows.run_async(flow, do)


def _sleep(pause: Pause) -> int | None:
    assert isinstance(pause.ticket, ThreadTicket)
    await_call(pause.ticket, pause.clock, pause.nanoseconds)
    return None


async def _sleep_async(pause: Pause) -> int | None:
    """A timer calls the ticket, too: a task for each would cost more than all else here."""
    ticket = pause.ticket
    assert isinstance(ticket, TaskTicket)
    if pause.nanoseconds is None:
        await ticket.wait()
        return None
    seconds = pause.nanoseconds / 1e9
    timer: asyncio.TimerHandle | asyncio.Task[None]
    if isinstance(pause.clock, (MonotonicClock, WallClock)):
        timer = asyncio.get_running_loop().call_later(seconds, ticket.call)
    else:
        timer = asyncio.ensure_future(pause.clock.sleep_async(seconds))
        timer.add_done_callback(lambda _: ticket.call())
    try:
        await ticket.wait()
    finally:
        timer.cancel()
    return None
