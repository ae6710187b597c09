"""Where parts meet: each of these went wrong once."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    AsyncLimiter,
    InvalidCost,
    InvalidKey,
    Limiter,
    LimitError,
    LimitExceeded,
    MemoryStore,
    MonotonicClock,
    SharedMemoryStore,
)
from penstock._mode import COMPILED
from penstock.testing import FakeClock


def make(text: str | None = None) -> tuple[Limiter, FakeClock]:
    clock = FakeClock()
    return Limiter(text, store=MemoryStore(clock=clock)), clock


def test_a_debt_made_while_cold_is_not_forgiven() -> None:
    limiter, _ = make("10/second burst 1 debt 100 warm_up 1h")
    booked = limiter.hit("k", cost=101).reset_after
    assert not limiter.hit("k")
    assert limiter.peek("k").reset_after == booked


def test_soft_and_warm_up_pull_in_two_directions() -> None:
    with pytest.raises(LimitError, match="choose one"):
        make("100/minute soft 60 for 10m warm_up 10m")


def test_a_refusal_can_be_pickled() -> None:
    limiter, _ = make("1/hour")
    limiter.hit("k")
    with pytest.raises(LimitExceeded) as caught, limiter.slot("k", timeout=0):
        pass
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (copied.key, str(copied)) == ("k", str(caught.value))
    assert repr(copied.decision) == repr(caught.value.decision)


def test_a_soft_limit_behind_a_lockout_keeps_its_promise_when_the_clock_steps_back() -> None:
    for text, costs in (
        ("1/60ns lockout 50ns soft 4 for 60ns", (1, 1, 3, 3, 3, 3, 3)),
        ("2/20ns burst 6 lockout 50ns soft 2 for 60ns", (3, 3, 2, 2, 2)),
    ):
        limiter, clock = make(text)
        for cost in costs:
            limiter.hit("k", cost=cost)
        clock.advance_ns(-173)
        refused = limiter.hit("k", cost=3)
        assert not refused
        clock.advance_ns(refused._retry - 1)
        assert not limiter.peek("k", cost=3), text
        clock.advance_ns(1)
        assert limiter.peek("k", cost=3), text


@pytest.mark.parametrize("rule", ["", "fixed_window", "sliding_window", "sliding_log"])
def test_a_cost_that_never_fits_finds_a_new_key_as_new_as_it_is(rule: str) -> None:
    limiter, _ = make(f"5/minute {rule}")
    assert limiter.hit("k", cost=9).reset_after == 0.0


def test_hit_many_takes_nothing_when_one_of_them_is_no_key(tmp_path: Path) -> None:
    for store in (MemoryStore(), SharedMemoryStore(tmp_path / "store")):
        limiter = Limiter("100/hour", store)
        with pytest.raises(InvalidKey):
            limiter.hit_many(["k"] * 70 + [7])  # type: ignore[list-item]
        assert limiter.peek("k").remaining == 100


@pytest.mark.skipif(
    not COMPILED, reason="plain Python can be interrupted anywhere by the collector"
)
def test_a_finalizer_does_not_come_between_the_limits_of_one_request() -> None:
    limiter = Limiter(store=MemoryStore())

    class Interferes:
        def __del__(self) -> None:
            limiter.hit("a", "1/hour")

    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what all other tests have left behind need not be looked at each time
    try:
        for number in range(300):
            limiter.reset("a", "1/hour")
            limiter.reset("b", "100/hour")
            one: Any = Interferes()
            one.me = one
            del one
            gc.set_threshold(1 + number % 40, 1, 1)
            decision = limiter.hit_all([("b", "100/hour"), ("a", "1/hour")])
            gc.set_threshold(*thresholds)
            assert decision or limiter.peek("b", "100/hour").remaining == 100
            gc.collect()
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def test_a_closed_event_loop_does_not_hold_up_the_line() -> None:
    clock = FakeClock(autojump=False)
    limiter = AsyncLimiter("1/second", store=MemoryStore(clock=clock))
    await limiter.hit("k")
    head = asyncio.ensure_future(limiter.wait("k"))
    await asyncio.sleep(0)
    kept: list[Any] = []

    def elsewhere() -> None:
        other = asyncio.new_event_loop()

        async def begin() -> None:
            kept.append(asyncio.ensure_future(limiter.wait("k")))
            await asyncio.sleep(0)

        other.run_until_complete(begin())
        other.close()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    following = asyncio.ensure_future(limiter.wait("k"))
    for _ in range(5):
        clock.advance(1)
        for _ in range(5):
            await asyncio.sleep(0)
    assert head.done()
    assert following.done()
    assert len(limiter._limiter.task_waiters) == 0
    kept[0]._log_destroy_pending = False  # its loop is gone; asyncio would complain


async def test_a_store_in_trouble_does_not_swallow_a_cancellation(tmp_path: Path) -> None:
    clock = FakeClock(autojump=False)
    store = SharedMemoryStore(tmp_path / "store", clock=clock)
    limiter = AsyncLimiter("1/second leaky_bucket burst 5", store)
    await limiter.wait("k")
    task = asyncio.ensure_future(limiter.wait("k"))
    await asyncio.sleep(0)
    store.close()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(limiter._limiter.task_waiters) == 0


def test_a_monotonic_clock_of_ones_own_is_the_time_of_the_file(tmp_path: Path) -> None:
    one = Limiter("5/hour", SharedMemoryStore(tmp_path / "store"))
    two = Limiter("5/hour", SharedMemoryStore(tmp_path / "store", clock=MonotonicClock()))
    assert sum(bool(limiter.hit("k")) for _ in range(5) for limiter in (one, two)) == 5


class Seconds(FakeClock):
    def now(self) -> int:
        return 1.5  # type: ignore[return-value]


def test_a_clock_that_is_none_is_an_error(tmp_path: Path) -> None:
    for clock in (42, Seconds()):
        with pytest.raises(TypeError, match="clock"):
            MemoryStore(clock=clock)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="clock"):
            SharedMemoryStore(tmp_path / "store", clock=clock)  # type: ignore[arg-type]


def test_a_very_long_timeout_is_without_end() -> None:
    limiter, _ = make("1/second")
    for timeout in (1e300, 10**400, float("inf")):
        assert limiter.wait("k", timeout=timeout)


def test_what_is_wrong_with_a_wait_is_said_at_once() -> None:
    limiter, _ = make("1/second")
    with pytest.raises(InvalidKey):
        limiter.wait(["k"])  # type: ignore[arg-type]
    with pytest.raises(InvalidCost):
        limiter.wait("k", cost=0)
    with pytest.raises(InvalidCost):
        limiter.limit(cost=0)
    with pytest.raises(ValueError, match="timeout"):
        limiter.limit(timeout=-1)
    with pytest.raises(InvalidKey, match="give key="):
        limiter.limit()(partial(print))
