"""Undecided hits: a lockout starts for what counted, never for what may yet be given back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    AsyncLimiter,
    Limit,
    Limiter,
    LimitExceeded,
    MemoryStore,
    SharedMemoryStore,
    StoreError,
)
from penstock.stores.base import Counters
from penstock.testing import FakeClock
from penstock.undecided_hits import row_limit

ALGORITHMS = ("token_bucket", "sliding_log", "sliding_window", "fixed_window")


def log_ins(algorithm: str = "sliding_log", amount: int = 5) -> Limit:
    return Limit(amount, "minute", algorithm=algorithm, lockout="15m")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_767_225_600 * 10**9)


@pytest.fixture(params=["memory", "shared"])
def store(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryStore(clock=clock)
        return
    store = SharedMemoryStore(tmp_path / "limits", max_keys=1000, clock=clock)
    yield store
    store.close()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_six_right_log_ins_at_once_lock_nobody_out(store: Any, algorithm: str) -> None:
    limiter = Limiter(log_ins(algorithm), store)
    attempts = [limiter.reserve("k") for _ in range(6)]
    assert [bool(attempt) for attempt in attempts] == [True] * 5 + [False]
    retry_after = attempts[-1].decision.retry_after
    assert retry_after is not None
    assert retry_after < 900, "no lockout"
    for attempt in attempts[:5]:
        attempt.cancel()
    with limiter.reserve("k") as again:
        again.cancel()
    assert limiter.peek("k").remaining == 5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_first_violation_after_the_last_was_counted_locks_out(
    store: Any, clock: FakeClock, algorithm: str
) -> None:
    limiter = Limiter(log_ins(algorithm), store)
    attempts = [limiter.reserve("k") for _ in range(5)]
    for attempt in attempts[:4]:
        attempt.settle(1)
    assert not limiter.reserve("k"), "one is undecided"
    assert limiter.peek("k").retry_after != 900.0
    attempts[4].settle(1)
    assert limiter.reserve("k").decision.retry_after == 900.0
    clock.advance(899)
    assert not limiter.reserve("k")
    clock.advance(1)
    assert limiter.reserve("k")


def test_leaving_the_block_decides(store: Any) -> None:
    limiter = Limiter(log_ins(amount=1), store)
    with limiter.reserve("k"):
        assert not limiter.reserve("k")
        assert limiter.peek("k").retry_after == 60.0
    assert not limiter.reserve("k")
    assert limiter.peek("k").retry_after == 900.0


async def test_the_same_for_coroutines(clock: FakeClock) -> None:
    limiter = AsyncLimiter(log_ins(amount=2), MemoryStore(clock=clock))
    first, second = await limiter.reserve("k"), await limiter.reserve("k")
    third = await limiter.reserve("k")
    assert not third
    assert third.decision.retry_after == 60.0
    await first.settle(1)
    await second.cancel()
    async with limiter.reserve("k"):
        pass
    fourth = await limiter.reserve("k")
    assert fourth.decision.retry_after == 900.0


def test_what_is_never_decided_runs_out(store: Any, clock: FakeClock) -> None:
    """Its process died: after some periods, nothing is held against those who come."""
    limiter = Limiter(log_ins(amount=2), store)
    limiter.reserve("k"), limiter.reserve("k")
    clock.advance(240)
    for _ in range(2):
        with limiter.reserve("k"):
            pass
    assert limiter.reserve("k").decision.retry_after == 900.0


def test_a_hit_that_is_no_reservation_violates_at_once(store: Any) -> None:
    limiter = Limiter(log_ins(amount=1), store)
    limiter.reserve("k")
    assert limiter.hit("k").retry_after == 900.0, "nobody asked it to wait for the outcome"


def test_settling_for_more_and_less(store: Any) -> None:
    limiter = Limiter(log_ins(amount=10), store)
    attempt = limiter.reserve("k", cost=5)
    attempt.settle(8)
    assert limiter.peek("k").remaining == 2
    rest = limiter.reserve("k", cost=2)
    assert not limiter.reserve("k", cost=2)
    rest.settle(1)
    assert limiter.peek("k").remaining == 1
    assert limiter.reserve("k", cost=2).decision.retry_after == 900.0


def test_nothing_undecided_is_left_behind(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = Limiter(log_ins(), store)
    for at in range(20):
        attempt = limiter.reserve("k")
        if attempt:
            attempt.settle(at % 2)
    row = row_limit(log_ins())
    assert Limiter(row, store).peek("undecided:k").remaining == row.amount


def test_a_store_that_fails_to_settle_what_is_undecided_spoils_nothing() -> None:
    class Keeping(MemoryStore):
        def make_counters(self, limit: Any) -> Counters:
            counters = super().make_counters(limit)
            if limit.lockout_ns == 0:

                def refund(*args: Any) -> None:
                    raise StoreError("gone")

                return _Patched(counters, refund)
            return counters

        def hit_each(self, wanted: list[Any], attempt: bool = False) -> Any:
            inner = [(getattr(c, "counters", c), key, cost) for c, key, cost in wanted]
            return super().hit_each(inner, attempt)

    class _Patched(Counters):
        def __init__(self, counters: Counters, refund: Callable[..., None]) -> None:
            super().__init__(counters.limit, None)
            self.counters = counters
            self.refund = refund  # type: ignore[method-assign]

    limiter = Limiter(log_ins(), Keeping())
    with limiter.reserve("k") as attempt:
        attempt.cancel()
    assert attempt.settled
    assert limiter.peek("k").remaining == 5


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_lockout_never_starts_for_what_was_not_counted(algorithm: str, seed: int) -> None:
    """Against a limit that never saw what is undecided, or was given back."""
    choose = random.Random(seed)
    clock = FakeClock(1_767_225_600 * 10**9)
    limit = log_ins(algorithm, 4)
    limiter = Limiter(limit, MemoryStore(clock=clock))
    began = clock.now()
    open_ones: list[tuple[int, Any]] = []
    counted: list[int] = []

    def refused_without_them() -> bool:
        past = FakeClock(began)
        truth = Limiter(limit.changed(lockout=None), MemoryStore(clock=past))
        truth.peek("k")
        for moment in sorted(counted):
            past.advance((moment - past.now()) / 1e9)
            truth.counters(None).charge("k", 1)
        past.advance((clock.now() - past.now()) / 1e9)
        return not truth.peek("k")

    locked = 0
    for _ in range(200):
        what = choose.random()
        if what < 0.5:
            before = limiter.peek("k").retry_after
            attempt = limiter.reserve("k")
            if attempt:
                open_ones.append((clock.now(), attempt))
            elif attempt.decision.retry_after == 900.0 and before != 900.0:
                locked += 1
                assert not open_ones, "those under way may be to blame, not those counted"
                # A bucket gives back a little less, so as never to give anything twice. A sliding
                # window's cells begin with its first hit, also if that was given back.
                inexact = algorithm in ("token_bucket", "sliding_window")
                assert inexact or refused_without_them()
                counted.clear()
                clock.advance(1020)
                began = clock.now()
        elif what < 0.8 and open_ones:
            moment, attempt = open_ones.pop(choose.randrange(len(open_ones)))
            wrong = choose.random() < 0.6
            attempt.settle(int(wrong))
            if wrong:
                counted.append(moment)
        else:
            clock.advance(choose.randrange(0, 12))
    assert locked or seed > 3, "some seeds must come to a lockout, or nothing is shown"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_thousand_guesses_at_once(store: Any, algorithm: str) -> None:
    """Never more than the limit's are looked at; and the door is shut when they have counted."""
    limiter = Limiter(log_ins(algorithm), store)
    looked_at: list[int] = []
    lock = threading.Lock()

    def guess(number: int) -> None:
        try:
            with limiter.reserve("k"), lock:
                looked_at.append(number)
        except LimitExceeded:
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(guess, range(1000)))
    assert len(looked_at) == 5
    assert limiter.peek("k").retry_after == 900.0
