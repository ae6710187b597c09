"""``reset_after`` is when the key is as good as new: then, and not a nanosecond before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Limiter, MemoryStore
from penstock.testing import FakeClock
from properties.strategies import costs, limits

START = 10**18


def looks(limiter: Limiter, key: str) -> list[Any]:
    """All that a look can tell of a key but its times."""
    limit = limiter.counters(None).limit
    overrun = limit.soft.overrun if limit.soft is not None else 0
    several = {1, limit.burst, limit.burst + limit.debt, limit.burst + overrun}
    seen = [limiter.peek(key, cost=cost) for cost in sorted(several)]
    return [(d.allowed, d.overrun, d.remaining) for d in seen]


@given(st.data())
def test_a_key_is_as_good_as_new_at_reset_after_and_not_before(data: st.DataObject) -> None:
    # With `initial` a new key has less than a full bucket, which is what it tells the time of.
    plain = limits().filter(lambda limit: not limit.warm_up_ns and limit.initial is None)
    limit = data.draw(plain)
    clock = FakeClock(START)
    limiter = Limiter(limit, store=MemoryStore(clock=clock))
    unit, period = max(1, limit.interval_ns), limit.period_ns
    passed = st.one_of(st.just(0), st.integers(0, 2 * unit), st.integers(0, 2 * period))
    verbs = st.sampled_from(["hit", "hit", "hit", "peek", "charge"])
    for step, verb, cost in data.draw(
        st.lists(st.tuples(passed, verbs, costs(limit)), min_size=1, max_size=15)
    ):
        clock.advance_ns(step)
        if verb == "charge":
            limiter.counters(None).charge("k", cost)
            verb = "peek"
        decision = getattr(limiter, verb)("k", cost=cost)
    if decision._reset > 0:
        clock.advance_ns(decision._reset - 1)
        # Of a grace time that runs, looks tell nothing; nor of a part of a unit that is left in
        # a sliding window and is rounded down: that is why a key can be as good as new sooner.
        if limit.soft is None and limit.rounding != "down":
            assert looks(limiter, "k") != looks(limiter, "never seen")
        clock.advance_ns(1)
    assert looks(limiter, "k") == looks(limiter, "never seen")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3/second lockout 700ms", 1.0),
        ("3/second lockout 7s", 7.0),
        ("3/second leaky_bucket lockout 700ms", 1.0),
        ("3/second sliding_log lockout 700ms", 1.0),
        ("3/second sliding_window cells 2 lockout 700ms", 1.5),
        ("3/second sliding_window cells 2 lockout 1400ms", 1.5),
        ("3/second sliding_window cells 2 lockout 2s", 2.0),
        ("3/second fixed_window align first_hit lockout 2s", 2.0),
        ("3/second soft 1 for 2s lockout 1s", 4.0),
    ],
)
def test_a_lockout_is_over_with_the_units_or_after_them(text: str, seconds: float) -> None:
    clock = FakeClock(START)
    limiter = Limiter(text, store=MemoryStore(clock=clock))
    refused = None
    while refused is None or refused:
        refused = limiter.hit("k")
    assert refused.reset_after == pytest.approx(seconds, abs=1e-6)
    assert limiter.peek("k").reset_after == refused.reset_after


def test_cells_that_are_long_empty_do_not_prolong_a_lockout() -> None:
    """A key that came slowly: its newest cells have nothing in them."""
    clock = FakeClock(START)
    limiter = Limiter("10/5s sliding_window cells 5 lockout 1400ms", MemoryStore(clock=clock))
    limiter.hit("k", cost=9)
    clock.advance(4.9)
    assert not limiter.hit("k", cost=5)
    assert limiter.peek("k").reset_after == 1.4


def test_a_look_does_not_tell_of_a_grace_time_that_nobody_began() -> None:
    clock = FakeClock(START)
    limiter = Limiter("2/second soft 1 for 10m", MemoryStore(clock=clock))
    limiter.hit("k", cost=2)
    look = limiter.peek("k")
    assert (look.overrun, look.reset_after) == (True, 1.0)
    assert limiter.hit("k").reset_after == 1200.0
