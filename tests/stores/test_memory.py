"""MemoryStore: the conformance suite, and what only it promises: nothing is kept too long."""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import Any

import pytest

from penstock import Limiter, MemoryStore
from penstock.testing import FakeClock, StoreConformance


class TestMemoryStore(StoreConformance):
    def make_store(self, clock: FakeClock) -> MemoryStore:
        return MemoryStore(clock=clock)


class TestFullMemoryStore(StoreConformance):
    """With a few keys' room, as long as a test needs no more of them."""

    test_keys_are_any_non_empty_text = None

    def make_store(self, clock: FakeClock) -> MemoryStore:
        return MemoryStore(max_keys=3, clock=clock)


def make(text: str | None = None, **options: Any) -> tuple[Limiter, MemoryStore, FakeClock]:
    clock = FakeClock()
    store = MemoryStore(clock=clock, **options)
    return Limiter(text, store=store), store, clock


def sweep_all(store: MemoryStore) -> int:
    """Sweep until a whole round finds nothing more."""
    dropped = idle = 0
    while idle < 100:
        found = store.sweep()
        dropped, idle = dropped + found, 0 if found else idle + 1
    return dropped


@pytest.mark.parametrize("max_keys", [0, -1, 1.5, "9", None, True])
def test_a_bound_is_a_whole_number_of_at_least_one(max_keys: Any) -> None:
    with pytest.raises(ValueError, match=r"^max_keys is a whole number from 1 to 2\*\*40, not "):
        MemoryStore(max_keys=max_keys)


@pytest.mark.parametrize("clock", [0, "now", object(), MemoryStore])
def test_a_clock_is_a_clock(clock: Any) -> None:
    with pytest.raises(TypeError, match=r"^a clock has now\(\), sleep\(\) and sleep_async\(\)"):
        MemoryStore(clock=clock)


def test_says_how_many_keys_it_holds() -> None:
    limiter, store, _ = make("5/minute", max_keys=100)
    for key in ("a", "b", "a"):
        limiter.hit(key)
    assert (store.keys, store.max_keys, store.evictions) == (2, 100, 0)
    assert repr(store) == "<MemoryStore 2 of 100 keys>"
    limiter.reset("a")
    assert store.keys == 1


def test_peeking_and_refunding_keep_no_key() -> None:
    limiter, store, _ = make("5/minute")
    limiter.peek("a")
    limiter.refund("b", 2)
    limiter.reset("c")
    limiter.hit("d", cost=6)
    assert store.keys == 0


def test_expired_keys_are_dropped_by_sweeping() -> None:
    limiter, store, clock = make("1/second")
    for number in range(10_000):
        limiter.hit(f"key {number}")
    assert sweep_all(store) == 0
    assert store.keys == 10_000
    clock.advance(2)
    assert sweep_all(store) == 10_000
    assert store.keys == 0
    assert limiter.hit("key 1")


def test_expired_keys_are_dropped_by_traffic_alone() -> None:
    limiter, store, clock = make("1/second")
    most = 0
    for number in range(60_000):
        if number % 1000 == 0:
            clock.advance(1)
        limiter.hit(f"key {number}")
        most = max(most, store.keys)
    assert most < 6_000, "a thousand are alive at any time"


def test_others_sweep_away_what_has_expired() -> None:
    limiter, store, clock = make("1/minute")
    for number in range(50_000):
        limiter.hit(f"old {number}")
    clock.advance(61)
    for number in range(5_000):
        limiter.hit(f"new {number}")
    assert 5_000 <= store.keys < 46_000, "each new key sweeps more than one old one away"


def test_resetting_some_keys_leaves_the_others_in_their_place() -> None:
    limiter, store, _ = make("1/day")
    names = [f"key {number}" for number in range(5_000)]
    limiter.hit_many(names)
    random.Random(5).shuffle(names)
    for name in names[:2_500]:
        limiter.reset(name)
    assert store.keys == 2_500
    assert not any(limiter.hit(name) for name in names[2_500:])
    assert all(limiter.hit(name) for name in names[:2_500])
    assert store.keys == 5_000


