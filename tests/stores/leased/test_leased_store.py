"""LeasedStore over a real server, with the time of the leases told by a test."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import AsyncLimiter, Gate, Limit, Limiter
from penstock.stores.leased import LeasedStore, LeaseStats
from penstock.stores.leased.counters import LeasedCounters
from penstock.stores.redis import RedisStore
from stores.leased.leasing import LIMIT, heat, lease_of
from stores.redis_server import wait_until

RULES = """
domain: api
descriptors:
  - key: tenant
    rate_limit: {unit: second, requests_per_unit: 500}
"""


@pytest.fixture
def make(redis_url: str, prefix: str) -> Iterator[Callable[..., LeasedStore]]:
    made: list[LeasedStore] = []

    def start(**options: Any) -> LeasedStore:
        store = RedisStore(
            redis_url, prefix=prefix, deadline="60s", connect_timeout="60s", **options
        )
        made.append(LeasedStore(store))
        return made[-1]

    yield start
    for store in made:
        store.close()


def counted(store: LeasedStore, limit: str = LIMIT, key: str = "k") -> int:
    """Units that the counter in Redis has left."""
    return Limiter(limit, store=store.redis).peek(key).remaining


def test_a_cold_key_is_decided_directly(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter = Limiter(LIMIT, store=store)
    for number in range(30):
        assert limiter.hit(f"user:{number}")
    assert store.stats().leases == 0
    assert store.stats().decided_directly == 30


def test_few_large_hits_do_not_make_a_key_hot(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter = Limiter(LIMIT, store=store)
    for _ in range(5):
        assert limiter.hit("k", cost=100)
    assert store.stats().leases == 0


def test_a_hot_key_is_decided_here(make: Callable[..., LeasedStore]) -> None:
    store = make()
    heat(store)
    limiter, before = Limiter(LIMIT, store=store), store.stats()
    decisions = [limiter.hit("k") for _ in range(4)]
    after = store.stats()
    assert all(decisions)
    assert after.decided_here - before.decided_here == 4
    assert not any(decision.degraded for decision in decisions)
    assert decisions[0].remaining > 0


@pytest.mark.parametrize(
    "text", ["100/minute sliding_window", "100/minute lockout 1m", "5/second", "100/second debt 5"]
)
def test_other_limits_are_the_counters_of_redis(
    make: Callable[..., LeasedStore], text: str
) -> None:
    store = make()
    limit = Limit.parse(text)
    assert store.counters(limit) is store.redis.counters(limit)


@pytest.mark.parametrize(
    "limit",
    ["500/hour", "500/day fixed_window", "500/month fixed_window tz Europe/Berlin"],
)
def test_two_instances_and_a_direct_one_admit_the_limit_together(
    make: Callable[..., LeasedStore], limit: str
) -> None:
    one, two = make(), make()
    limiters = [Limiter(limit, store=store) for store in (one, two, one.redis)]
    admitted, began = 0, time.monotonic()
    for _ in range(600):
        for limiter in limiters:
            admitted += sum(limiter.hit("k").allowed for _ in range(4))
        time.sleep(0.001)
    back = (time.monotonic() - began) * 500 / 3600  # at most: a bucket's, as time passes
    assert admitted <= 500 + back + 1
    # What is in hand, and of a bucket what it covers the leases with, is not.
    assert admitted > 430
    assert one.stats().decided_here + two.stats().decided_here > 100


def test_an_empty_bank_is_not_asked_for_every_hit(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter = Limiter("20/second", store=store)
    began = time.monotonic()
    decisions = []
    while time.monotonic() - began < 0.5:
        decisions.append(limiter.hit("k"))
        time.sleep(0.0002)
    stats = store.stats()
    assert stats.local_share > 0.8
    assert stats.calls < 40
    refused = decisions[-1]
    assert not refused
    assert refused.retry_after is not None
    assert 0 < refused.retry_after < 0.2


def test_unused_units_go_back(make: Callable[..., LeasedStore]) -> None:
    store = make()
    heat(store)
    wait_until(lambda: store.stats().leases == 0, "the lease is idle and goes back", 60)
    assert store.stats().returned > 0


def test_close_gives_back_at_once(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limit = "2000/hour"
    lease = heat(store, limit)
    assert lease is not None
    held, before = store.stats().held, counted(store, limit)
    assert held > 4
    store.give_back()
    assert store.stats().leases == 0
    assert counted(store, limit) >= before + held


def test_a_refund_goes_to_the_lease(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter, lease = Limiter(LIMIT, store=store), heat(store)
    store._renewal._closed = True  # no reports meanwhile
    before = lease.available
    assert limiter.hit("k", cost=3)
    assert lease.available == before - 3
    limiter.refund("k", cost=3)
    assert lease.available == before


def test_a_reservation_settles_what_a_lease_gave(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter, lease = Limiter(LIMIT, store=store), heat(store)
    store._renewal._closed = True
    before = lease.available
    with limiter.reserve("k", cost=4) as reservation:
        reservation.settle(1)
    assert lease.available == before - 1


def test_peek_takes_nothing_and_speaks_of_this_instance(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter, lease = Limiter(LIMIT, store=store), heat(store)
    before = lease.available
    assert limiter.peek("k")
    assert lease.available == before


def test_peek_of_the_whole_asks_the_server(make: Callable[..., LeasedStore]) -> None:
    one, two = make(), make()
    limit = "2000/hour"
    for store in (one, two):
        heat(store, limit)
        store._renewal._closed = True  # no reports meanwhile
    limiter, held = Limiter(limit, store=one), one.stats().held + two.stats().held
    spent = limiter.peek("k", whole=True).remaining
    here = limiter.peek("k")
    assert limiter.hit("k")
    # Here, one unit less is in hand. In the server, it was taken when it was leased.
    assert limiter.peek("k").remaining == here.remaining - 1
    assert limiter.peek("k", whole=True).remaining == spent
    assert spent == counted(one, limit) <= 2000 - held
    assert Limiter(f"{limit}; 5/minute", store=one).peek("k", whole=True).remaining == 5


async def test_peek_of_the_whole_for_tasks(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limit = "2000/hour"
    heat(store, limit)
    store._renewal._closed = True
    limiter = AsyncLimiter(limit, store=store)
    assert (await limiter.peek("k", whole=True)).remaining == counted(store, limit)
    both = await AsyncLimiter(f"{limit}; 5/minute", store=store).peek("k", whole=True)
    assert both.remaining == 5
    await store.close_async()


def test_of_a_store_that_does_not_lease_the_whole_is_what_there_is() -> None:
    limiter = Limiter("5/minute")
    limiter.hit("k")
    assert limiter.peek("k", whole=True).remaining == limiter.peek("k").remaining == 4


def test_share_is_what_may_be_in_hand(make: Callable[..., LeasedStore]) -> None:
    limit = Limit.parse("100000/day burst 2000")
    for share, most in [(0.02, 40), (0.5, 1000), (1, 2000)]:
        with LeasedStore(make().redis, share=share) as store:
            counters = store.counters(limit)
            assert isinstance(counters, LeasedCounters)
            assert counters.terms.most == most
            counters.stretch(4)
            assert counters.terms.most == most


def test_hit_all_takes_from_all_leases_or_from_none(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter = Limiter(store=store)
    first = heat(store, LIMIT, "a")

    def is_empty() -> bool:
        for _ in range(12):
            Limiter("20/hour", store=store).hit("b")
        lease = lease_of(store, "20/hour", "b")
        return lease is not None and lease.closed_until > 0 and lease.available == 0

    wait_until(is_empty, "the second limit is used up", 60)
    heat(store, LIMIT, "a")
    spent = first.granted - first.returned - first.available
    for _ in range(3):
        assert not limiter.hit_all([("a", LIMIT), ("b", "20/hour")])
    assert first.granted - first.returned - first.available <= spent


def test_hit_all_with_a_limit_that_is_not_leased(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter = Limiter(store=store)
    heat(store, LIMIT, "a")
    items = [("a", LIMIT), ("c", "2/minute sliding_window")]
    assert [bool(limiter.hit_all(items)) for _ in range(3)] == [True, True, False]


def test_reset_forgets_the_lease_as_well(make: Callable[..., LeasedStore]) -> None:
    store = make()
    heat(store)
    Limiter(LIMIT, store=store).reset("k")
    assert lease_of(store, LIMIT, "k") is None
    assert counted(store) == 2000


def test_wait_gets_its_turn_when_the_bank_has_some_again(make: Callable[..., LeasedStore]) -> None:
    store = make()
    limiter = Limiter("200/second burst 20", store=store)
    for _ in range(200):
        limiter.hit("k")
    assert limiter.wait("k", timeout=60)


async def test_tasks_spend_from_the_same_lease(make: Callable[..., LeasedStore]) -> None:
    store = make()
    heat(store)
    limiter, before = AsyncLimiter(LIMIT, store=store), store.stats()
    assert await limiter.hit("k")
    assert await limiter.peek("k")
    assert all(await limiter.hit_many(["k", "k", "other"]))
    assert await limiter.hit_all([("k", LIMIT)])
    await limiter.refund("k")
    assert store.stats().decided_here - before.decided_here >= 3
    assert await limiter.wait("k", timeout=60)
    await limiter.reset("k")
    await store.close_async()
    assert store.stats().leases == 0


def test_a_fork_leaves_the_leases_to_the_parent(make: Callable[..., LeasedStore]) -> None:
    store = make()
    lease = heat(store)
    child = os.fork()
    if child == 0:
        code = store.stats().leases
        try:
            heat(store)  # it gets leases of its own
        except BaseException:
            code = 77
        os._exit(code)
    limiter, ended, status = Limiter(LIMIT, store=store), 0, 0
    while not ended:  # a lease that nobody uses goes back
        limiter.hit("k")
        time.sleep(0.001)
        ended, status = os.waitpid(child, os.WNOHANG)
    assert os.waitstatus_to_exitcode(status) == 0
    assert lease_of(store, LIMIT, "k") is lease


def test_wrong_arguments_are_errors_as_in_redis(make: Callable[..., LeasedStore]) -> None:
    store = make()
    heat(store)
    limiter = Limiter(LIMIT, store=store)
    for key, cost in [("", 1), (b"k", 1), ("k", 0), ("k", -1), ("k", 1.0), ("k", True)]:
        with pytest.raises(ValueError if cost != 1 or not key else TypeError):
            limiter.hit(key, cost=cost)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="RedisStore"):
        LeasedStore("redis://localhost")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="horizon"):
        LeasedStore(store.redis, horizon="1m")
    for share in (0, 1.5, "half", True):
        with pytest.raises(ValueError, match="share is a number above 0 and at most 1"):
            LeasedStore(store.redis, share=share)  # type: ignore[arg-type]
    for replicas in (-1, 1.0, True):
        with pytest.raises(ValueError, match="replicas is a whole number"):
            LeasedStore(store.redis, replicas=replicas)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ttl"):
        LeasedStore(store.redis, ttl="1ms")


def test_a_gate_decides_by_leases(make: Callable[..., LeasedStore]) -> None:
    store = make()
    gate = Gate.from_rules(RULES, store=store)

    def is_leased() -> bool:
        for _ in range(20):
            gate.check({"tenant": "acme"})
        return store.stats().decided_here > 0

    wait_until(is_leased, "a lease", 60)
    gate.close()


def test_a_limit_that_is_released_gives_its_leases_back(make: Callable[..., LeasedStore]) -> None:
    store = make()
    heat(store)
    for _ in range(4):
        Limiter(LIMIT, store=store).hit("k")
    before = store.stats()
    assert store.release(Limit.parse(LIMIT))
    after = store.stats()
    assert after.leases == 0
    # Counters of metrics must not fall.
    assert after.decided_here == before.decided_here > 0
    assert after.decided_directly == before.decided_directly > 0


def test_figures() -> None:
    stats = LeaseStats(1, 20, 900, 100, 30, 60, 0, 1000, 5, 10, 1)
    assert stats.local_share == 0.9
    assert stats.calls_saved == 870
    assert stats.unused_share == 0.01
    empty = LeaseStats(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    assert (empty.local_share, empty.unused_share) == (0.0, 0.0)
