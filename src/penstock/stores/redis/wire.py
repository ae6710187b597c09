"""What a call of the script looks like on the wire: requests to arguments, reply to answers.

A call carries requests about many keys and sends every policy once. The head of
``batch.lua`` says the same from the other side.

Not compiled: 32 decisions take 0.6 us each, to and fro, where the server takes 5.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision, decided
from penstock.durations import MICROSECOND, SECOND
from penstock.stores.redis.script import MOST_COST, Policy

HIT: Final = "hit"
PEEK: Final = "peek"
ATTEMPT: Final = "attempt"
CHARGE: Final = "charge"
REFUND: Final = "refund"
RESET: Final = "reset"

TAKES = (HIT, ATTEMPT)
DECIDES = (HIT, PEEK, ATTEMPT)


class Undecided(Enum):
    """Answers that are no decision."""

    REFRESH = "the policy's windows do not cover the server's time; nothing was done"
    LATE = "the deadline had passed when the script ran; nothing was done"
    SPARED = "another member of its group could not be decided on; nothing was taken"


REFRESH: Final = Undecided.REFRESH
LATE: Final = Undecided.LATE
SPARED: Final = Undecided.SPARED

Answer = Decision | Undecided | Exception | None

_FIRST_POLICY = 3  # where in ARGV
_ALLOWED, _OVERRUN = 1, 2


class Request:
    """One thing to do for one key.

    ``mark`` and ``kept`` are a refund's; an attempt's ``mark`` is its patience. ``size`` is 1;
    in the first request of a group that passes as a whole or not at all it is the number of
    its members, which follow it directly, each a hit or an attempt of its own key, with a
    size of 0.
    """

    __slots__ = ("cost", "kept", "key", "mark", "policy", "size", "verb")

    def __init__(
        self,
        key: bytes,
        policy: Policy,
        verb: str = HIT,
        cost: int = 1,
        mark: int = NO_MARK,
        kept: int = 0,
        size: int = 1,
    ) -> None:
        self.key = key
        self.policy = policy
        self.verb = verb
        self.cost = cost
        self.mark = mark
        self.kept = kept
        self.size = size


def encode(requests: list[Request], deadline_us: int) -> list[Any]:
    """What follows ``EVALSHA sha``; the deadline is by the server's clock, 0 for none."""
    places: dict[Policy, bytes] = {}
    told: list[Any] = []
    for request in requests:
        policy = request.policy
        place = places.get(policy)
        if place is None:
            place = places[policy] = b"%d" % (_FIRST_POLICY + len(places))
        if request.size > 1:
            told += ("all", request.size)
        verb, cost = request.verb, request.cost
        if verb == HIT and cost == 1:
            told.append(place)
        elif verb == RESET:
            told.append(verb)
        else:
            told += (verb, place, cost if cost < MOST_COST else MOST_COST)
            if verb == ATTEMPT:
                told.append(request.mark)
            elif verb == REFUND:
                told += (*_mark(request.mark), min(request.kept, MOST_COST))
    keys = [request.key for request in requests]
    policies = [policy.text for policy in places]
    return [len(keys), *keys, deadline_us, _FIRST_POLICY + len(policies), *policies, *told]


def _mark(mark: int) -> tuple[int, int]:
    """In two parts: a double cannot hold nanoseconds since 1970."""
    return (-1, 0) if mark == NO_MARK else divmod(mark, SECOND)


def decode(reply: Any, requests: list[Request]) -> tuple[int, list[Answer]]:
    """The server's time in nanoseconds, and an answer to each request.

    Raises ValueError if the reply cannot be the script's.
    """
    try:
        if type(reply) is not list or type(reply[0]) is not int:
            raise TypeError("no time")  # and bytes times a thousand would be a long string
        now = reply[0] * MICROSECOND
        if len(reply) == 1:
            return now, [LATE] * len(requests)
        answers = [
            _answer(found, request, now) for found, request in zip(reply[1:], requests, strict=True)
        ]
    except (TypeError, IndexError, ValueError, OverflowError) as error:
        raise ValueError(f"not a reply of the script: {reply!r:.200}") from error
    return now, answers


def _answer(found: Any, request: Request, now: int) -> Answer:
    kind = type(found)
    if kind is not int and kind is not list:
        return _undecided(found)
    if request.verb not in DECIDES:
        if found != 1:
            raise ValueError(f"not an answer to {request.verb}: {found!r:.100}")
        return None
    # Of a group that was refused: what a look would have told, in a list of its own.
    taken = request.verb != PEEK
    if kind is list and len(found) == 1 and request.size != 1:
        (found,), taken = found, False
    if request.policy.brief and type(found) is int:
        return _bucket(found, request, now, taken)
    return _any(found, request.policy, now)


def _bucket(line: int, request: Request, now: int, taken: bool) -> Decision:
    """From how long the line was, as time: TAT - now. Less than 0 says refused."""
    policy, cost = request.policy, request.cost
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
        _by_its_clock(retry) if cost <= policy.most else -1,
        _by_its_clock(line + took),
        line if policy.paced and allowed else 0,
        False,
        now + line,
    )


def _any(found: list[int], policy: Policy, now: int) -> Decision:
    delay, unit = 0, policy.unit
    if len(found) == 7:
        flags, room, reset, mark, retry, delay, unit = found
    else:
        flags, room, reset, mark, retry = found if len(found) == 5 else (*found, 0)
    if type(sum(found)) is not int or unit < 1:  # the uncompiled `decided` would not mind
        raise TypeError("not numbers that make sense")
    allowed, overrun = flags & _ALLOWED != 0, flags & _OVERRUN != 0
    retry, reset = _by_its_clock(retry), _by_its_clock(reset)
    return decided(policy.limit, allowed, room, unit, retry, reset, delay, overrun, now + mark)


def _by_its_clock(wait: int) -> int:
    """The server's clock has whole microseconds: by it, a wait is over at the next one."""
    return -(-wait // MICROSECOND) * MICROSECOND if wait > 0 else wait


def _undecided(found: Any) -> Answer:
    if isinstance(found, Exception):
        return found
    if found == b"refresh":
        return REFRESH
    if found == b"spared":
        return SPARED
    raise ValueError(f"not an answer: {found!r:.100}")
