"""What is answered while the server cannot be asked, and what becomes of it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from stores.redis_server import Server

pytest.importorskip("redis")


from penstock import AsyncLimiter, Limit, Limiter
from penstock.errors import StoreUnavailable
from penstock.events import Degraded, Event
from penstock.stores.redis import RedisStore
from penstock.stores.redis.counters import RedisCounters
from penstock.stores.redis.operation import HIT, KeyOperation
from penstock.stores.redis.pending_call import Mailbox, ThreadCall
from penstock.stores.redis.script import Script
from stores.load import wait_for
from stores.machine import Watched
from stores.pinger import Pinger

pytestmark = pytest.mark.realtime
Start = Callable[..., Server]
LIMIT = "10/year"  # which gives nothing back while we look


@pytest.fixture
def machine() -> Iterator[Watched]:
    with Watched() as machine:
        yield machine


@pytest.fixture
def server(own_server: Start) -> Server:
    return own_server()


@pytest.fixture
def dead(server: Server) -> Server:
    """A server that was there; its port is kept, and refuses connections."""
    server.kill()
    return server


@pytest.fixture
async def make(prefix: str) -> AsyncIterator[Callable[..., RedisStore]]:
    made: list[RedisStore] = []

    def make(server: Server, **options: object) -> RedisStore:
        made.append(RedisStore(server.url, prefix=prefix, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for store in made:
        await store.close_async()
        store.close()


Make = Callable[..., RedisStore]


def is_back(store: RedisStore) -> bool:
    """Whether the threads' part of it is asked again."""
    return store.state == "closed" and not Limiter("1/second", store=store).peek("back?").degraded


# Zombies ---------------------------------------------------------------------------


async def zombies(server: Server, store: RedisStore) -> int:
    """Let hits time out while the server is stopped; how many it books when it goes on."""
    limiter = AsyncLimiter("1000/year", store=store)
    await store.connect_async()
    assert not (await limiter.peek("k")).degraded
    server.pause()
    seen = await asyncio.gather(*(limiter.hit("k") for _ in range(200)))
    assert all(decision.degraded for decision in seen)
    await store.close_async()
    resumed = time.monotonic()
    with Pinger(server.url) as pinger:
        server.resume()
        pinger.first_after(resumed)
        pinger.first_after(time.monotonic() + 0.05)  # what lay there has been gone through
    with RedisStore(
        server.url, prefix=store.prefix, deadline="60s", connect_timeout="60s"
    ) as other:
        return 1000 - Limiter("1000/year", store=other).peek("k").remaining


async def test_hits_that_came_too_late_are_not_booked(server: Server, make: Make) -> None:
    booked = await zombies(server, make(server, deadline="200ms"))
    print(f"\nzombies: {booked} of 200 hits that had timed out were booked")
    assert booked == 0


