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

Start = Callable[..., Server]


class Door:
    """A port that takes connections and closes them at once; when, and how many at a time."""

    def __init__(self) -> None:
        self.knocks: list[float] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            link, _ = self._listener.accept()
            link.close()
            if self._listener.gettimeout() == 0:
                return
            self.knocks.append(time.monotonic())

    def close(self) -> None:
        self._listener.settimeout(0)
        with socket.create_connection(self._listener.getsockname()):
            self._thread.join(5)
        self._listener.close()

    def gaps(self) -> list[float]:
        return [later - before for before, later in itertools.pairwise(list(self.knocks))]


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
            took = sorted(one.took for one in load.since(begun))
        gaps = closed.gaps()
        median = statistics.median(took)
        print(
            f"\ndead server, {kind}: a decision costs {median * 1e6:.0f} us (p99"
            f" {took[len(took) * 99 // 100] * 1e6:.0f} us), {len(took)} decisions,"
            f" {len(closed.knocks)} attempts, pauses {min(gaps):.3f} to {max(gaps):.3f} s"
        )
        assert all(one.degraded for one in load.made)
        assert median < 0.001, "a tenth of the deadline at most"
        # After the first ones the pauses are 150 to 300 ms: 5 to 11 in so long, and a few before.
        assert 5 <= len(closed.knocks) <= 17
        slack = load.machine.beats.worst + 0.05
        assert max(gaps) < 0.35 + slack
        assert min(gaps) > 0.02, "two at once, or without a pause"
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
            before = len(closed.knocks)
            await asyncio.sleep(0.5)
            assert len(closed.knocks) > before
            await store.close_async()
            store.close()
            after = len(closed.knocks)
            await asyncio.sleep(0.4)
            assert len(closed.knocks) <= after + 1, "closed, and yet it knocks"


async def test_a_fleet_does_not_come_back_in_one_wave(redis_url: str, prefix: str) -> None:
    stores = []
    with Proxy(redis_url) as proxy:
        for _ in range(30):
            stores.append(RedisStore(proxy.url, prefix=prefix, deadline="200ms"))
            await stores[-1].connect_async()
        limiters = [AsyncLimiter("1/second", store=store) for store in stores]
        proxy.refuse()
        for limiter in limiters:
            assert (await limiter.hit("k")).degraded
        await asyncio.sleep(1.0)
        mended = time.monotonic()
        proxy.let_pass()
        came: dict[int, float] = {}
        while len(came) < len(stores) and time.monotonic() - mended < 5:
            for number, store in enumerate(stores):
                if number not in came and store.state == "closed":
                    came[number] = time.monotonic() - mended
            await asyncio.sleep(0.002)
        for store in stores:
            await store.close_async()
    moments = sorted(came.values())
    assert len(moments) == len(stores)
    widest = max(sum(start <= m < start + 0.05 for m in moments) for start in moments)
    print(
        f"\n30 stores came back between {moments[0]:.3f} and {moments[-1]:.3f} s after the server,"
        f" at most {widest} of them within 50 ms"
    )
    assert moments[-1] <= 1.0
    assert widest <= 20
    assert moments[-1] - moments[0] > 0.1


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
