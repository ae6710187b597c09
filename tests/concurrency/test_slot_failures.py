"""A server that is killed, stopped and started again: policies, lost slots, coming back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("redis")

import redis

from penstock.concurrency import AsyncConcurrencyLimiter, ConcurrencyLimiter, lease_queue
from penstock.concurrency.events import SlotDegraded, SlotLost
from penstock.errors import LineFull, NoSlot
from penstock.events import Event, StoreDown, StoreUp
from penstock.stores.redis import RedisStore
from stores.machine import Watched
from stores.redis_server import Server, wait_until

pytestmark = pytest.mark.realtime
Start = Callable[..., Server]
HELD = "penstock:slots:{k}:held"


@pytest.fixture
def machine() -> Iterator[Watched]:
    with Watched() as machine:
        yield machine


@pytest.fixture
def server(own_server: Start) -> Server:
    return own_server()


@pytest.fixture
def make(server: Server) -> Iterator[Callable[..., ConcurrencyLimiter]]:
    made: list[ConcurrencyLimiter] = []

    def make(limit: int = 4, **options: Any) -> ConcurrencyLimiter:
        options = {"waiting": 20, "lease": 1} | options
        made.append(ConcurrencyLimiter(limit, store=RedisStore(server.url), **options))
        return made[-1]

    yield make
    for limiter in made:
        limiter.close()


Make = Callable[..., ConcurrencyLimiter]


def held(server: Server) -> int:
    with redis.Redis.from_url(server.url) as client:
        count: int = client.zcard(HELD)
        return count


def heard(limiter: Any) -> list[Event]:
    events: list[Event] = []
    limiter.subscribe(events.append)
    return events


def test_local_is_this_processs_share(make: Make, server: Server) -> None:
    limiter = make(8, share=0.25)
    events = heard(limiter)
    server.kill()
    with limiter.slot("k") as hold, limiter.slot("k"):
        assert hold.degraded
        assert not hold.lost
        with pytest.raises(LineFull):
            limiter.slot("k", timeout=0).__enter__()
        got: list[float] = []
        thread = threading.Thread(target=lambda: _run(limiter, got))
        thread.start()
        wait_until(lambda: limiter.state("k").waiting == 1, "it waits", 60)
    thread.join(60)
    assert got, "a slot that is given back is handed on, with or without the server"
    kinds = [type(event) for event in events]
    assert StoreDown in kinds
    degraded = next(event for event in events if isinstance(event, SlotDegraded))
    assert (degraded.key, degraded.policy) == ("k", "local")
    assert degraded.reason


def _run(limiter: ConcurrencyLimiter, got: list[float]) -> None:
    with limiter.slot("k") as hold:
        got.append(hold.waited)


def test_without_the_server_slots_are_handed_on_at_once(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_queue, "FIRST_PAUSE", 3600 * 10**9)
    monkeypatch.setattr(lease_queue, "LONGEST_PAUSE", 3600 * 10**9)
    limiter, got = make(1), []
    server.kill()
    with limiter.slot("k"):
        thread = threading.Thread(target=_run, args=(limiter, got))
        thread.start()
        wait_until(lambda: limiter.state("k").waiting == 1, "it waits", 60)
    thread.join(60)
    assert got, "it pauses for an hour"


@pytest.mark.parametrize(("limit", "share", "expected"), [(4, 0.5, 2), (4, 0.1, 1), (4, None, 4)])
def test_how_large_a_share_is(
    limit: int, share: float | None, expected: int, make: Make, server: Server
) -> None:
    server.kill()
    limiter = make(limit, share=share)
    for _ in range(expected):
        limiter.slot("k", timeout=0).__enter__()
    with pytest.raises(LineFull):
        limiter.slot("k", timeout=0).__enter__()


def test_open_lets_everybody_run(make: Make, server: Server) -> None:
    limiter = make(1, on_failure="open")
    server.kill()
    holds = [limiter.slot("k").__enter__() for _ in range(5)]
    assert all(hold.degraded for hold in holds)


def test_closed_lets_nobody_run_and_says_why(make: Make, server: Server, machine: Watched) -> None:
    limiter = make(1, on_failure="closed")
    server.kill()
    for _ in range(3):
        begun = time.monotonic()
        with pytest.raises(NoSlot) as refused:
            limiter.slot("k").__enter__()
        assert machine.took(begun) < 1
    assert not isinstance(refused.value, LineFull)
    assert refused.value.reason.startswith(f"127.0.0.1:{server.port}: ")


@pytest.mark.parametrize("policy", ["open", "closed", "local"])
def test_those_who_wait_when_it_goes_away(policy: str, make: Make, server: Server) -> None:
    limiter, other = make(1, on_failure=policy, share=1), make(1)
    seen: list[Any] = []

    def wait() -> None:
        try:
            with limiter.slot("k"):
                seen.append("ran")
        except NoSlot as error:
            seen.append(type(error))

    with other.slot("k"):
        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: limiter.state("k").waiting == 3, "they wait", 60)
        server.kill()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert seen == [NoSlot if policy == "closed" else "ran"] * 3


def test_who_ran_meanwhile_is_counted_when_it_comes_back(make: Make, server: Server) -> None:
    limiter, other = make(2), make(2)
    events = heard(limiter)
    server.kill()
    with limiter.slot("k") as first, limiter.slot("k") as second:
        assert first.degraded
        server.restart()
        wait_until(lambda: not second.degraded, "they are counted", 60)
        assert held(server) == 2
        with pytest.raises(LineFull):
            other.slot("k", timeout=0).__enter__()
        assert isinstance(events[-1], StoreUp)
    assert held(server) == 0
    with other.slot("k", timeout=0):
        pass


def test_what_was_given_back_meanwhile_is_free_when_it_comes_back(
    make: Make, server: Server, machine: Watched
) -> None:
    limiter, other = make(1, lease=4), make(1, lease=4)
    with limiter.slot("k"):
        server.pause()
        with pytest.raises(LineFull):
            limiter.slot("k", timeout=0).__enter__()
    server.resume()  # from now on it answers, but nobody has told it
    assert held(server) == 1
    begun = time.monotonic()
    with other.slot("k", timeout=20):
        assert machine.took(begun) < 2, "it was told, and did not have to run out"


def test_a_slot_that_cannot_be_renewed_is_lost_and_says_so(
    make: Make, server: Server, machine: Watched
) -> None:
    limiter = make(1)
    events = heard(limiter)
    with limiter.slot("k") as hold:
        server.pause()
        begun = time.monotonic()
        wait_until(lambda: hold.lost, "it is lost", 60)
        assert time.monotonic() - begun > 0.5
        assert machine.took(begun) < 1.2
        wait_until(lambda: any(isinstance(e, SlotLost) for e in events), "it is told", 60)
        server.resume()
        time.sleep(0.5)
        assert hold.lost, "once lost it stays so"
    lost = [event for event in events if isinstance(event, SlotLost)]
    assert [event.key for event in lost] == ["k"]


async def test_tasks_through_an_outage(server: Server) -> None:
    async with AsyncConcurrencyLimiter(
        2, waiting=50, lease=1, store=RedisStore(server.url)
    ) as limiter:
        events, ran, stop = heard(limiter), 0, False

        async def work() -> None:
            nonlocal ran
            while not stop:
                async with limiter.slot("k"):
                    ran += 1
                    await asyncio.sleep(0.002)

        async def goes_on() -> None:
            before = ran
            while ran < before + 20:
                await asyncio.sleep(0.01)

        tasks = [asyncio.ensure_future(work()) for _ in range(6)]
        await asyncio.wait_for(goes_on(), 60)
        await asyncio.to_thread(server.kill)
        await asyncio.wait_for(goes_on(), 60)
        await asyncio.to_thread(server.restart)
        while not any(isinstance(event, StoreUp) for event in events):
            await asyncio.sleep(0.01)
        await asyncio.wait_for(goes_on(), 60)
        stop = True
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        assert limiter.state("k").running == 0


def test_an_outage_costs_each_caller_little(make: Make, server: Server, machine: Watched) -> None:
    limiter = make(1000, lease=2)
    with limiter.slot("k"):
        pass
    server.pause()
    try:
        begun = time.monotonic()
        for _ in range(200):
            limiter.slot("k").__enter__()
        # One waits for the answer that does not come, and maybe some probe after it.
        assert machine.took(begun) < 3
    finally:
        server.resume()
