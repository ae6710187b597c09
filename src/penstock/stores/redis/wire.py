"""What a call of the script looks like on the wire: requests to arguments, reply to answers.

A call carries requests about many keys, each with its policy, and sends every policy
once. The head of ``batch.lua`` says the same from the other side.
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
CHARGE: Final = "charge"
REFUND: Final = "refund"
RESET: Final = "reset"


class Undecided(Enum):
    """Answers that are no decision."""

    REFRESH = "the policy's windows do not cover the server's time; nothing was done"
    LATE = "the deadline had passed when the script ran; nothing was done"
    SPARED = "would have passed, but its group did not; nothing was taken"


REFRESH: Final = Undecided.REFRESH
LATE: Final = Undecided.LATE
SPARED: Final = Undecided.SPARED

Answer = Decision | Undecided | Exception | None


class Request:
    """One thing to do for one key.

    ``mark`` and ``kept`` are a refund's. ``size`` is 1; in the first request of a group that
    passes as a whole or not at all it is the number of its members, which follow it
    directly, each a hit of its own key, with a size of 0.
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
    numbers: dict[int, int] = {}
    texts: list[str] = []
    told: list[Any] = []
    for request in requests:
        policy = request.policy
        number = numbers.setdefault(id(policy), len(texts))
        if number == len(texts):
            texts.append(policy.text)
        mark = request.mark
        told += (
            number,
            request.verb,
            min(request.cost, MOST_COST),
            "-" if mark == NO_MARK else f"{mark // SECOND}:{mark % SECOND}",
            min(request.kept, MOST_COST),
            request.size,
        )
    keys = [request.key for request in requests]
    return [len(keys), *keys, f"[{','.join(texts)}]", deadline_us, *told]


def decode(reply: Any, requests: list[Request]) -> tuple[int, list[Answer]]:
    """The server's time in nanoseconds, and an answer to each request.

    Raises ValueError if the reply cannot be the script's.
    """
    try:
        seconds, micros = reply[:2]
        if type(reply) is not list or type(seconds) is not int or type(micros) is not int:
            raise TypeError("no time")  # and bytes times a billion would be gigabytes
        now = seconds * SECOND + micros * MICROSECOND
        if len(reply) == 2 and requests:
            return now, [LATE] * len(requests)
        answers = [
            _answer(found, request) for found, request in zip(reply[2:], requests, strict=True)
        ]
    except (TypeError, IndexError, ValueError, OverflowError) as error:
        raise ValueError(f"not a reply of the script: {reply!r:.200}") from error
    return now, answers


def _answer(found: Any, request: Request) -> Answer:
    if type(found) is list:
        allowed, room, unit, retry, reset, delay, overrun, seconds, rest = found
        if type(seconds) is not int:  # see decode
            raise TypeError("no mark")
        mark = seconds * SECOND + rest
        return decided(
            request.policy.limit,
            bool(allowed), room, unit, retry, reset, delay, bool(overrun), mark,
        )  # fmt: skip
    if isinstance(found, Exception):
        return found
    if found == 1:
        return None
    if found == b"refresh":
        return REFRESH
    if found == b"spared":
        return SPARED
    raise ValueError(f"not an answer: {found!r:.100}")
