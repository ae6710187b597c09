"""MemoryStore: never above its bound, never in anybody's way."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import pytest

from penstock import Limit, Limiter, MemoryStore
from penstock.testing import FakeClock


def make(text: str | None = None, **options: Any) -> tuple[Limiter, MemoryStore, FakeClock]:
    clock = FakeClock()
    store = MemoryStore(clock=clock, **options)
    return Limiter(text, store=store), store, clock


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window", "sliding_log"])
@pytest.mark.parametrize("max_keys", [1, 2, 7, 13, 14, 100, 1000])
def test_a_full_store_stays_within_its_bound_and_fails_nobody(
    max_keys: int, algorithm: str
) -> None:
    limiter, store, _ = make(f"1/day {algorithm}", max_keys=max_keys)
    choose, allowed = random.Random(max_keys), 0
    for _ in range(5 * max_keys + 200):
        allowed += bool(limiter.hit(f"key {choose.randrange(3 * max_keys)}"))
        assert store.keys <= max_keys
    # Whoever was let through was new, or had been evicted; whoever is held was one of them.
    assert store.keys == max_keys
    assert store.evictions == allowed - max_keys > 0


def test_a_key_that_is_hit_again_and_again_needs_no_room() -> None:
    limiter, store, _ = make("1000/day", max_keys=1)
    for _ in range(1000):
        assert limiter.hit("k")
    assert store.evictions == 0


def test_who_would_be_forgotten_soonest_gives_way() -> None:
    """Of sixteen neighbours: half of the keys have minutes left, half of them seconds."""
    limiter, store, _ = make("100/hour", max_keys=1000)
    for number in range(500):
        limiter.hit(f"little {number}", cost=1)
        limiter.hit(f"much {number}", cost=90)
    for number in range(400):
        limiter.hit(f"new {number}", cost=90)
    assert store.evictions == 400
    kept = sum(limiter.peek(f"much {number}").remaining == 10 for number in range(500))
    assert kept >= 450  # fewer than sixteen are looked at where a segment ends


def test_expired_keys_give_way_before_any_other() -> None:
    """Also those of another limit: the store is not full of keys that still matter."""
    limiter, store, clock = make(max_keys=1000)
    for number in range(500):
        limiter.hit(f"short {number}", "1/second")
        limiter.hit(f"long {number}", "1/day")
    clock.advance(2)
    for number in range(300):
        limiter.hit(f"new {number}", "1/day")
    assert store.keys <= 1000
    kept = sum(not limiter.peek(f"long {number}", "1/day") for number in range(500))
    assert kept >= 490
    assert store.evictions == 500 - kept


def test_limits_share_one_bound() -> None:
    limiter, store, _ = make(max_keys=300)
    limits = ["1/day", "2/day fixed_window", "3/day sliding_log", "4/day sliding_window"]
    for number in range(500):
        for text in limits:
            assert limiter.hit(f"key {number}", text)
            assert store.keys <= 300
    assert store.keys == 300
    assert store.evictions == 500 * len(limits) - 300
    held = [store.counters(Limit.parse(text)).keys for text in limits]
    assert sum(held) == 300
    assert all(held), "no limit was starved of keys by the others"


# What does not come back at all would hang pytest, too: these run in a process of their own.
NEVER_ENDING = {
    "two_small_tables": """
        limiter = Limiter(store=MemoryStore(max_keys=4, clock=FakeClock()))
        for number in range(4):
            limiter.hit(f"key {number}", "5/minute")
        assert limiter.hit("another", "6/minute")
    """,
    "one_key_and_two_limits": """
        limiter = Limiter(store=MemoryStore(max_keys=1, clock=FakeClock()))
        for number in range(10):
            assert limiter.hit("key", f"{number + 1}/minute")
    """,
    "many_small_tables_and_an_empty_one": """
        limiter = Limiter(store=MemoryStore(max_keys=60, clock=FakeClock()))
        for number in range(50):
            limiter.hit(f"key {number}", "5/minute")
        for number in range(50):
            limiter.reset(f"key {number}", "5/minute")
        for number in range(60):
            limiter.hit(f"key {number}", f"{number % 10 + 7}/minute")
        assert limiter.hit("another", "6/minute")
    """,
    "a_table_that_was_swept": """
        clock = FakeClock()
        store = MemoryStore(max_keys=40, clock=clock)
        limiter = Limiter(store=store)
        for number in range(40):
            limiter.hit(f"key {number}", "1/second")
        clock.advance(5)
        store.sweep()
        for number in range(40):
            limiter.hit(f"key {number}", f"{number % 8 + 1}/day")
        assert limiter.hit("another", "9/day")
    """,
}


@pytest.mark.parametrize("name", NEVER_ENDING)
def test_a_store_full_of_other_limits_keys_makes_room(name: str) -> None:
    code = (
        "from penstock import Limiter, MemoryStore\n"
        "from penstock.testing import FakeClock\n"
        "if True:" + NEVER_ENDING[name]
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, timeout=20, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_limits_on_different_clocks_do_not_sweep_or_evict_each_other() -> None:
    """By default, buckets have the monotonic clock and aligned windows the wall clock."""
    limiter = Limiter("1/day", store=MemoryStore(max_keys=1000))
    for number in range(200):
        limiter.hit(f"bucket {number}")
    for number in range(700):
        limiter.hit(f"window {number}", "5/day fixed_window")
    limiter.store.sweep()
    assert limiter.store.evictions == 0
    assert not any(limiter.hit(f"bucket {number}") for number in range(200))


def test_evictions_are_counted_whatever_clock_a_limit_has() -> None:
    store = MemoryStore(max_keys=100)
    limiter = Limiter("1/day", store=store)
    for number in range(100):
        limiter.hit(f"bucket {number}")
    for number in range(100):
        limiter.hit(f"window {number}", "5/day fixed_window")
    assert store.evictions == 100
