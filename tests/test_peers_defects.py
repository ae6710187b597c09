"""Defects that other Python limiters have, and Penstock does not.

Each test is named after the defect that it shows to be absent.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock import AsyncLimiter, InvalidKey, Limit, Limiter, MemoryStore
from penstock.testing import FakeClock

ALGORITHMS = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "fixed_window align first_hit",
    "sliding_window",
    "sliding_log",
]


def make(text: str | None = None, max_keys: int = 1_000_000) -> tuple[Limiter, FakeClock]:
    clock = FakeClock()
    return Limiter(text, store=MemoryStore(max_keys=max_keys, clock=clock)), clock


def hits_of_8_threads(limiter: Limiter, each: int) -> int:
    barrier, allowed = threading.Barrier(8), []

    def work() -> None:
        barrier.wait()
        allowed.append(sum(bool(limiter.hit("k")) for _ in range(each)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(allowed)


def test_pyrate_limiter_takes_lock_contention_for_a_refusal() -> None:
    """8 threads, all of whose 40 000 hits fit: 7 434 admitted."""
    assert hits_of_8_threads(Limiter("40000/hour"), 5_000) == 40_000


def test_django_rest_framework_admits_several_times_the_limit_to_threads() -> None:
    """8 threads against 1 000: 4 716 to 5 106 admitted."""
    limiter, _ = make("1000/hour fixed_window")
    assert hits_of_8_threads(limiter, 2_000) == 1_000


@pytest.mark.parametrize("algorithm", ["token_bucket", "leaky_bucket"])
def test_throttled_py_refills_in_whole_seconds(algorithm: str) -> None:
    """10 a minute, asked each 5 seconds for an hour: 365 instead of about 610."""
    limiter, clock = make(f"10/minute {algorithm}")
    allowed = 0
    for _ in range(720):
        allowed += bool(limiter.hit("k"))
        clock.advance(5)
    assert 608 <= allowed <= 610


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_throttled_py_lets_refused_hits_consume_quota(algorithm: str) -> None:
    """A key that hammers has as much left, at any time, as one that was quiet."""
    limiter, clock = make(f"10/minute {algorithm}")
    for key in ("hammering", "quiet"):
        limiter.hit(key, cost=10)
    for step in range(24):
        if step < 12:
            assert not limiter.hit("hammering", cost=10)
        assert limiter.peek("hammering").remaining == limiter.peek("quiet").remaining
        clock.advance(5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_limits_charges_a_cost_that_it_refuses(algorithm: str) -> None:
    limiter, _ = make(f"10/minute {algorithm}")
    assert limiter.hit("k", cost=4)
    for cost in (7, 11, 10**9):
        assert not limiter.hit("k", cost=cost)
    assert limiter.hit("k", cost=6)


def test_throttled_py_forgets_a_limit_when_1024_other_keys_come() -> None:
    limiter = Limiter("1/hour")
    assert limiter.hit("victim")
    for number in range(5_000):
        limiter.hit(f"other {number}")
    assert not limiter.hit("victim")


def test_a_full_store_forgets_what_matters_least() -> None:
    """Even one that is too small: who is locked out for an hour outlives a flood of others."""
    limiter, _ = make("2/minute", max_keys=1024)
    strict = Limit(1, "day")
    limiter.hit("victim", strict)
    for number in range(5_000):
        limiter.hit(f"other {number}")
    assert limiter.store.keys <= 1024
    assert limiter.store.evictions > 0
    assert not limiter.hit("victim", strict)


def test_limits_never_frees_moving_window_keys() -> None:
    limiter, clock = make("10/second sliding_log")
    for number in range(5_000):
        limiter.hit(f"key {number}")
    clock.advance(2)
    for _ in range(100):
        limiter.store.sweep()
    assert limiter.store.keys == 0


def test_limits_starts_timer_threads() -> None:
    before = set(threading.enumerate())
    limiter = Limiter("10/second")
    for number in range(1_000):
        for algorithm in ALGORITHMS:
            limiter.hit(f"key {number}", f"10/second {algorithm}")
    assert set(threading.enumerate()) == before


def test_limits_charges_the_earlier_of_several_limits_when_a_later_one_refuses() -> None:
    limiter, _ = make()
    per_user, per_address = Limit(100, "hour"), Limit(1, "hour")
    assert limiter.hit_all([("user", per_user), ("address", per_address)])
    for _ in range(10):
        assert not limiter.hit_all([("user", per_user), ("address", per_address)])
        assert not limiter.hit_all([("address", per_address), ("user", per_user)])
    assert limiter.peek("user", per_user).remaining == 99


def test_peek_then_commit_admits_too_many() -> None:
    """Two limits looked at and then taken, not at once: 128 admitted on a burst of 100."""
    limiter, _ = make()
    wanted = [("a", Limit(100, "hour")), ("b", Limit(1000, "hour"))]
    barrier, allowed = threading.Barrier(8), []

    def work() -> None:
        barrier.wait()
        allowed.append(sum(bool(limiter.hit_all(wanted)) for _ in range(50)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(allowed) == 100
    assert limiter.peek("b", wanted[1][1]).remaining == 900


@pytest.mark.parametrize("algorithm", ["token_bucket", "leaky_bucket"])
def test_an_idle_bucket_overflows(algorithm: str) -> None:
    """The arrival time clamped to the wrong side after idling: 17 admitted instead of 10."""
    limiter, clock = make(f"10/10s {algorithm}")
    for idle in (0, 1, 5, 17, 1000, 86_400):
        limiter.reset("k")
        limiter.hit("k")
        clock.advance(idle)
        assert sum(bool(limiter.hit("k")) for _ in range(30)) == min(10, 9 + idle)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_naive_refund_credits_what_has_come_back_already(algorithm: str) -> None:
    limiter, clock = make(f"10/minute {algorithm}")
    reservation = limiter.reserve("k", cost=5)
    clock.advance(600)
    limiter.hit("k", cost=10)
    reservation.cancel()
    assert not limiter.hit("k")


async def test_aiolimiter_wakes_small_requests_first_so_that_large_ones_starve() -> None:
    clock = FakeClock()
    limiter = AsyncLimiter("10/10s", store=MemoryStore(clock=clock))
    served: list[str] = []

    async def work(name: str, cost: int) -> None:
        await limiter.wait("k", cost=cost)
        served.append(name)

    await limiter.hit("k", cost=10)
    await asyncio.gather(work("large", 10), *(work(f"small {n}", 1) for n in range(20)))
    assert served == ["large", *(f"small {n}" for n in range(20))]


def test_keys_that_hash_alike_share_a_bucket() -> None:
    """``hash(b"x") == hash("x")``, and small integers hash to themselves."""
    limiter, _ = make("1/hour")
    assert limiter.hit("x")
    for key in (b"x", 1, 1.0, ("x",)):
        with pytest.raises(InvalidKey):
            limiter.hit(key)  # type: ignore[arg-type]
    assert limiter.hit("1")


def test_joined_keys_collide() -> None:
    limiter, _ = make("1/hour")
    for key in ("a_b:c", "a:b_c", "a_b_c", "a:b:c", "a", "a:", ":a"):
        assert limiter.hit(key)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_clock_ahead_starves_the_others(algorithm: str) -> None:
    """One whose clock was an hour ahead must not shut the key for an hour when it is put right."""
    limiter, clock = make(f"10/minute {algorithm}")
    clock.advance(3600)
    limiter.hit("k", cost=10)
    clock.advance(-3600)
    allowed = 0
    for _ in range(300):
        allowed += bool(limiter.hit("k"))
        clock.advance(1)
    assert 30 <= allowed <= 60
