"""The verbs that wait, written once for threads and for coroutines.

A flow is a generator. It yields what it needs done, an `Ask` of the store or a
`Pause`, and is sent the answer; `Limiter` drives it by blocking, `AsyncLimiter`
by awaiting. If the driver is interrupted (an exception, a cancelled task), that
is thrown into the flow, which may still yield what is needed to clean up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from penstock.clock import Clock
from penstock.decision import Decision
from penstock.line import Line, Ticket
from penstock.stores.base import ENDLESS, Counters


@dataclass(frozen=True, slots=True)
class Ask:
    """Call ``verb`` of the counters; the answer is what it returns."""

    counters: Counters
    verb: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long (``None``: for ever) or until the ticket is called; which one it was."""

    clock: Clock
    nanoseconds: int | None
    ticket: Ticket | None = None


Flow = Generator[Ask | Pause, Any, Decision]


def wait(line: Line, counters: Counters, key: str, cost: int, timeout: int | None) -> Flow:
    """Go ahead as soon as the limit allows it, first come, first served."""
    if timeout == 0:
        return _ask_once(counters, key, cost)
    if counters.limit.algorithm == "leaky_bucket":
        return _wait_paced(line, counters, key, cost, timeout)
    return _wait_in_turn(line, counters, key, cost, timeout)


def _ask_once(counters: Counters, key: str, cost: int) -> Flow:
    """Without time to wait it is an ordinary hit, and a refusal an ordinary violation.

    Except that a place on a paced line which is not free now would have to be waited for:
    to want it now is no violation as long as the line is not full.
    """
    decision: Decision
    if counters.limit.algorithm == "leaky_bucket":
        decision = yield Ask(counters, "attempt", (key, cost, 0))
        if decision or decision._room >= cost * decision._unit:
            return decision
    decision = yield Ask(counters, "hit", (key, cost))
    if decision and decision._delay > 0:
        # The line was full a moment ago, and somebody has left it since.
        yield Ask(counters, "refund", (key, cost, decision._mark, 0))
        return decision.refused(decision._delay)
    return decision


def _wait_in_turn(line: Line, counters: Counters, key: str, cost: int, timeout: int | None) -> Flow:
    """Only the head of a key's line asks; nothing is taken before its time has come.

    Whoever asks in another process may be quicker. To lose that race is no violation,
    and starts no lockout: hence attempts and no hits.
    """
    deadline = None if timeout is None else counters.now() + timeout
    ticket = line.join((counters, key))
    try:
        while not ticket.first:
            called = yield Pause(counters.clock, _left(deadline, counters), ticket)
            if not called:
                decision: Decision = yield Ask(counters, "peek", (key, cost))
                if decision._retry < 0:
                    return decision
                # It may fit now and yet be others' turn: then there is no exact time.
                return decision.refused(max(decision._retry, counters.limit.interval_ns))
        while True:
            decision = yield Ask(counters, "attempt", (key, cost))
            if decision or decision._retry < 0:
                return decision
            if deadline is not None and counters.now() + decision._retry > deadline:
                return decision
            yield Pause(counters.clock, decision._retry)
    finally:
        line.leave(ticket)


def _wait_paced(line: Line, counters: Counters, key: str, cost: int, timeout: int | None) -> Flow:
    """Take the next place on an evenly paced line and wait for it.

    The place is taken at once, in the store, so that all processes share the
    line. Who gives up hands it on: those behind move up, and the last place is
    given back. Where somebody else's place comes after ours, that cannot be done
    without crowding it, and the place passes unused.
    """
    patience = ENDLESS if timeout is None else timeout
    decision: Decision = yield Ask(counters, "attempt", (key, cost, patience))
    if not decision or decision._delay == 0:
        return decision
    ticket = line.join((counters, key))
    # Where the line ended, there our place begins; who decides without the shared store
    # has a line of its own.
    ticket.due = counters.now() + decision._delay if decision.degraded else decision._mark
    ticket.width = decision._unit * cost
    try:
        while (left := ticket.due - counters.now()) > 0:
            yield Pause(counters.clock, left, ticket)
        return decision
    except BaseException:
        # Whatever a store in trouble says must not hide why we were interrupted.
        with contextlib.suppress(Exception):
            seen: Decision = yield Ask(counters, "peek", (key, cost))
            if line.close_gap(ticket, seen._mark):
                yield Ask(counters, "refund", (key, cost))
        raise
    finally:
        line.leave(ticket)


def give_back(counters: Counters, key: str, cost: int, decision: Decision) -> Flow:
    """What was taken, as it came to nothing. A paced place before somebody else's is kept.

    To move those behind it up, it would have to be known before they were told their time.
    """
    if counters.limit.algorithm == "leaky_bucket":
        seen: Decision = yield Ask(counters, "peek", (key, cost))
        if seen._mark > decision._mark + decision._unit * cost:
            return decision
    yield Ask(counters, "refund", (key, cost, decision._mark))
    return decision


def _left(deadline: int | None, counters: Counters) -> int | None:
    return None if deadline is None else max(0, deadline - counters.now())
