"""The verbs that wait, written once for threads and for coroutines: see flow_steps.py.

Where a flow is interrupted (an exception, a cancelled task), it gives back what it took.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from penstock.combined import CombinedCounters, Item, parts_of
from penstock.decision import Decision
from penstock.flow_steps import CallCounters, CallEach, HitAll, Pause, Step
from penstock.stores.base import ENDLESS, Counters, speaking
from penstock.waiters import WaiterQueues

Flow = Generator[Step, Any, Decision]
# Of several limits: the decision of each.
FlowOfAll = Generator[Step, Any, list[Decision]]


def wait(
    queues: WaiterQueues, counters: Counters, key: str, cost: int, timeout: int | None
) -> Flow:
    """Go ahead as soon as the limit allows it, first come, first served."""
    if isinstance(counters, CombinedCounters):
        return _wait_speaking(queues, counters, key, cost, timeout)
    if timeout == 0:
        return _hit_once(counters, key, cost)
    if counters.limit.algorithm == "leaky_bucket":
        return _wait_paced(queues, counters, key, cost, timeout)
    return _wait_in_turn(queues, counters, key, cost, timeout)


def wait_jittered(
    queues: WaiterQueues,
    counters: Counters,
    key: str,
    cost: int,
    timeout: int | None,
    pause: Callable[[], int],
) -> Flow:
    """`wait`, and a pause after the turn has come, so that those who waited do not all act at once.

    If it is interrupted in the pause, what was taken is given back.
    """
    decisions: list[Decision]
    if isinstance(counters, CombinedCounters):
        decisions = yield from wait_for_all(queues, counters, key, cost, timeout)
    else:
        decisions = [(yield from wait(queues, counters, key, cost, timeout))]
    if all(decisions):
        try:
            yield Pause(counters.clock, pause())
        except BaseException:
            with contextlib.suppress(Exception):
                for part, decision in zip(parts_of(counters), decisions, strict=True):
                    yield from give_back(part, key, cost, decision)
            raise
    return speaking(decisions)


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
        # The bucket was full a moment ago, and a place has become free since.
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
            left = None if deadline is None else max(0, deadline - counters.now())
            woken = yield Pause(counters.clock, left, waiter)
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

    A place in a leaky bucket is kept if there are others behind it: their times are fixed.
    """
    if counters.limit.algorithm == "leaky_bucket":
        seen: Decision = yield CallCounters(counters, "peek", (key, cost))
        if seen._mark > decision._mark + decision._unit * cost:
            return decision
    yield CallCounters(counters, "refund", (key, cost, decision._mark))
    return decision


# Several limits -----------------------------------------------------------------------------


def _wait_speaking(
    queues: WaiterQueues, counters: CombinedCounters, key: str, cost: int, timeout: int | None
) -> Flow:
    return speaking((yield from wait_for_all(queues, counters, key, cost, timeout)))


def wait_for_all(
    queues: WaiterQueues, counters: CombinedCounters, key: str, cost: int, timeout: int | None
) -> FlowOfAll:
    """Go ahead as soon as all limits allow it, first come, first served.

    Nothing is taken from any until all allow it. What was taken is given back if a leaky
    bucket's turn would come too late, or if the flow is interrupted before it.
    """
    items = counters.items(key, cost)
    if timeout == 0:
        decisions: list[Decision] = yield HitAll(counters.store, items)
    else:
        decisions = yield from _attempt_in_turn(queues, counters, items, timeout)
    delay = max([decision._delay for decision in decisions])
    if delay == 0 or not all(decisions):
        return decisions
    if timeout is not None and delay > timeout:
        yield from give_back_all(counters, key, cost, decisions)
        late = [decision for decision in decisions if decision._delay > timeout]
        return [decision.refused(decision._delay - timeout) for decision in late]
    try:
        yield Pause(counters.clock, delay)
    except BaseException:
        # A store that fails now must not hide why we were interrupted.
        with contextlib.suppress(Exception):
            yield from give_back_all(counters, key, cost, decisions)
        raise
    return decisions


def _attempt_in_turn(
    queues: WaiterQueues, counters: CombinedCounters, items: list[Item], timeout: int | None
) -> FlowOfAll:
    """`_wait_in_turn` for several limits."""
    _, key, cost = items[0]
    deadline = None if timeout is None else counters.now() + timeout
    waiter = queues.join((counters, key))
    try:
        while not waiter.first:
            left = None if deadline is None else max(0, deadline - counters.now())
            woken = yield Pause(counters.clock, left, waiter)
            if not woken:
                calls = [(part, (key, cost)) for part in counters.parts]
                seen: list[Decision] = yield CallEach(counters.store, "peek", calls)
                return [
                    decision.refused(max(decision._retry, decision.limit.interval_ns))
                    if decision._retry >= 0
                    else decision
                    for decision in seen
                ]
        while True:
            decisions: list[Decision] = yield HitAll(counters.store, items, True)
            retry = speaking(decisions)._retry
            if all(decisions) or retry < 0:
                return decisions
            if deadline is not None and counters.now() + retry > deadline:
                return decisions
            yield Pause(counters.clock, retry)
    finally:
        queues.leave(waiter)


def give_back_all(
    counters: CombinedCounters, key: str, cost: int, decisions: list[Decision]
) -> Generator[Step, Any, None]:
    """`give_back` for several limits, each by its own decision."""
    for part, decision in zip(counters.parts, decisions, strict=True):
        yield from give_back(part, key, cost, decision)
