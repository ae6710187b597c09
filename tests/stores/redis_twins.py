"""Plays one script of steps in Redis and in the Python algorithms: see test_redis_twins.py."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import penstock
from penstock import Limit, UnsupportedLimit
from penstock.algorithms.words import NO_MARK
from penstock.durations import DAY, MICROSECOND, SECOND
from penstock.reservation import is_bucket
from penstock.stores.base import ENDLESS
from penstock.stores.redis import script as redis_script
from penstock.stores.redis import wire
from penstock.stores.redis.operation import (
    ATTEMPT,
    CANCEL,
    CHARGE,
    HIT,
    PEEK,
    REFUND,
    RESERVE,
    RESET,
    TAKES,
)
from penstock.stores.redis.script import Policy
from penstock.testing import FakeClock

redis = pytest.importorskip("redis")

START = 1_704_067_200 * SECOND + 123_456 * MICROSECOND
LINGER = 3_600_000
IN_FLIGHT = 500

_names = itertools.count()


# The server, and the script in it ---------------------------------------------


@dataclass
class Server:
    client: Any
    prefix: str
    sha: dict[bool, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for test_clock in (False, True):
            self.sha[test_clock] = self.client.script_load(redis_script.script(test_clock))

    def key(self) -> str:
        """One that nobody has used."""
        return f"{self.prefix}:{next(_names)}"


@dataclass(frozen=True)
class Ask:
    """One step: what is asked of which key, and when."""

    now: int
    key: str
    limit: Limit
    verb: Any
    cost: int = 1
    mark: int = NO_MARK
    kept: int = 0
    size: int = 1


@dataclass
class Operation:
    """What `wire` needs of a `KeyOperation`."""

    key: bytes
    policy: Policy
    verb: str = HIT
    cost: int = 1
    mark: int = NO_MARK
    kept: int = 0
    size: int = 1


class Script:
    """The test build of the script, told the time of each call."""

    def __init__(self, sha: str, linger: int = LINGER, keep: bool = True) -> None:
        self.sha = sha
        self.linger = linger
        self.keep = keep

    def send(self, client: Any, asks: list[Ask], deadline: int = 0) -> tuple[Any, list[Operation]]:
        """A batch, all of it at the time of its first step: the reply, and what was asked."""
        moment = asks[0].now
        operations = operations_of(asks, moment)
        clock = (moment // SECOND, moment % SECOND // MICROSECOND, self.linger, int(self.keep))
        return client.evalsha(self.sha, *wire.encode(operations, deadline), *clock), operations

    def call(self, client: Any, asks: list[Ask], deadline: int = 0) -> list[Any]:
        reply, operations = self.send(client, asks, deadline)
        now, answers = wire.decode(reply, operations)
        assert now == asks[0].now
        return [fields(answer) for answer in answers]


def operations_of(asks: list[Ask], moment: int, started: int = START) -> list[Operation]:
    several = {ask.limit: redis_script.policy(ask.limit, moment, started) for ask in asks}
    return [
        Operation(
            ask.key.encode(), several[ask.limit], ask.verb, ask.cost, ask.mark, ask.kept, ask.size
        )
        for ask in asks
    ]


def in_redis(server: Server, asks: list[Ask], keep: bool = True) -> list[Any]:
    """Every step a call of its own, many of them on the way at once."""
    script, answers = Script(server.sha[True], keep=keep), []
    for start in range(0, len(asks), IN_FLIGHT):
        sent = []
        with server.client.pipeline(transaction=False) as pipe:
            for ask in asks[start : start + IN_FLIGHT]:
                sent.append(script.send(pipe, [ask])[1])
            for reply, operations in zip(pipe.execute(), sent, strict=True):
                answers.append(fields(wire.decode(reply, operations)[1][0]))
    return answers


def fields(answer: Any) -> Any:
    """All that a `Decision` holds; another answer as it is."""
    if not hasattr(answer, "allowed"):  # not isinstance: there is an uncompiled one, too
        return answer
    return {
        "allowed": answer.allowed,
        "remaining": answer.remaining,
        "retry": answer._retry,
        "retry_after": answer.retry_after,
        "reset": answer._reset,
        "reset_after": answer.reset_after,
        "delay": answer._delay,
        "overrun": answer.overrun,
        "last": answer.last,
        "room": answer._room,
        "unit": answer._unit,
        "mark": answer._mark,
        "degraded": answer.degraded,
        "limit": str(answer.limit),
    }


def expected_of(decision: Any) -> dict[str, Any]:
    """What Redis must answer: a wait is over at a whole microsecond, its clock has no finer."""
    answer: dict[str, Any] = fields(decision)
    for name in ("retry", "reset"):
        if answer[name] > 0:
            answer[name] = -(-answer[name] // MICROSECOND) * MICROSECOND
            answer[f"{name}_after"] = answer[name] / SECOND
    return answer


# The reference -----------------------------------------------------------------


class Reference:
    """`MemoryStore`: one for each key, all on one clock."""

    def __init__(self, library: Any = penstock) -> None:
        self.library = library
        self.clock = FakeClock(START)
        self.counters: dict[tuple[str, Limit], Any] = {}

    def add(self, key: str, limit: Limit) -> Any:
        """In force from now on."""
        store = self.library.MemoryStore(clock=self.clock)
        made = store.counters(self.library.Limit.parse(str(limit)))
        self.counters[key, limit] = made
        return made

    def answer(self, ask: Ask) -> Any:
        self.clock.set(ask.now)
        counters = self.counters[ask.key, ask.limit]
        if ask.verb == REFUND:
            counters.refund(ask.key, ask.cost, ask.mark, ask.kept)
        elif ask.verb == CANCEL:
            counters.cancel(ask.key, ask.cost, ask.mark, ask.kept)
        elif ask.verb == CHARGE:
            counters.charge(ask.key, ask.cost)
        elif ask.verb == RESET:
            counters.reset(ask.key)
        else:
            if ask.verb == RESERVE:
                return expected_of(counters.reserve(ask.key, ask.cost, ask.mark))
            if ask.verb == ATTEMPT:
                return expected_of(counters.attempt(ask.key, ask.cost, ask.mark))
            decide = counters.hit if ask.verb == HIT else counters.peek
            return expected_of(decide(ask.key, ask.cost))
        return None


def same(server: Server, asks: list[Ask], expected: list[Any], keep: bool = True) -> None:
    answers = in_redis(server, asks, keep)
    for at, (answer, wanted) in enumerate(zip(answers, expected, strict=True)):
        if answer != wanted:
            before = "\n".join(str(ask) for ask in asks[max(0, at - 12) : at + 1])
            pytest.fail(f"step {at}:\n{before}\nLua    {answer}\nPython {wanted}")


# Limits for which Lua and Python count alike ----------------------------------


def exact(limit: Limit) -> bool:
    """Whether the script holds the limit's numbers as they are; see the top."""
    try:
        found = redis_script.policy(limit, START, START).rule
    except UnsupportedLimit:
        return False
    while found.inner is not None:
        found = found.inner
    if limit.algorithm == "sliding_window":
        return found.numbers["tick"] == 1
    return found.numbers.get("interval", limit.interval_ns) == limit.interval_ns


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "token_bucket": [
        {}, {"burst": 3}, {"burst": 40}, {"debt": 4}, {"burst": 2, "debt": 9}, {"initial": 0},
        {"burst": 3, "initial": 1}, {"burst": 40, "initial": 7},
        {"burst": 2, "initial": 0, "debt": 9},
    ],
    "leaky_bucket": [{}, {"burst": 3}, {"burst": 40}],
    "fixed_window": [
        {}, {"align": "first_hit"}, {"tz": "UTC"}, {"tz": "Europe/Berlin"}, {"tz": "Asia/Kolkata"},
    ],
    "sliding_window": [
        {}, {"cells": 1}, {"cells": 2}, {"cells": 7}, {"rounding": "up"},
        {"cells": 1, "rounding": "up"}, {"cells": 7, "rounding": "up"},
    ],
    "sliding_log": [{}, {"count_rejected": True}],
}  # fmt: skip
CASES = [(algorithm, options) for algorithm, found in OPTIONS.items() for options in found]
AROUND: list[dict[str, Any]] = [
    {}, {"lockout": "90s"}, {"lockout": "7ms"}, {"soft": (3, "20s")}, {"warm_up": "45s"},
    {"lockout": "2m", "soft": (2, "5m")}, {"soft": (5, "3s")}, {"warm_up": "10m"},
    {"lockout": "1s", "warm_up": "1h"},
]  # fmt: skip