def test_sweeping_drops_nothing_that_lives() -> None:
    limiter, store, clock = make()
    for number in range(2_000):
        limiter.hit(f"key {number}", "1/second" if number % 2 else "1/day")
    clock.advance(2)
    sweep_all(store)
    assert 1_000 <= store.keys <= 1_400
    assert not any(limiter.hit(f"key {number}", "1/day") for number in range(0, 2_000, 2))


def test_a_long_log_gives_its_memory_back() -> None:
    limiter, store, clock = make("1000/minute sliding_log")
    limiter.hit("warm up")
    limiter.reset("warm up")
    tracemalloc.start()
    try:
        for number in range(20):
            for _ in range(1_000):
                limiter.hit(f"key {number}")
                clock.advance_ns(1)
        full = tracemalloc.get_traced_memory()[0]
        clock.advance(61)
        sweep_all(store)
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert store.keys == 0
    assert full > 20 * 1_000 * 16, "two words a hit"
    assert left < full / 20


def test_resetting_and_evicting_give_the_memory_of_a_log_back() -> None:
    limiter, store, clock = make("1000/minute sliding_log", max_keys=4)
    sizes = []
    tracemalloc.start()
    try:
        for number in range(12):
            for _ in range(1_000):
                limiter.hit(f"key {number}")
                clock.advance_ns(1)
            sizes.append(tracemalloc.get_traced_memory()[0])
        for number in range(12):
            limiter.reset(f"key {number}")
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert store.keys == 0
    assert max(sizes) < 1.5 * sizes[3], "four logs, however many keys have come"
    assert left < sizes[3] / 10


def test_a_store_that_is_dropped_leaves_nothing_behind() -> None:
    def use() -> None:
        for text in ("5/minute", "500/minute sliding_log"):
            limiter, _, clock = make(text)
            for number in range(5_000):
                limiter.hit(f"key {number % 100}")
                clock.advance_ns(1)

    use()
    gc.collect()
    tracemalloc.start()
    try:
        use()
        gc.collect()  # a store and its tables know each other
        left, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < most / 20


def test_a_store_agrees_with_a_dict_on_200_000_keys() -> None:
    """The token bucket in six lines, over random keys, costs and steps of time."""
    limiter, store, clock = make("10/minute")
    interval, capacity = 6 * 10**9, 60 * 10**9
    choose, full_at = random.Random(200_000), dict[str, int]()
    names = [f"user:{choose.getrandbits(64):x}" for _ in range(200_000)]
    for step in range(400_000):
        if step % 50 == 0:
            clock.advance_ns(choose.randrange(10**7))
        now, cost = clock.now(), choose.choice((1, 1, 3, 10))
        key = names[step] if step < 200_000 else choose.choice(names)
        tat = max(full_at.get(key, 0), now)
        room = capacity - (tat - now)
        allowed = cost * interval <= room
        if allowed:
            full_at[key], room = tat + cost * interval, room - cost * interval
        decision = limiter.hit(key, cost=cost)
        assert decision.allowed is allowed
        assert decision.remaining == room // interval
        assert decision._retry == (0 if allowed else cost * interval - room)
    assert store.evictions == 0
    assert store.keys <= 200_000


# Forgetting all ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["1/hour", "1/day fixed_window", "1/hour sliding_window", "1/hour sliding_log",
     "1/hour lockout 1d"],
)  # fmt: skip
def test_a_store_that_is_cleared_forgets_every_key(text: str) -> None:
    limiter, store, _ = make(text)
    keys = [f"user:{number}" for number in range(3000)]
    for _ in range(3):
        limiter.hit_many(keys)
    assert store.keys == 3000
    store.clear()
    assert store.keys == 0
    assert all(decision.allowed for decision in limiter.hit_many(keys))


def test_all_limits_of_a_store_are_cleared_in_place() -> None:
    clock = FakeClock()
    store = MemoryStore(max_keys=4, clock=clock)
    limiters = [Limiter(text, store=store) for text in ("1/hour", "1/day", "1/hour lockout 1d")]
    for _ in range(3):
        assert [limiter.hit("a").allowed for limiter in limiters] == [True] * 3
        assert [limiter.hit("a").allowed for limiter in limiters] == [False] * 3
        store.clear()
    assert store.evictions == 0
