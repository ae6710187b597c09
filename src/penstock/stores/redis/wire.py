"""Operations to the arguments of one EVALSHA call, and its reply to answers.

`node.py` batches, packs and sends them. A call carries operations on many keys and sends every
policy once. The head of ``batch.lua`` describes the same from the server's side.

Not compiled: of 32 decisions, each takes 0.6 us here in both directions, and 5 us in the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision, decided
from penstock.durations import MICROSECOND, SECOND
from penstock.stores.redis.operation import (
    ATTEMPT,
    DECIDES,
    GIVES_BACK,
    HIT,
    PEEK,
    RESERVE,
    RESET,
    KeyOperation,
)
from penstock.stores.redis.script import MOST_COST, Policy


class NoDecision(Enum):
    """Why an operation has no decision."""

    REFRESH = "the policy's windows do not cover the server's time; nothing was done"
    LATE = "the deadline had passed when the script ran; nothing was done"
    SPARED = "another member of its group could not be decided on; nothing was taken"


REFRESH: Final = NoDecision.REFRESH
LATE: Final = NoDecision.LATE
SPARED: Final = NoDecision.SPARED

Answer = Decision | NoDecision | Exception | None

_FIRST_POLICY = 3  # where in ARGV
_ALLOWED, _OVERRUN = 1, 2


def encode(operations: Sequence[KeyOperation], deadline_us: int) -> list[Any]:
    """What follows ``EVALSHA sha``; the deadline is in the server's time, 0 for none."""
    places: dict[Policy, bytes] = {}
    arguments: list[Any] = []
    for operation in operations:
        policy = operation.policy
        place = places.get(policy)
        if place is None:
            place = places[policy] = b"%d" % (_FIRST_POLICY + len(places))
        if operation.size > 1:
            arguments += ("all", operation.size)
        verb, cost = operation.verb, operation.cost
        if verb == HIT and cost == 1:
            arguments.append(place)
        elif verb == RESET:
            arguments.append(verb)
        else:
            arguments += (verb, place, cost if cost < MOST_COST else MOST_COST)
            if verb in (ATTEMPT, RESERVE):
                arguments.append(operation.mark)
            elif verb in GIVES_BACK:
                arguments += (*_mark(operation.mark), min(operation.kept, MOST_COST))
    keys = [operation.key for operation in operations]
    policies = [policy.text for policy in places]
    return [len(keys), *keys, deadline_us, _FIRST_POLICY + len(policies), *policies, *arguments]


def _mark(mark: int) -> tuple[int, int]:
    """In two parts, as a double cannot hold nanoseconds since 1970."""
    return (-1, 0) if mark == NO_MARK else divmod(mark, SECOND)


def decode(reply: Any, operations: Sequence[KeyOperation]) -> tuple[int, list[Answer]]:
    """The server's time in nanoseconds, and an answer to each operation.

    Raises ValueError if the reply cannot be the script's.
    """
    try:
        if type(reply) is not list or type(reply[0]) is not int:
            raise TypeError("no time")  # and bytes times a thousand would be a long string
        now = reply[0] * MICROSECOND
        if len(reply) == 1:
            return now, [LATE] * len(operations)
        answers = [
            _answer(value, operation, now)
            for value, operation in zip(reply[1:], operations, strict=True)
        ]
    except (TypeError, IndexError, ValueError, OverflowError) as error:
        raise ValueError(f"not a reply of the script: {reply!r:.200}") from error
    return now, answers


def _answer(value: Any, operation: KeyOperation, now: int) -> Answer:
    kind = type(value)
    if kind is not int and kind is not list:
        return _no_decision(value)
    if operation.verb not in DECIDES:
        if value != 1:
            raise ValueError(f"not an answer to {operation.verb}: {value!r:.100}")
        return None
    # In a group that was refused, the answer of a peek comes in a list of its own.
    taken = operation.verb != PEEK
    if kind is list and len(value) == 1 and operation.size != 1:
        (value,), taken = value, False
    if operation.policy.brief and type(value) is int:
        return _bucket(value, operation, now, taken)
    return _any(value, operation.policy, now)


def _bucket(line: int, operation: KeyOperation, now: int, taken: bool) -> Decision:
    """From the length of the queue as time, TAT - now; below 0 if it was refused."""
    policy, cost = operation.policy, operation.cost
    allowed = line >= 0
    if not allowed:
        line = -1 - line
    unit = policy.unit
    took = cost * unit if allowed and taken else 0
    room = policy.capacity - line - took
    retry = 0 if allowed else policy.needed(cost) * unit - room
    return decided(
        policy.limit,
        allowed,
        room,
        unit,
        _in_microseconds(retry) if cost <= policy.most else -1,
        _in_microseconds(line + took),
        line if policy.paced and allowed else 0,
        False,
        now + line,
    )


def _any(numbers: list[int], policy: Policy, now: int) -> Decision:
    delay, unit = 0, policy.unit
    if len(numbers) == 7:
        flags, room, reset, mark, retry, delay, unit = numbers
    else:
        flags, room, reset, mark, retry = numbers if len(numbers) == 5 else (*numbers, 0)
    if type(sum(numbers)) is not int or unit < 1:  # the uncompiled `decided` would not mind
        raise TypeError("not valid numbers")
    allowed, overrun = flags & _ALLOWED != 0, flags & _OVERRUN != 0
    retry, reset = _in_microseconds(retry), _in_microseconds(reset)
    return decided(policy.limit, allowed, room, unit, retry, reset, delay, overrun, now + mark)


def _in_microseconds(wait: int) -> int:
    """Rounded up to whole microseconds, which are what the server's clock counts in."""
    return -(-wait // MICROSECOND) * MICROSECOND if wait > 0 else wait


def _no_decision(value: Any) -> Answer:
    if isinstance(value, Exception):
        return value
    if value == b"refresh":
        return REFRESH
    if value == b"spared":
        return SPARED
    raise ValueError(f"not an answer: {value!r:.100}")
