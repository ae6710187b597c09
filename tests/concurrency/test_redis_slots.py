"""Slots that are shared through a real server: who gets them, keeps them and gives them back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("redis")

from penstock.concurrency import (
    HIGH,
    LOW,
    NORMAL,
    AsyncConcurrencyLimiter,
    ConcurrencyLimiter,
    lease_queue,
)
from penstock.errors import ForeignValue, LineFull, WaitedTooLong
from penstock.stores.memory import MemoryStore
from penstock.stores.redis import RedisStore
from stores.machine import Watched
from stores.redis_server import wait_until

if TYPE_CHECKING:
    from stores.redis_cluster import Cluster

Make = Callable[..., ConcurrencyLimiter]
PATIENT = {"connect_timeout": "60s"}


@pytest.fixture
def make(redis_url: str, prefix: str) -> Iterator[Make]:
    """Limiters as other processes would have them: each has connections of its own."""
    made: list[ConcurrencyLimiter] = []

    def make(limit: int = 2, **options: Any) -> ConcurrencyLimiter:
        store = RedisStore(redis_url, prefix=prefix, **PATIENT)
        options = {"waiting": 50, "lease": 60, "on_failure": "closed"} | options
        made.append(ConcurrencyLimiter(limit, store=store, **options))
        return made[-1]

    yield make
    for limiter in made:
        limiter.close()


def held(limiter: Any, key: str = "k") -> int:
    """How many leases the server has."""
    requests, server = limiter._slots._calls, limiter._slots._server
    with server._store.client() as client:
        count: int = client.zcard(requests._names(key)[0])
        return count


# Threads ---------------------------------------------------------------------------------


def test_two_limiters_have_one_set_of_slots(make: Make) -> None:
    here, there = make(), make()
    with here.slot("k") as hold, there.slot("k"):
        assert (hold.lost, hold.degraded, held(here)) == (False, False, 2)
        for limiter in (here, there):
            with pytest.raises(LineFull, match="no time to wait"):
                limiter.slot("k", timeout=0).__enter__()
            with pytest.raises(WaitedTooLong):
                limiter.slot("k", timeout=0.05).__enter__()
        with here.slot("another"):
            pass
    assert held(here) == 0
    assert here._slots.queues == there._slots.queues == {}


def test_a_slot_that_is_given_back_there_is_had_here(make: Make) -> None:
    here, there, got = make(1), make(1), threading.Event()

    def wait() -> None:
        with there.slot("k"):
            got.set()

    with here.slot("k"):
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: there.state("k").waiting == 1, "it waits", 60)
        assert not got.wait(0.1)
    assert got.wait(60)
    thread.join(60)


def test_a_lease_is_renewed_for_as_long_as_it_is_held(make: Make) -> None:
    here, there = make(1, lease=0.5), make(1, lease=0.5)
    with here.slot("k") as hold:
        end = time.monotonic() + 0.9
        while time.monotonic() < end:
            with pytest.raises(LineFull):
                there.slot("k", timeout=0).__enter__()
            time.sleep(0.02)
        assert not hold.lost
    with there.slot("k", timeout=0):
        pass


def test_what_is_not_renewed_comes_back_within_the_lease(make: Make) -> None:
    here, there = make(1, lease=1), make(1, lease=1)
    here.slot("k").__enter__()
    begun = time.monotonic()
    here.close()  # renews no more, as if its process had died
    with Watched() as machine, there.slot("k", timeout=60):
        assert machine.took(begun) < 1 + 0.5
    assert time.monotonic() - begun > 0.5


def test_the_thread_that_renews_is_there_only_while_something_is_held(make: Make) -> None:
    def threads() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == "penstock-leases"]

    limiter = make(lease=0.6)
    assert threads() == []
    with limiter.slot("k"), limiter.slot("j"):
        assert threads() == ["penstock-leases"]
    wait_until(lambda: not threads(), "it ends", 60)
    with limiter.slot("k"):
        assert threads()
        limiter.close()
        assert not threads()


def test_within_a_process_the_line_has_its_order(make: Make) -> None:
    limiter, order = make(1), []

    def work(priority: int) -> None:
        with limiter.slot("k", priority=priority):
            order.append(priority)

    threads = []
    with limiter.slot("k"):
        for priority in (LOW, NORMAL, HIGH, NORMAL, HIGH):
            threads.append(threading.Thread(target=work, args=(priority,)))
            threads[-1].start()
            wait_until(lambda: limiter.state("k").waiting == len(threads), "it waits", 60)
    for thread in threads:
        thread.join(60)
    assert order == [HIGH, HIGH, NORMAL, NORMAL, LOW]


def test_a_slot_that_is_given_back_here_is_asked_for_at_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_queue, "FIRST_PAUSE", 3600 * 10**9)
    monkeypatch.setattr(lease_queue, "LONGEST_PAUSE", 3600 * 10**9)
    limiter = make(1)
    with limiter.slot("k"):
        thread = threading.Thread(target=_pass, args=(limiter.slot("k"),))
        thread.start()
        wait_until(lambda: limiter.state("k").waiting == 1, "it waits", 60)
    thread.join(60)
    assert not thread.is_alive(), "it pauses for an hour"


def test_a_busy_process_does_not_keep_its_slots_for_ever(make: Make) -> None:
    busy, other, stop, runs = make(1), make(1), threading.Event(), []

    def keep_busy() -> None:
        while not stop.is_set():
            with busy.slot("k"):
                runs.append(time.monotonic())
                time.sleep(0.002)

    threads = [threading.Thread(target=keep_busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            wait_until(lambda: busy.state("k").waiting == 3, "a queue", 60)
            before = len(runs)
            with other.slot("k", timeout=60):
                # One may have been granted before it had a place in the fleet's queue.
                assert len(runs) - before < 4
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert len(runs) > 5


def test_many_threads_of_several_limiters_are_never_more_than_the_limit(make: Make) -> None:
    limiters, lock = [make(3, fair=True) for _ in range(3)], threading.Lock()
    inside, most, ran = 0, 0, 0

    def work(limiter: ConcurrencyLimiter, number: int) -> None:
        nonlocal inside, most, ran
        for turn in range(6):
            try:
                with limiter.slot("k", by=number % 2, timeout=(None, 0.01, 0)[turn % 3]):
                    with lock:
                        inside += 1
                        most, ran = max(most, inside), ran + 1
                    time.sleep(0.001)
                    with lock:
                        inside -= 1
            except (LineFull, WaitedTooLong):
                pass

    threads = [
        threading.Thread(target=work, args=(limiter, n)) for limiter in limiters for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (inside, most) == (0, 3)
    assert ran >= 30
    assert held(limiters[0]) == 0


def test_shares_count_over_the_whole_fleet(make: Make) -> None:
    here, there = (make(4, shares={LOW: 0.5}) for _ in range(2))
    with here.slot("k"), there.slot("k"):
        with pytest.raises(LineFull):
            here.slot("k", priority=LOW, timeout=0).__enter__()
        # One that waits for its share does not hold up those who may pass it.
        thread = threading.Thread(target=lambda: _pass(here.slot("k", priority=LOW, timeout=60)))
        thread.start()
        wait_until(lambda: here.state("k").waiting == 1, "it waits", 60)
        with there.slot("k", timeout=0), pytest.raises(WaitedTooLong):
            there.slot("k", priority=LOW, timeout=0.05).__enter__()
    thread.join(60)
    assert not thread.is_alive()


def _pass(slot: Any) -> None:
    with slot:
        pass


def test_a_name_that_holds_something_else_is_an_error(make: Make, prefix: str) -> None:
    limiter = make(on_failure="open")
    with limiter._slots._server._store.client() as client:
        client.set(limiter._slots._calls._names("k")[0], "ours")
    with pytest.raises(ForeignValue, match="not written by Penstock"):
        limiter.slot("k").__enter__()
    with limiter.slot("another") as hold:
        assert not hold.degraded


def test_what_a_shared_limiter_cannot_be(redis_url: str) -> None:
    class Moving:
        limit = 4

        def record(self, *_: Any) -> None:
            pass

    store = RedisStore(redis_url)
    with pytest.raises(TypeError, match="a size that adapts"):
        ConcurrencyLimiter(Moving(), store=store)
    with pytest.raises(TypeError, match="RedisStore"):
        ConcurrencyLimiter(4, store=MemoryStore())  # type: ignore[arg-type]  # the point
    with pytest.raises(ValueError, match=r"at least 0\.5 s"):
        ConcurrencyLimiter(4, store=store, lease=0.1)
    with pytest.raises(ValueError, match="on_failure"):
        ConcurrencyLimiter(4, store=store, on_failure="shut")
    with pytest.raises(ValueError, match="share"):
        ConcurrencyLimiter(4, store=store, share=0)
    assert repr(ConcurrencyLimiter(4, store=store)).startswith("ConcurrencyLimiter(4, store=<Redi")


def test_a_fork_in_the_middle_of_a_slot(redis_url: str, prefix: str) -> None:
    code = f"""
