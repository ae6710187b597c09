"""The end of leases: a store that is closed by a task, and a process that gets a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

pytest.importorskip("redis")

import redis

from penstock import AsyncLimiter, Limiter
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore
from stores.leased.leasing import heat, lease_of
from stores.redis_server import Server, wait_until

LIMIT = "2000/hour"
PROGRAM = """
import signal, sys
from penstock import Limiter
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore
redis = RedisStore(sys.argv[1], prefix=sys.argv[2], deadline="60s", connect_timeout="60s")
store = LeasedStore(redis, ttl="10s")
if sys.argv[3] == "handled":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
if sys.argv[3] != "plain":
    store.return_on_signal()
limiter = Limiter("2000/hour", store=store)
while not store.stats().held:
    limiter.hit("k")
print("leased", flush=True)
while True:
    limiter.hit("k")
"""


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "penstock-leases"]


async def test_a_task_that_closes_stops_the_thread_and_others_may_go_on(
    redis_url: str, prefix: str
) -> None:
    before = threads()
    inner = RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s")
    async with LeasedStore(inner) as store:
        limiter = AsyncLimiter(LIMIT, store=store)
        while not store.stats().held:
            await limiter.hit("k")
        assert len(threads()) == len(before) + 1
    assert threads() == before
    assert store.stats().leases == 0
    # A thread that uses the store as well leases again.
    heat(store, LIMIT)
    assert len(threads()) == len(before) + 1
    store.close()
    assert threads() == before


async def test_leases_that_cannot_go_back_are_forgotten(
    own_server: Callable[..., Server], prefix: str
) -> None:
    server = own_server()
    store = LeasedStore(
        RedisStore(server.url, prefix=prefix, on_failure="closed", connect_timeout="60s")
    )
    heat(store, LIMIT)
    server.kill()
    await store.close_async()
    assert lease_of(store, LIMIT) is None
    server.restart()
    heat(store, LIMIT)  # nothing of before is in its way
    store.close()


@pytest.mark.parametrize(
    ("handler", "code", "returned"),
    [("plain", -signal.SIGTERM, False), ("added", -signal.SIGTERM, True), ("handled", 7, True)],
)
def test_a_signal_returns_leases_if_it_is_asked_to(
    redis_url: str, prefix: str, handler: str, code: int, returned: bool
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, redis_url, prefix, handler], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"leased\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == code
    finally:
        process.kill()
        process.communicate()
    with redis.Redis.from_url(redis_url) as client:
        left = list(client.scan_iter(f"{prefix}:leases:*"))
    assert left == [] if returned else left != []


def test_a_signal_that_was_ignored_stays_ignored(redis_url: str, prefix: str) -> None:
    inner = RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s")
    former = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with LeasedStore(inner) as store:
            store.return_on_signal(signal.SIGUSR1)
            heat(store, LIMIT)
            signal.raise_signal(signal.SIGUSR1)
            wait_until(lambda: lease_of(store, LIMIT) is None, "it went back", 60)
            assert Limiter(LIMIT, store=store).hit("k")
    finally:
        signal.signal(signal.SIGUSR1, former)
