"""The circuit breaker and real sockets: cheap while the server is dead, calm when it is back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stores.proxy import Proxy
from stores.redis_server import Server

pytest.importorskip("redis")

import redis

from penstock import AsyncLimiter, Limiter
from penstock.errors import StoreUnavailable
from penstock.stores.redis import RedisStore
from stores.load import BACK_WITHIN, KINDS, wait_for
from stores.machine import Watched

pytestmark = pytest.mark.realtime
Start = Callable[..., Server]


class Door:
    """A port that takes connections and closes them at once; when, and how many at a time."""

    def __init__(self) -> None:
        self.knocks: list[float] = []
        self._own: dict[int, threading.Event] = {}  # our own, by port: when they were taken
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            link, (_, port) = self._listener.accept()
            link.close()
            if self._listener.gettimeout() == 0:
                return
            if port in self._own:
                self._own[port].set()
            else:
                self.knocks.append(time.monotonic())

    def close(self) -> None:
        self._listener.settimeout(0)
        with socket.create_connection(self._listener.getsockname()):
            self._thread.join(60)
        self._listener.close()

    def gaps(self) -> list[tuple[float, float]]:
        """From one knock to the next."""
        return list(itertools.pairwise(list(self.knocks)))

    def caught_up(self) -> int:
        """How many knocks there were, all that came up to now counted."""
        with socket.socket() as link:
            link.bind(("127.0.0.1", 0))
            taken = self._own[link.getsockname()[1]] = threading.Event()
            link.connect(self._listener.getsockname())
            assert taken.wait(60)  # connections are taken in the order in which they came
            return len(self.knocks)


@contextmanager
def door() -> Iterator[Door]:
    made = Door()
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_server_costs_microseconds_and_is_knocked_at_by_one(kind: str, prefix: str) -> None:
    with door() as closed:
        store = RedisStore(closed.url, prefix=prefix)
        with KINDS[kind](store, connect=False, pause=0.002) as load:
            assert wait_for(lambda: load.store.state != "closed")
            begun = time.monotonic()
            time.sleep(1.6)
            looked = load.since(begun)
            watched = time.monotonic() - begun
        took = sorted(one.took for one in looked)
        median = statistics.median(one.cpu for one in looked)
        knocks = closed.knocks
        gaps = [later - before for before, later in closed.gaps()]
        print(
            f"\ndead server, {kind}: a decision costs {median * 1e6:.0f} us of processor time,"
            f" takes {took[len(took) // 4] * 1e6:.0f} us (p99"
            f" {took[len(took) * 99 // 100] * 1e6:.0f} us), {len(took)} decisions,"
            f" {len(knocks)} attempts, pauses {min(gaps):.3f} to {max(gaps):.3f} s"
        )
        assert all(one.degraded for one in load.made)
        assert median < 0.001, "a tenth of the deadline at most"
        # A busy machine holds up some of them, but not those that have just begun to run.
        assert took[len(took) // 4] < 0.001, "they wait for something"
        # After the first ones the pauses are 150 to 300 ms: 5 to 11 in so long, and a few before.
        slack = load.machine.beats.worst + 0.05
        assert watched / (0.3 + slack) <= len(knocks) <= watched / 0.15 + 6
        for before, later in closed.gaps():
            gap = later - before
            assert gap < 0.3 + slack + load.machine.lost(before, later)
            # The door is a thread of ours, and may have opened late to the first of the two.
            late = load.machine.lost(before - 0.3, before)
            assert gap + late > 0.02, "two at once, or without a pause"
        late = gaps[4:]
        assert max(late) - min(late) > 0.02, "no jitter"


async def test_it_pauses_after_a_lone_hit_too(prefix: str) -> None:
    """Nobody asks any more: it goes on trying to connect, for threads as well as for tasks."""
    for run in (
        lambda store: asyncio.to_thread(Limiter("1/second", store=store).hit, "k"),
        lambda store: AsyncLimiter("1/second", store=store).hit("k"),
    ):
        with door() as closed:
            store = RedisStore(closed.url, prefix=prefix)
            assert (await run(store)).degraded
            before = await asyncio.to_thread(closed.caught_up)
            more = asyncio.to_thread(wait_for, lambda d=closed, n=before: len(d.knocks) > n)
            assert await more, "it has given up"
            await store.close_async()
            store.close()
            after = await asyncio.to_thread(closed.caught_up)
            await asyncio.sleep(0.4)
            assert await asyncio.to_thread(closed.caught_up) <= after + 1, "it knocks though closed"


async def come_back(
    stores: list[RedisStore], proxy: Proxy, machine: Watched
) -> tuple[list[float], float]:
    """When each store was closed again after an outage, in seconds since its end, sorted.

    And when the last of them ought to be.
    """
    limiters = [AsyncLimiter("1/second", store=store) for store in stores]
    proxy.refuse()
    for limiter in limiters:
        while not (await limiter.hit("k")).degraded:
            await asyncio.sleep(0.001)
    await asyncio.sleep(1.0)
    mended = time.monotonic()
    proxy.let_pass()
    came: dict[int, float] = {}
    while len(came) < len(stores) and time.monotonic() - mended < 60:
        for number, store in enumerate(stores):
            if number not in came and store.state == "closed":
                came[number] = time.monotonic() - mended
        await asyncio.sleep(0.002)
    moments = sorted(came.values())
    assert len(moments) == len(stores)
    return moments, BACK_WITHIN + machine.lost(mended, mended + moments[-1])


async def test_a_fleet_does_not_come_back_in_one_wave(redis_url: str, prefix: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        proxy, machine = stack.enter_context(Proxy(redis_url)), stack.enter_context(Watched())
        stores = [
            await stack.enter_async_context(RedisStore(proxy.url, prefix=prefix, deadline="200ms"))
            for _ in range(30)
        ]
        # All of them are in this process: where it stands still they come at once, so look again.
        for _ in range(5):
            moments, latest = await come_back(stores, proxy, machine)
            widest = max(sum(start <= m < start + 0.05 for m in moments) for start in moments)
            print(
                f"\n30 stores came back between {moments[0]:.3f} and {moments[-1]:.3f} s after the"
                f" server, at most {widest} of them within 50 ms"
            )
            if widest <= 20 and moments[-1] - moments[0] > 0.1 and moments[-1] <= latest:
                break
            assert machine.beats.worst > 0.02, "in one wave, or late, and no stall explains it"
        else:
            pytest.fail("in one wave, or late, five times")


def hang_up(server: Server) -> None:
    """As servers do with those who were idle for long."""
    with redis.Redis.from_url(server.url) as admin:
        admin.client_kill_filter(_type="normal", skipme=True)


def test_a_connection_that_ended_while_idle_costs_no_decision(
    own_server: Start, prefix: str
) -> None:
    server = own_server()
    with RedisStore(server.url, prefix=prefix, deadline="200ms") as store:
        limiter = Limiter("10/year", store=store)
        seen = [limiter.hit("k")]
        hang_up(server)
        time.sleep(0.05)  # idle means longer than between two decisions
        seen.append(limiter.hit("k"))
        server.restart()  # nobody drives the connection meanwhile, so nobody has noticed
        seen.append(limiter.hit("k"))
        assert [decision.degraded for decision in seen] == [False] * 3
        assert [decision.remaining for decision in seen] == [9, 8, 9], "once each"


async def test_a_connection_that_ended_while_idle_costs_no_task_either(
    own_server: Start, prefix: str
) -> None:
    server = own_server()
    async with RedisStore(server.url, prefix=prefix, deadline="200ms") as store:
        limiter = AsyncLimiter("10/year", store=store)
        seen = [await limiter.hit("k")]
        for _ in range(3):
            await asyncio.to_thread(hang_up, server)
            seen.append(await limiter.hit("k"))
        assert [decision.degraded for decision in seen] == [False] * 4
        assert [decision.remaining for decision in seen] == [9, 8, 7, 6], "once each"


async def test_a_server_that_says_too_much_while_it_is_greeted(proxied: Proxy, prefix: str) -> None:
    """The connection is given up in the moment in which it was to be used."""
    proxied.reply(b"*2\r\n:1\r\n:2\r\n+more\r\n", "EVALSHA")
    store = RedisStore(proxied.url, prefix=prefix)
    limiter = AsyncLimiter("1000000/second", store=store)
    with contextlib.suppress(StoreUnavailable):
        await store.connect_async()
    assert (await limiter.hit("k")).degraded
    proxied.let_pass()
    end = time.monotonic() + BACK_WITHIN
    while (await limiter.hit("k")).degraded and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert not (await limiter.hit("k")).degraded
    await store.close_async()


async def test_a_server_that_never_knows_the_script_is_not_asked_for_ever(
    proxied: Proxy, prefix: str
) -> None:
    async with RedisStore(proxied.url, prefix=prefix) as store:
        limiter = AsyncLimiter("1/second", store=store)
        proxied.reply(b"-NOSCRIPT No matching script.\r\n", "EVAL", "EVALSHA")
        assert all([(await limiter.hit("k")).degraded for _ in range(3)])
        await asyncio.sleep(0.05)
        before = proxied.commands.count("EVAL")
        await asyncio.sleep(0.1)
        print(f"\nNOSCRIPT for ever: {before} times EVAL for three hits, then"
              f" {proxied.commands.count('EVAL') - before} for none")  # fmt: skip
        assert proxied.commands.count("EVAL") == before
        assert before <= 30
