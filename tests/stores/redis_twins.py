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
from penstock.stores.redis import script as redis_script
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
    verb: str
    cost: int = 1
    mark: int = NO_MARK
    kept: int = 0


def call(server: Any, sha: str, asks: list[Ask], linger: int = LINGER, keep: bool = True) -> Any:
    """Decide a batch, all of it at the time of its first step."""
    moment = asks[0].now
    several = list(dict.fromkeys(ask.limit for ask in asks))
    policies = [redis_script.policy(limit, moment, START) for limit in several]
    told = [
        word
        for ask in asks
        for word in redis_script.arguments(
            several.index(ask.limit), ask.verb, ask.cost, ask.mark, ask.kept
        )
    ]
    clock = (moment // SECOND, moment % SECOND // MICROSECOND, linger, int(keep))
    keys = [ask.key for ask in asks]
    return server.evalsha(sha, len(keys), *keys, redis_script.encode(policies), *told, *clock)


def in_redis(server: Server, asks: list[Ask], keep: bool = True) -> list[Any]:
    """Every step a call of its own, many of them on the way at once."""
    answers: list[Any] = []
    for start in range(0, len(asks), IN_FLIGHT):
        with server.client.pipeline(transaction=False) as pipe:
            for ask in asks[start : start + IN_FLIGHT]:
                call(pipe, server.sha[True], [ask], keep=keep)
            answers += [found[0] for found in pipe.execute()]
    return answers


def shown(answer: Any) -> Any:
    """An answer of the script as the fields of a `Decision`."""
    if not isinstance(answer, list):
        return answer
    allowed, room, unit, retry, reset, delay, overrun, mark_s, mark_ns = answer
    return {
        "allowed": bool(allowed),
        "remaining": max(0, room) // unit,
        "retry": retry,
        "retry_after": None if retry < 0 else retry / 1e9,
        "reset_after": reset / 1e9,
        "delay": delay,
        "overrun": bool(overrun),
        "last": bool(allowed) and room < unit and not overrun,
        "room": room,
        "unit": unit,
        "mark": mark_s * SECOND + mark_ns,
    }


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
        if ask.verb == "refund":
            counters.refund(ask.key, ask.cost, ask.mark, ask.kept)
        elif ask.verb == "charge":
            counters.charge(ask.key, ask.cost)
        elif ask.verb == "reset":
            counters.reset(ask.key)
        else:
            found = getattr(counters, ask.verb)(ask.key, ask.cost)
            return {
                "allowed": found.allowed,
                "remaining": found.remaining,
                "retry": found._retry,
                "retry_after": found.retry_after,
                "reset_after": found.reset_after,
                "delay": found._delay,
                "overrun": found.overrun,
                "last": found.last,
                "room": found._room,
                "unit": found._unit,
                "mark": found._mark,
            }
        return 1


def same(server: Server, asks: list[Ask], expected: list[Any], keep: bool = True) -> None:
    answers = in_redis(server, asks, keep)
    for at, (answer, wanted) in enumerate(zip(answers, expected, strict=True)):
        if shown(answer) != wanted:
            before = "\n".join(str(ask) for ask in asks[max(0, at - 12) : at + 1])
            pytest.fail(f"step {at}:\n{before}\nLua    {shown(answer)}\nPython {wanted}")


# Limits for which Lua and Python count alike ----------------------------------


def exact(limit: Limit) -> bool:
    """Whether the script holds the limit's numbers as they are; see the top."""
    try:
        found = redis_script.policy(limit, START, START)
    except UnsupportedLimit:
        return False
    while "inner" in found:
        found = found["inner"]
    if limit.algorithm == "sliding_window":
        return found["shift"] == 0
    return found.get("interval", limit.interval_ns) == limit.interval_ns


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "token_bucket": [{}, {"burst": 3}, {"burst": 40}, {"debt": 4}, {"burst": 2, "debt": 9}],
    "leaky_bucket": [{}, {"burst": 3}, {"burst": 40}],
    "fixed_window": [
        {}, {"align": "first_hit"}, {"tz": "UTC"}, {"tz": "Europe/Berlin"}, {"tz": "Asia/Kolkata"},
    ],
    "sliding_window": [{}, {"cells": 1}, {"cells": 2}, {"cells": 7}],
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
            ["hit", "peek", "charge", "refund", "reset"], [60, 15, 6, 15, 1 if forwards else 2]
        )[0]
        cost = chance.choice([1, 1, 1, 2, 3, limit.burst, limit.burst + 1, 5 * limit.burst])
        mark, kept = NO_MARK, 0
        if verb == "charge" and chance.random() < 0.1:
            cost = 10**15
        if verb == "refund":
            mark, kept = chance.choice(marks[-8:])
            if clock.now() - mark > 200 * DAY:  # as above
                mark = NO_MARK
        ask = Ask(clock.now(), key, limit, verb, cost, mark, kept)
        answer = reference.answer(ask)
        if verb == "hit" and answer["allowed"]:
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
