"""The verbs that wait, written once for threads and for coroutines: see steps.py.

Where a flow is interrupted (an exception, a cancelled task), it gives back what it took.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from penstock.decision import Decision
from penstock.steps import CallCounters, Pause
from penstock.stores.base import ENDLESS, Counters
from penstock.waiters import WaiterQueues

Flow = Generator[CallCounters | Pause, Any, Decision]


def wait(
    queues: WaiterQueues, counters: Counters, key: str, cost: int, timeout: int | None
) -> Flow:
    """Go ahead as soon as the limit allows it, first come, first served."""
    if timeout == 0:
        return _hit_once(counters, key, cost)
    if counters.limit.algorithm == "leaky_bucket":
        return _wait_paced(queues, counters, key, cost, timeout)
    return _wait_in_turn(queues, counters, key, cost, timeout)


def _hit_once(counters: Counters, key: str, cost: int) -> Flow:
    """Without time to wait it is an ordinary hit, and a refusal is a violation.

    The exception is a leaky bucket whose next place is not free yet: asking for it is a
    violation only if the bucket is full.
    """
    decision: Decision
    if counters.limit.algorithm == "leaky_bucket":
        decision = yield CallCounters(counters, "attempt", (key, cost, 0))
        if decision or decision._room >= cost * decision._unit:
            return decision
    decision = yield CallCounters(counters, "hit", (key, cost))
    if decision and decision._delay > 0:
        # The bucket was full a moment ago, and somebody has left it since.
        yield CallCounters(counters, "refund", (key, cost, decision._mark, 0))
        return decision.refused(decision._delay)
    return decision


def _wait_in_turn(
    queues: WaiterQueues, counters: Counters, key: str, cost: int, timeout: int | None
) -> Flow:
    """Only the head of a key's queue asks the store; nothing is taken before its time.

    A waiter in another process may be quicker. Losing that race is no violation and starts
    no lockout, so this attempts and does not hit.
    """
    deadline = None if timeout is None else counters.now() + timeout
    waiter = queues.join((counters, key))
    try:
        while not waiter.first:
            woken = yield Pause(counters.clock, _left(deadline, counters), waiter)
            if not woken:
                decision: Decision = yield CallCounters(counters, "peek", (key, cost))
                if decision._retry < 0:
                    return decision
                # It may fit now and yet be another's turn: then no exact time is known.
                return decision.refused(max(decision._retry, counters.limit.interval_ns))
        while True:
            decision = yield CallCounters(counters, "attempt", (key, cost))
            if decision or decision._retry < 0:
                return decision
            if deadline is not None and counters.now() + decision._retry > deadline:
                return decision
            yield Pause(counters.clock, decision._retry)
    finally:
        queues.leave(waiter)


def _wait_paced(
    queues: WaiterQueues, counters: Counters, key: str, cost: int, timeout: int | None
) -> Flow:
    """Take the next place in a leaky bucket and wait for it.

    The place is taken at once, in the store, so that all processes share the bucket. A
    waiter that gives up hands it on: those behind move up, and the last place is given
    back. If a place of another process comes after ours, that would crowd it, and our place
    passes unused.
    """
    patience = ENDLESS if timeout is None else timeout
    decision: Decision = yield CallCounters(counters, "attempt", (key, cost, patience))
    if not decision or decision._delay == 0:
        return decision
    waiter = queues.join((counters, key))
    # Our place begins where the last one ended; a degraded decision knows only of its own.
    waiter.due = counters.now() + decision._delay if decision.degraded else decision._mark
    waiter.width = decision._unit * cost
    try:
        while (left := waiter.due - counters.now()) > 0:
            yield Pause(counters.clock, left, waiter)
        return decision
    except BaseException:
        # A store that fails now must not hide why we were interrupted.
        with contextlib.suppress(Exception):
            seen: Decision = yield CallCounters(counters, "peek", (key, cost))
            if queues.close_gap(waiter, seen._mark):
                yield CallCounters(counters, "refund", (key, cost))
        raise
    finally:
        queues.leave(waiter)


def give_back(counters: Counters, key: str, cost: int, decision: Decision) -> Flow:
    """Give back what a decision took, as it came to nothing.

    A place in a leaky bucket is kept if there are others behind it, which were told their
    times already.
    """
    if counters.limit.algorithm == "leaky_bucket":
        seen: Decision = yield CallCounters(counters, "peek", (key, cost))
        if seen._mark > decision._mark + decision._unit * cost:
            return decision
    yield CallCounters(counters, "refund", (key, cost, decision._mark))
    return decision


def _left(deadline: int | None, counters: Counters) -> int | None:
    return None if deadline is None else max(0, deadline - counters.now())