import os, time
from penstock.concurrency import ConcurrencyLimiter
from penstock.stores.redis import RedisStore
store = RedisStore({redis_url!r}, prefix={prefix!r}, connect_timeout="60s")
limiter = ConcurrencyLimiter(2, store=store, lease=0.6, on_failure="closed")
with limiter.slot("k") as hold:
    pid = os.fork()
    if pid == 0:
        with limiter.slot("k", timeout=60):  # the other slot, on a connection of its own
            time.sleep(0.7)
if pid == 0:
    os._exit(0)  # leaving the parent's block gave back nothing
assert os.waitpid(pid, 0)[1] == 0
limiter.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cluster_keeps_all_of_a_key_in_one_place(cluster: Cluster, prefix: str) -> None:
    store = RedisStore(f"redis+cluster://127.0.0.1:{cluster.ports[0]}", prefix=prefix, **PATIENT)

    async def main() -> None:
        async with AsyncConcurrencyLimiter(1, waiting=5, store=store, lease=60) as tasks:
            for number in range(6):
                async with tasks.slot(f"key {number}") as hold:
                    assert not hold.degraded
                    with pytest.raises(WaitedTooLong):
                        await tasks.slot(f"key {number}", timeout=0.02).__aenter__()

    with ConcurrencyLimiter(1, waiting=5, store=store, lease=60, shares={LOW: 0.5}) as limiter:
        for number in range(6):
            with limiter.slot(f"key {number}") as hold:
                assert not hold.degraded
                with pytest.raises(WaitedTooLong):
                    limiter.slot(f"key {number}", timeout=0.02).__enter__()
    asyncio.run(main())