async def test_without_a_deadline_in_the_script_they_would_be(
    server: Server, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above is known to look at something."""
    monkeypatch.setattr(Script, "deadline", lambda self, server_ns: 0)
    assert await zombies(server, make(server, deadline="200ms")) > 100


# Policies --------------------------------------------------------------------------


def test_each_policy_for_a_store_and_for_a_limit(dead: Server, make: Make) -> None:
    for policy in ("open", "closed", "local"):
        for store, limit in (
            (make(dead, on_failure=policy), Limit.parse(LIMIT)),
            (make(dead), Limit(10, "year", on_failure=policy)),
            (make(dead, on_failure="closed"), Limit.parse(f"{LIMIT} on_failure {policy}")),
        ):
            seen = [Limiter(limit, store=store).hit("k", cost=4) for _ in range(4)]
            expected = {
                "open": [True] * 4,
                "closed": [False] * 4,
                "local": [True] * 2 + [False] * 2,
            }
            assert [bool(decision) for decision in seen] == expected[policy], (policy, limit)
            assert all(decision.degraded for decision in seen)
            assert {decision.limit for decision in seen} == {limit}
            if policy == "closed":
                assert {decision.retry_after for decision in seen} == {1.0}


def test_what_two_threads_find_late_is_decided_once(dead: Server, make: Make) -> None:
    """The engine gives up on a call at the moment in which its caller helps itself."""
    store = make(dead, on_failure="local")
    limiter, both = Limiter(LIMIT, store=store), threading.Barrier(2, timeout=0.5)
    assert limiter.peek("k").degraded
    counters = store.counters(Limit.parse(LIMIT))
    assert isinstance(counters, RedisCounters)
    call, told = ThreadCall(Mailbox(), [KeyOperation(counters, "k", HIT)]), []

    def hook(event: Event) -> None:
        told.append(event)
        with contextlib.suppress(threading.BrokenBarrierError):  # alone, as it should be
            both.wait()

    store.subscribe(hook)
    late = (call, "no answer within 10 ms")
    threads = [threading.Thread(target=store.fallback.degrade, args=late) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    store.unsubscribe(hook)
    assert len(told) == 1
    assert limiter.peek("k").remaining == 9


def test_a_share_of_the_limit_is_this_processs(dead: Server, make: Make) -> None:
    for store, limit in (
        (make(dead, on_failure="local", share=0.25), "100/year"),
        (make(dead), "100/year on_failure local share 0.25"),
    ):
        limiter = Limiter(limit, store=store)
        assert sum(bool(limiter.hit("k")) for _ in range(200)) == 25


async def test_hit_all_without_the_server_is_all_or_nothing(dead: Server, make: Make) -> None:
    small, large = "1/month", "10/year"
    store = make(dead, on_failure="local")
    limiter = Limiter(store=store)
    assert limiter.hit_all([("u", large), ("ip", small)]).degraded
    refused = limiter.hit_all([("u", large, 3), ("ip", small)])
    assert not refused
    assert refused.limit == Limit.parse(small)
    assert limiter.peek("u", large).remaining == 9
    tasks = AsyncLimiter(store=store)
    assert not await tasks.hit_all([("u", large, 3), ("ip", small)])
    assert limiter.peek("u", large).remaining == 9
    mixed = [("u", large), ("ip", f"{small} on_failure closed")]
    assert not limiter.hit_all(mixed)
    assert limiter.peek("u", large).remaining == 9


def test_a_reservation_made_without_the_server_is_never_given_back_to_it(
    server: Server, make: Make
) -> None:
    for policy in ("open", "local"):
        store = make(server, on_failure=policy, deadline="1s")
        limiter = Limiter(LIMIT, store=store)
        store.connect()
        server.kill()
        assert wait_for(lambda limiter=limiter: limiter.peek("k").degraded)
        reservation = limiter.reserve("k", cost=4)
        assert reservation.decision.degraded
        server.restart()
        assert wait_for(lambda store=store: is_back(store))
        assert limiter.hit("k", cost=3).remaining == 7
        reservation.settle(0)
        limiter.reserve("k", cost=2).settle(1)
        assert limiter.peek("k").remaining == 6, policy
        limiter.reset("k")


async def test_waiting_without_the_server(server: Server, make: Make, machine: Watched) -> None:
    server.kill()
    for policy, quick in (("open", True), ("closed", False), ("local", True)):
        store = make(server, on_failure=policy)
        start = time.monotonic()
        decision = await AsyncLimiter(LIMIT, store=store).wait("k", timeout=0.5)
        assert bool(decision) == quick
        assert decision.degraded
        decision = Limiter(LIMIT, store=store).wait("k", timeout=0.5)
        assert bool(decision) == quick
        assert machine.took(start) < 0.3, "it waited for what cannot come in time"
    local = AsyncLimiter("10/second burst 1", store=make(server, on_failure="local"))
    start = time.monotonic()
    for _ in range(3):
        assert await local.wait("k")
    assert time.monotonic() - start > 0.19
    assert machine.took(start) < 1
    # And who waits with "closed" is served soon after the server is back.
    waiting = asyncio.create_task(
        AsyncLimiter(LIMIT, store=make(server, on_failure="closed")).wait("k")
    )
    await asyncio.sleep(0.05)
    server.restart()
    decision = await asyncio.wait_for(waiting, 60)
    assert decision
    assert not decision.degraded


async def test_verbs_without_an_answer_are_lost_quietly_and_reset_is_not(
    dead: Server, make: Make
) -> None:
    store = make(dead)
    events: list[Event] = []
    store.subscribe(events.append)
    threads, tasks = Limiter(LIMIT, store=store), AsyncLimiter(LIMIT, store=store)
    assert threads.hit("k").degraded
    assert (await tasks.hit("k")).degraded
    events.clear()
    threads.refund("k")
    await tasks.refund("k")
    threads.reserve("k", cost=2).settle(5)  # charges three, which nobody hears
    reservation = await tasks.reserve("k", cost=2)
    await reservation.settle(5)
    told = [event.verb for event in events if isinstance(event, Degraded)]
    assert told == ["refund", "refund", "hit", "charge", "hit", "charge"]
    with pytest.raises(StoreUnavailable):
        threads.reset("k")
    with pytest.raises(StoreUnavailable):
        await tasks.reset("k")


# What is the caller's own ------------------------------------------------------------


async def test_more_than_may_wait_are_not_kept_waiting(server: Server, make: Make) -> None:
    store = make(server, max_pending=100, deadline="3s")
    told: list[Event] = []
    store.subscribe(told.append)
    limiter = AsyncLimiter("1000000/second", store=store)
    await store.connect_async()
    server.pause()
    start = time.monotonic()
    took: list[float] = []

    async def hit(number: int) -> None:
        assert (await limiter.hit(f"{number}")).degraded
        took.append(time.monotonic() - start)

    await asyncio.gather(*(hit(number) for number in range(1000)))
    server.resume()
    at_once = [seconds for seconds in took if seconds < 2.9]
    print(
        f"\nmax_pending=100: {len(at_once)} of 1000 degraded at once, the last of them after"
        f" {max(at_once) * 1e3:.1f} ms, at a deadline of 3 s"
    )
    assert len(at_once) == 900
    assert sum("waiting already" in event.reason for event in told) == 900  # type: ignore[attr-defined]
