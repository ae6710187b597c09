"""Two ways to drive a flow: block this thread, or suspend this task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from penstock.clock import Clock, MonotonicClock, WallClock
from penstock.decision import Decision
from penstock.flow import Ask, Flow, Pause
from penstock.line import TaskTicket, ThreadTicket

_LOOK_EVERY = 0.001


def ask(step: Ask | None) -> Any:
    """Ask the store, now and in this thread."""
    return None if step is None else getattr(step.counters, step.verb)(*step.args)


async def ask_async(step: Ask | None) -> Any:
    """The same in a task."""
    return None if step is None else await step.counters.submit(step.verb, *step.args)


def drive(flow: Flow) -> Decision:
    """Run a flow to its end, blocking. What interrupts it is thrown into it."""
    try:
        step = next(flow)
        while True:
            try:
                answer = ask(step) if isinstance(step, Ask) else _sleep(step)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        decision: Decision = end.value
        return decision


async def drive_async(flow: Flow) -> Decision:
    """Run a flow to its end, suspending."""
    try:
        step = next(flow)
        while True:
            try:
                answer = await (ask_async(step) if isinstance(step, Ask) else _sleep_async(step))
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        decision: Decision = end.value
        return decision


def _sleep(pause: Pause) -> bool:
    seconds = None if pause.nanoseconds is None else pause.nanoseconds / 1e9
    # A place on a paced line is never called up in threads: nobody there can cancel.
    if isinstance(pause.ticket, ThreadTicket) and not pause.ticket.width:
        return await_call(pause.ticket, pause.clock, pause.nanoseconds)
    assert seconds is not None
    pause.clock.sleep(seconds)
    return False


def await_call(ticket: ThreadTicket, clock: Clock, nanoseconds: int | None) -> bool:
    """Wait to be called, for so long by that clock."""
    if nanoseconds is None:
        return ticket.wait(None)
    if isinstance(clock, (MonotonicClock, WallClock)):
        return ticket.wait(nanoseconds / 1e9)
    # Somebody's own clock cannot tell us when it has moved: look from time to time.
    due = clock.now() + nanoseconds
    while clock.now() < due:
        if ticket.wait(_LOOK_EVERY):
            return True
    return False


async def _sleep_async(pause: Pause) -> bool:
    ticket = pause.ticket
    if pause.nanoseconds is None:
        assert isinstance(ticket, TaskTicket)
        return await ticket.wait()
    sleep = pause.clock.sleep_async(pause.nanoseconds / 1e9)
    if isinstance(ticket, TaskTicket):
        return await _first(ticket.wait(), sleep)
    await sleep
    return False


async def _first(call: Awaitable[bool], sleep: Awaitable[None]) -> bool:
    """Whether the call came before the time was up."""
    called, slept = asyncio.ensure_future(call), asyncio.ensure_future(sleep)
    try:
        await asyncio.wait((called, slept), return_when=asyncio.FIRST_COMPLETED)
        return called.done()
    finally:
        called.cancel()
        slept.cancel()
