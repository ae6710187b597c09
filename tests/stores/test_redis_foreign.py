"""Values in the server that we did not write, or that nobody can have meant.

Whoever else uses the server may write over our keys. That is that key's trouble, never the
server's: the failure policy decides on it, or its row is forgotten, and all others go on.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("redis")

import redis

from penstock import AsyncLimiter, Limit, Limiter
from penstock.events import Damaged, Degraded, Event, StoreDown
from penstock.stores.redis import RedisStore
from penstock.stores.redis.counters import RedisCounters
from penstock.testing import StoreConformance

LIMIT = "10/hour"
POLICIES = ["open", "closed", "local"]
_numbers = itertools.count()


class Place:
    """A store, and what its keys hold."""

    def __init__(self, url: str, prefix: str, **options: Any) -> None:
        self.store = RedisStore(
            url, prefix=prefix, deadline="60s", connect_timeout="60s", **options
        )
        self.client = redis.Redis.from_url(url)
        self.events: list[Event] = []
        self.store.subscribe(self.events.append)

    def name(self, key: str, limit: str = LIMIT) -> bytes:
        counters = self.store.counters(Limit.parse(limit))
        assert isinstance(counters, RedisCounters)
        return counters.redis_key(key)

    def plant(self, key: str, value: bytes | list[str], limit: str = LIMIT) -> None:
        self.client.delete(self.name(key, limit))
        if isinstance(value, list):
            self.client.lpush(self.name(key, limit), *value)
        else:
            self.client.set(self.name(key, limit), value)

    def well(self) -> bool:
        return self.store.state == "closed" and not self.kinds(StoreDown)

    def kinds(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
async def place(request: Any, redis_url: str, prefix: str) -> AsyncIterator[Place]:
    made = Place(redis_url, prefix, on_failure=getattr(request, "param", "closed"))
    yield made
    await made.store.close_async()
    made.store.close()
    made.client.close()


FOREIGN: list[bytes | list[str]] = [["x"], b"hello", b"7", b"", b"B", b"B" + bytes(15), bytes(17)]


@pytest.mark.parametrize("place", POLICIES, indirect=True)
@pytest.mark.parametrize("value", FOREIGN, ids=repr)
async def test_the_policy_decides_on_a_key_that_is_not_ours(
    place: Place, value: bytes | list[str], caplog: pytest.LogCaptureFixture
) -> None:
    policy = place.store.fallback.policy
    place.plant("k", value)
    before = place.client.dump(place.name("k"))
    tasks, threads = AsyncLimiter(LIMIT, place.store), Limiter(LIMIT, place.store)
    keys = ["a", "k", "b"]
    with caplog.at_level(logging.WARNING, "penstock"):
        seen = await asyncio.gather(*(tasks.hit(key) for key in keys))
        seen += [await asyncio.to_thread(threads.hit, "k"), *await tasks.hit_many(["a", "k"])]
    assert [d.degraded for d in seen] == [False, True, False, True, False, True]
    assert [d.allowed for d in seen if d.degraded] == [policy != "closed"] * 3
    await tasks.refund("k")
    async with tasks.reserve("a", cost=2) as reservation:
        await reservation.settle(1)
    assert (await tasks.peek("k")).degraded
    assert (await tasks.peek("a")).remaining == 7
    assert place.well()
    assert {event.policy for event in place.kinds(Degraded)} == {policy}
    assert place.client.dump(place.name("k")) == before, "it is somebody's"
    assert len(caplog.records) == 2, "one line a key, for tasks and for threads"


@pytest.mark.parametrize("place", POLICIES, indirect=True)
@pytest.mark.parametrize("foreign", [["k"], ["j"], ["k", "j"]])
async def test_the_others_of_a_group_are_decided_on_as_ever(
    place: Place, foreign: list[str]
) -> None:
    policy = place.store.fallback.policy
    other = "2/day fixed_window"
    for key in foreign:
        place.plant(key, b"hello")
    tasks, threads = AsyncLimiter(LIMIT, place.store), Limiter(LIMIT, place.store)
    wanted: Any = [("k", None), ("a", other), ("j", None), ("b", None)]
    seen = [bool(await tasks.hit_all(wanted)), await asyncio.to_thread(threads.hit_all, wanted)]
    seen += [await tasks.hit_all(wanted)]
    if policy == "closed":
        assert [bool(one) for one in seen] == [False] * 3
        assert (await tasks.peek("a", other)).remaining == 2, "nothing was taken"
    else:
        assert [bool(one) for one in seen] == [True, True, False], "two a day"
        assert (await tasks.peek("b")).remaining == 8
    if policy == "local":
        local = place.store.fallback.counters(Limit.parse(LIMIT))
        assert [local.peek(key, 1).remaining for key in foreign] == [8] * len(foreign)
    assert place.well()


def row(letter: bytes, *numbers: float) -> bytes:
    return letter + struct.pack(f"<{len(numbers)}d", *numbers)


NONSENSE = [math.nan, math.inf, -math.inf, 0.5, 1e300, -1e300]


@pytest.mark.parametrize("number", NONSENSE)
@pytest.mark.parametrize("at", [0, 1])
async def test_a_row_that_makes_no_sense_begins_anew(place: Place, number: float, at: int) -> None:
    numbers = [1_700_000_000.0, 5e9]
    numbers[at] = number
    place.plant("k", row(b"B", *numbers))
    tasks, threads = AsyncLimiter(LIMIT, place.store), Limiter(LIMIT, place.store)
    seen = await asyncio.gather(*(tasks.hit(key) for key in ("a", "k", "b")))
    assert [(d.remaining, d.degraded) for d in seen] == [(9, False)] * 3
    place.plant("k", row(b"B", *numbers))
    assert (await asyncio.to_thread(threads.hit, "k")).remaining == 9
    place.plant("k", row(b"B", *numbers))
    assert (await tasks.hit_all([("a", None), ("k", None)])).remaining == 8
    assert place.well()
    if not number <= 0.5:  # long ago is as good as never, and nothing to tell of
        assert [event.key for event in place.kinds(Damaged)] == ["k"] * 3


SHAPES = {
    "B": ["7/hour", "7/hour leaky_bucket", "7/hour debt 3"],
    "F": ["7/hour fixed_window", "7/hour fixed_window align first_hit"],
    "W": ["7/hour sliding_window cells 3"],
    "H": ["7/hour sliding_log", "7/hour sliding_log count_rejected"],
    "L": ["7/hour lockout 1m", "7/hour sliding_log lockout 1m"],
    "S": ["7/hour soft 2 for 1m", "7/hour sliding_window cells 2 soft 1 for 1m lockout 1m"],
}
ANY = st.one_of(
    st.floats(),
    st.sampled_from([*NONSENSE, 0.0, -0.0, 1.0, -1.0, 2.0**53, 1e9, 1.7e9, 1.7e15, 3.6e12]),
    st.integers(-(2**60), 2**60).map(float),
    st.integers(0, 20).map(float),
)


@pytest.fixture(scope="module")
def fuzzed(redis_url: str) -> Iterator[Place]:
    made = Place(redis_url, "penstock-test-fuzz", on_failure="closed")
    yield made
    made.store.close()
    for name in made.client.scan_iter("penstock-test-fuzz*"):
        made.client.delete(name)
    made.client.close()


@given(data=st.data())
@settings(max_examples=3 * settings().max_examples)
def test_whatever_lies_there_nobody_else_notices(fuzzed: Place, data: st.DataObject) -> None:
    letter = data.draw(st.sampled_from(sorted(SHAPES)))
    text = data.draw(st.sampled_from(SHAPES[letter]))
    seconds = st.one_of(st.just(1.7e9), ANY)
    ours = st.builds(
        lambda second, numbers: row(letter.encode(), second, *numbers),
        seconds,
        st.lists(ANY, max_size=24),
    )
    value = data.draw(st.one_of(ours, ours, ours, st.binary(max_size=200)))
    key = f"k{next(_numbers)}"
    fuzzed.plant(key, value, text)
    limiter, limit = Limiter(text, fuzzed.store), Limit.parse(text)
    wanted: Any = [(key, None), (f"{key} beside", "100/hour")]
    limiter.peek(key)
    counters = limiter.counters(None)
    taken = 0
    for verb in data.draw(st.lists(st.sampled_from(["hit", "all", "attempt", "refund", "charge"]))):
        if verb == "hit":
            taken += bool(limiter.hit(key))
        elif verb == "attempt":
            taken += bool(counters.attempt(key, 1))
        elif verb == "all":
            taken += bool(limiter.hit_all(wanted))
        elif verb == "refund":
            limiter.refund(key)
            taken -= 1
        else:
            counters.charge(key, 1)
    for _ in range(30):
        taken += bool(limiter.hit(key))
    overrun = limit.soft.overrun if limit.soft is not None else 0
    assert taken <= limit.burst + limit.debt + overrun
    assert fuzzed.well()
    other = limiter.peek(f"{key} beside", "100/hour")
    assert not other.degraded


@pytest.mark.parametrize("text", StoreConformance.limits)
def test_our_own_rows_make_sense(redis_url: str, prefix: str, text: str) -> None:
    """After all sorts of calls: a row that we wrote ourselves is never called damaged."""
    made = Place(redis_url, prefix)
    with made.store as store, made.client:
        limiter = Limiter(text, store)
        for round_ in range(3):
            for cost in (1, 2, 1, 5, 9):
                limiter.hit("k", cost=cost)
                limiter.peek("k")
                if round_:
                    limiter.refund("k", cost)
                    limiter.counters(None).charge("k", cost)
        assert made.events == []
