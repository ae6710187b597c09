"""The Lua twins against the Python algorithms: one script of steps, answers field by field.

`MemoryStore` on a `FakeClock` and the test build of the Redis script, which is told the
time, play the same steps. The clock moves by whole microseconds, as Redis counts them.

A sliding window counts weights in ticks that fit 62 bits in Python and 52 in Lua. The
limits drawn here have ticks of one nanosecond in both, and no duration is so long that
the policy would round it: then the two are the same to the nanosecond.

Every key of the reference has a store of its own: in a shared table a row that has run
out is forgotten as soon as a neighbour wants its place, and whether it has been cannot be
told when the clock then steps back. For the same reason the script lets such rows linger,
except where a test is about just that.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Limit
from penstock.algorithms.words import NO_MARK
from penstock.durations import MICROSECOND, MILLISECOND
from penstock.stores.redis import script as redis_script
from penstock.stores.redis.operation import (
    ATTEMPT,
    CHARGE,
    DECIDES,
    HIT,
    PEEK,
    REFUND,
    RESET,
    TAKES,
)
from properties.strategies import costs, limits, steps
from stores.redis_twins import (
    CASES,
    START,
    Ask,
    Reference,
    Server,
    exact,
    play,
    random_steps,
    same,
    some_limits,
)
from twins import load_pure


@pytest.mark.parametrize(
    ("algorithm", "options"), CASES, ids=[f"{a}-{o or 'plain'}" for a, o in CASES]
)
def test_a_long_run(server: Server, algorithm: str, options: dict[str, Any]) -> None:
    chance = random.Random(f"{algorithm} {options}")
    expected = play(server, chance, some_limits(chance, algorithm, options), 3_000)
    allowed = [answer["allowed"] for answer in expected if answer is not None]
    assert len(allowed) / 10 < sum(allowed) < len(allowed) * 9 / 10, "it should go both ways"


@pytest.mark.parametrize("text", ["1/7s sliding_log", "3/7s sliding_log soft 2 for 9s"])
def test_more_charges_than_a_log_has_places(server: Server, text: str) -> None:
    limit, key = Limit.parse(text), server.key()
    reference, now = Reference(), START
    reference.add(key, limit)
    asks = []
    for step in range(60):
        now += 300 * MILLISECOND
        asks += [
            Ask(now, key, limit, CHARGE if step < 40 else HIT),
            Ask(now, key, limit, PEEK),
        ]
    same(server, asks, [reference.answer(ask) for ask in asks])


def test_rows_that_have_run_out_are_not_missed(server: Server) -> None:
    """As in production they are deleted at once; while time goes forwards, nobody can tell."""
    chance = random.Random(5)
    several = [limit for case in CASES for limit in some_limits(chance, *case)]
    play(server, chance, several, 6_000, forwards=True)


SETTLE = "settle"
VERBS = [HIT] * 3 + [PEEK, ATTEMPT, CHARGE, REFUND, RESET, SETTLE]


@given(st.data())
def test_any_limit_and_any_steps(server: Server, data: st.DataObject) -> None:
    limit = data.draw(limits().filter(exact))
    reference, key = Reference(), server.key()
    reference.add(key, limit)
    one = st.tuples(
        steps(limit),
        st.sampled_from(VERBS),
        costs(limit),
        st.integers(1, 30),
    )
    asks, expected, taken = [], [], (NO_MARK, 1, 0)
    for step, verb, cost, other in data.draw(st.lists(one, min_size=1, max_size=40)):
        now = (reference.clock.now() + step) // MICROSECOND * MICROSECOND
        reference.clock.set(now)
        ask = Ask(now, key, limit, verb, cost if verb in DECIDES else other)
        if verb == SETTLE:  # give back what is beyond `other` of the last hit
            mark, units, _ = taken
            ask = Ask(now, key, limit, REFUND, max(1, units - other), mark, min(other, units))
        asks.append(ask)
        expected.append(reference.answer(ask))
        if verb in TAKES and expected[-1]["allowed"]:
            taken = (expected[-1]["mark"], cost, 0)
    same(server, asks, expected)


PURE = load_pure()
COARSE = [
    "1000000000/minute sliding_window",
    "1000000000000/30d sliding_window cells 3 lockout 1m",
    "1000000000000/30d sliding_window cells 3 rounding up lockout 1m",
    "300/year sliding_window cells 1 soft 20 for 90s",
    "300/year sliding_window cells 1 rounding up soft 20 for 90s",
    "1000000000/second sliding_window cells 2",
    "997/year",
    "77/year leaky_bucket lockout 5s",
    "991/year debt 3",
]


@pytest.mark.parametrize("text", COARSE)
def test_limits_that_the_script_counts_more_coarsely(server: Server, text: str) -> None:
    """The same numbers put into the uncompiled algorithm give the same answers."""
    limit = Limit.parse(text)
    told = redis_script.policy(limit, START).rule
    reference, key = Reference(PURE), server.key()
    algorithm = reference.add(key, limit).algorithm
    while told.inner is not None:
        told, algorithm = told.inner, algorithm.inner
    numbers = told.numbers
    if limit.algorithm == "sliding_window":
        assert numbers["tick"] > 1 << algorithm.shift
        algorithm.shift, algorithm.ticks = numbers["tick"].bit_length() - 1, numbers["ticks"]
        algorithm.width = numbers["ticks"] * numbers["tick"]
        algorithm.memory = (limit.cells + 1) * algorithm.width
        algorithm.round_by = numbers["round_by"]
        assert algorithm.width * limit.cells <= limit.period_ns * 1.001
    else:
        assert 0 < numbers["interval"] - algorithm.interval < 8
        algorithm.interval, algorithm.ceiling = numbers["interval"], numbers["ceiling"]
        algorithm.capacity = numbers["burst"] * numbers["interval"]
    chance = random.Random(text)
    asks, expected = [], []
    for ask, answer in random_steps(chance, limit, key, 1_000, reference):
        asks.append(ask)
        expected.append(answer)
    same(server, asks, expected)
