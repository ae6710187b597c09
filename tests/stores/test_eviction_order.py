"""Which key gives way when a store is full: see `penstock.stores.levels`. Both stores alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Limiter, MemoryStore, SharedMemoryStore
from penstock.stores.layout import WAYS
from penstock.testing import FakeClock

Store = MemoryStore | SharedMemoryStore
Make = Callable[[int], tuple[Store, FakeClock]]
FLOOD = 3000


@pytest.fixture(params=["memory", "shared"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def memory(keys: int) -> tuple[Store, FakeClock]:
        clock = FakeClock()
        return MemoryStore(keys, clock=clock), clock

    def shared(keys: int) -> tuple[Store, FakeClock]:
        clock = FakeClock()
        return SharedMemoryStore(tmp_path / "limits", keys, 512, clock=clock), clock

    return memory if request.param == "memory" else shared


def flood(limiter: Limiter, clock: FakeClock, *limits: str, cost: int = 1) -> None:
    for number in range(FLOOD):
        clock.advance(0.001)
        for text in limits:
            limiter.hit(f"flood {number}", text, cost=cost)


LOCKING = [
    "3/minute lockout 15m",
    "3/minute fixed_window lockout 15m",
    "3/minute sliding_window lockout 15m",
    "3/minute sliding_log lockout 15m",
    "3/minute sliding_log soft 1 for 1m lockout 15m",
]


@pytest.mark.parametrize("text", LOCKING)
def test_a_flood_of_keys_frees_nobody_who_is_locked_out(make: Make, text: str) -> None:
    store, clock = make(200)
    limiter = Limiter(text, store)
    for number in range(30):
        while limiter.hit(f"locked {number}"):
            pass
    # By keys of the same limit, and of one that is remembered for much longer.
    flood(limiter, clock, text, "100/day fixed_window")
    assert store.evictions > 0
    assert not any(limiter.hit(f"locked {number}") for number in range(30))


@pytest.mark.parametrize("text", LOCKING)
def test_a_lockout_that_has_ended_is_no_lockout(make: Make, text: str) -> None:
    """Then what it remembers gives way before what is remembered longer."""
    store, clock = make(1)
    limiter = Limiter(text, store)
    while limiter.hit("k"):
        pass
    clock.advance(16 * 60)
    for number in range(2 * WAYS):
        limiter.hit(f"{number}")
    assert limiter.peek("k")


@pytest.mark.parametrize(
    "text",
    ["20/hour", "20/hour fixed_window", "20/hour sliding_window", "20/hour sliding_log",
     "20/hour fixed_window align first_hit"],
)  # fmt: skip
def test_who_is_being_limited_does_not_give_way_to_new_keys(make: Make, text: str) -> None:
    """Not even where the state of new keys would last longer."""
    store, clock = make(200)
    limiter = Limiter(text, store)
    for number in range(30):
        limiter.hit(f"refused {number}", cost=20)
        assert not limiter.hit(f"refused {number}")
    flood(limiter, clock, text, "1000/day sliding_window")
    assert store.evictions > 0
    assert not any(limiter.hit(f"refused {number}") for number in range(30))


def test_who_has_used_much_of_a_quota_does_not_give_way_to_who_has_used_little(make: Make) -> None:
    store, clock = make(200)
    quota = "10000/month fixed_window align calendar tz UTC"
    limiter = Limiter(quota, store)
    for number in range(30):
        limiter.hit(f"customer {number}", cost=9_000)
    flood(limiter, clock, quota)
    assert store.evictions > 0
    assert {limiter.peek(f"customer {number}").remaining for number in range(30)} == {1000}


def test_what_has_run_out_goes_first_whatever_it_was(make: Make) -> None:
    store, clock = make(200)
    limiter = Limiter("3/second lockout 1s", store)
    for number in range(100):
        while limiter.hit(f"locked {number}"):
            pass
    clock.advance(10)
    for number in range(60):
        limiter.hit(f"new {number}", "5/day")
    assert store.evictions == 0


def test_a_store_full_of_lockouts_still_takes_new_keys(make: Make) -> None:
    store, clock = make(64)
    limiter = Limiter("1/minute lockout 15m", store)
    for number in range(500):
        clock.advance(0.1)
        limiter.hit(f"{number}")
        assert not limiter.hit(f"{number}")
    assert store.evictions > 0
    assert not limiter.peek("499")


def test_a_key_whose_state_has_run_out_begins_on_the_lowest_level(make: Make) -> None:
    store, clock = make(1)
    limiter = Limiter("20/minute fixed_window align first_hit", store)
    limiter.hit("k", cost=20)
    assert not limiter.hit("k")
    clock.advance(61)
    limiter.hit("k")
    for number in range(2 * WAYS):
        clock.advance(0.1)
        limiter.hit(f"{number}", cost=15)
    assert limiter.peek("k").remaining == 20