def some_limits(chance: random.Random, algorithm: str, options: dict[str, Any]) -> list[Limit]:
    """One of every combination with lockout, soft and warm_up that makes sense."""
    found = []
    for around in AROUND:
        if "tz" in options:
            per = chance.choice(["minute", "hour", "day", "week", "month", "year"])
        else:
            per = chance.choice(["3us", "50ms", "1s", "7s", "1001ms", "1m", "1h", "3d", "90d"])
        amount = chance.choice([1, 2, 3, 5, 7, 20])
        try:
            limit = Limit(amount, per, algorithm=algorithm, **options, **around)
        except ValueError:
            continue  # soft with debt or count_rejected, warm_up without a bucket
        if not exact(limit):  # its ticks, or its bucket with warm-up, are too large
            limit = Limit(amount, "1m", algorithm=algorithm, **options, **around)
        assert exact(limit), limit
        found.append(limit)
    return found


def random_steps(
    chance: random.Random, limit: Limit, key: str, count: int, reference: Reference,
    forwards: bool = False,
) -> Iterator[tuple[Ask, Any]]:  # fmt: skip
    """Steps and the reference's answers; refunds know some of the marks that it gave."""
    clock, marks = reference.clock, [(NO_MARK, 0)]
    places: list[tuple[int, int]] = []
    reserving = 15 if is_bucket(limit) else 0
    unit, period = limit.interval_ns, limit.period_ns
    grace = limit.soft.grace_ns if limit.soft else SECOND
    lengths = [0, 0, unit, 2 * unit, period // 3, period, grace, limit.lockout_ns]
    for _ in range(count):
        step = chance.choice(lengths)
        step = chance.choice(
            [step, chance.randint(0, step), step + MICROSECOND, step - MICROSECOND]
        )
        if chance.random() < 0.15:
            step = max(-2 * step, -100 * DAY)  # further, and a year's bucket leaves 2**56
        step = max(0, step) if forwards else step
        now = (clock.now() + step) // MICROSECOND * MICROSECOND
        clock.set(max(now, START) if forwards else now)
        verb = chance.choices(
            [HIT, PEEK, ATTEMPT, CHARGE, REFUND, RESET, RESERVE, CANCEL],
            [50, 15, 12, 6, 15, 1 if forwards else 2, reserving, reserving if places else 0],
        )[0]
        cost = chance.choice([1, 1, 1, 2, 3, limit.burst, limit.burst + 1, 5 * limit.burst])
        mark, kept = NO_MARK, 0
        if verb == CHARGE and chance.random() < 0.1:
            cost = 10**15
        if verb in (ATTEMPT, RESERVE):
            patience = chance.choice([0, unit, limit.burst * unit // 2])
            mark = chance.choice([ENDLESS, patience // 8 * 8])  # long ones are exact by 8
        if verb == REFUND:
            mark, kept = chance.choice(marks[-8:])
            if clock.now() - mark > 200 * DAY:  # as above
                mark = NO_MARK
        if verb == CANCEL:
            mark, reserved = chance.choice(places[-4:])
            kept = chance.choice([0, 0, chance.randint(0, reserved - 1)])
            cost = reserved - kept
            if clock.now() - mark > 200 * DAY:  # as above
                continue
        ask = Ask(clock.now(), key, limit, verb, cost, mark, kept)
        answer = reference.answer(ask)
        if verb == RESERVE and answer["allowed"]:
            places.append((answer["mark"], cost))
        if verb in TAKES and answer["allowed"]:
            marks.append((answer["mark"], chance.randint(0, cost)))
        yield ask, answer


def play(
    server: Server, chance: random.Random, several: list[Limit], count: int, forwards: bool = False
) -> list[Any]:
    """So many steps, shared among the limits, here and there; the answers."""
    asks, expected = [], []
    for limit in several:
        reference, key = Reference(), server.key()
        reference.add(key, limit)
        for ask, answer in random_steps(
            chance, limit, key, count // len(several), reference, forwards
        ):
            asks.append(ask)
            expected.append(answer)
    assert len(asks) > 0.95 * count
    same(server, asks, expected, keep=not forwards)
    return expected
