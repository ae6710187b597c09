"""Leases while processes are killed and stopped, and while the server goes away and comes back."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("redis")

import redis

from penstock import Limit, Limiter
from penstock.stores.leased import LeasedStore, law
from penstock.stores.leased.counters import LeasedCounters
from penstock.stores.redis import RedisStore
from stores.leased.lease_worker import MILLISECONDS, ROW, SLOW, row_bytes
from stores.redis_server import Server, wait_until

pytestmark = pytest.mark.realtime
Start = Callable[..., Server]
TESTS = Path(__file__).parents[2]
# `make soak` runs longer.
SECONDS = float(os.environ.get("PENSTOCK_LEASE_SECONDS", "10"))
PROCESSES = 4
RATE = 2_000
LIMIT = f"{RATE}/second"


class Run:
    """Some processes that offer twice the limit together."""

    def __init__(self, url: str, prefix: str, folder: Path) -> None:
        self.path = folder / "admissions"
        with self.path.open("wb") as file:
            file.truncate(PROCESSES * row_bytes())
        self.base = time.monotonic()
        self.arguments = (url, prefix, LIMIT, str(self.path))
        self.nursery = subprocess.Popen(
            [sys.executable, "-m", "stores.leased.lease_worker"],
            cwd=TESTS, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.processes = [self.start(row) for row in range(PROCESSES)]

    def start(self, row: int) -> int:
        """A new process; its number."""
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        arguments = [*self.arguments, row, 2 * RATE / PROCESSES, self.base]
        self.nursery.stdin.write(json.dumps(arguments) + "\n")
        self.nursery.stdin.flush()
        return int(self.nursery.stdout.readline())

    def kill(self, row: int) -> None:
        os.kill(self.processes[row], signal.SIGKILL)
        self.processes[row] = self.start(row)

    def stop(self) -> list[dict[str, Any]]:
        """End all of them in an orderly way; what each has to say."""
        for process in self.processes:
            os.kill(process, signal.SIGTERM)
        files = [Path(f"{self.path}.{row}") for row in range(PROCESSES)]
        wait_until(lambda: all(f.exists() and f.read_text() for f in files), "they end", 60)
        return [json.loads(file.read_text()) for file in files]

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.nursery.kill()
        self.nursery.communicate()

    def admitted(self) -> tuple[list[int], int]:
        """In each millisecond; and those that took too long to say when."""
        words = array("q", self.path.read_bytes())
        moments = self._by_millisecond(words, 0)
        return moments, sum(words[at + MILLISECONDS] for at in range(0, len(words), ROW))

    def offered(self) -> list[int]:
        """In each millisecond."""
        return self._by_millisecond(array("q", self.path.read_bytes()), MILLISECONDS + 1)

    def _by_millisecond(self, words: array[int], first: int) -> list[int]:
        last = int((time.monotonic() - self.base) * 1000) + 1
        rows = [words[at + first : at + first + last] for at in range(0, len(words), ROW)]
        return [sum(counts) for counts in zip(*rows, strict=True)]


@pytest.fixture
def run(own_server: Start, prefix: str, tmp_path: Path) -> Iterator[tuple[Run, Server]]:
    # What the server has said, it remembers after a restart.
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    made = Run(server.url, prefix, tmp_path)
    yield made, server
    made.end()


def most_above(moments: list[int], rate: float, burst: float) -> float:
    """By how many units the fullest interval exceeds burst + rate x time."""
    worst, lowest, sums = float("-inf"), 0.0, 0
    for at, count in enumerate(moments):
        lowest = min(lowest, sums - rate * at / 1000)
        sums += count
        worst = max(worst, sums - rate * (at + 1) / 1000 - lowest - burst)
    return worst


def ideal(offered: list[int], rate: float, burst: float) -> float:
    """What one bucket, in one place, would have admitted of the same offers.

    So it does not matter how much time the processes got from a machine that is busy.
    """
    level, admitted = burst, 0.0
    for offers in offered:
        level = min(burst, level + rate / 1000)
        taken = min(offers, level)
        level -= taken
        admitted += taken
    return admitted


def test_four_processes_use_the_limit_and_no_more(run: tuple[Run, Server]) -> None:
    fleet, _ = run
    wait_until(lambda: sum(fleet.admitted()[0]) > 2 * RATE, "the burst is gone", 60)
    time.sleep(SECONDS)
    stats = fleet.stop()
    moments, slow = fleet.admitted()
    assert most_above(moments, RATE, RATE) <= RATE * SLOW
    terms = law.terms_of(Limit.parse(LIMIT))
    assert terms is not None
    # Of a full bucket, the bank keeps the cover, and a horizon's demand is in other hands.
    reserve = RATE * (terms.cover + terms.horizon) / 1e9
    in_hand = sum(each["held"] for each in stats)
    possible = ideal(fleet.offered(), RATE, RATE - reserve)
    assert (sum(moments) + slow + in_hand) / possible > 0.99
    here, direct = sum(each["local"] for each in stats), sum(each["direct"] for each in stats)
    # A process that does not get to run in time has its lease renewed late: see tests/realtime.
    assert here / (here + direct) > 0.99


def test_never_above_while_processes_die_and_the_server_restarts(
    run: tuple[Run, Server],
) -> None:
    fleet, server = run
    chance = random.Random(7)
    wait_until(lambda: sum(fleet.admitted()[0]) > RATE, "they are at work", 60)
    end = time.monotonic() + max(SECONDS, 4)
    number = 0
    while time.monotonic() < end:
        time.sleep(0.7)
        number += 1
        fleet.kill(chance.randrange(PROCESSES))
        stopped = fleet.processes[chance.randrange(PROCESSES)]
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(stopped, signal.SIGCONT)
        if number % 20 == 2:
            server.kill()
            time.sleep(0.1)
            server.restart()
    fleet.stop()
    moments, slow = fleet.admitted()
    assert sum(moments) > RATE * SECONDS / 4
    # A process that is stopped between its clock and its note is off by one hit.
    assert most_above(moments, RATE, RATE) <= RATE * SLOW + PROCESSES * number
    assert slow < sum(moments) / 10


# The server goes away -----------------------------------------------------------------------


def heat(store: LeasedStore, limit: str) -> Any:
    limiter = Limiter(limit, store=store)
    counters = store.counters(Limit.parse(limit))
    assert isinstance(counters, LeasedCounters)

    def is_leased() -> bool:
        for _ in range(20):
            limiter.hit("k")
        lease = counters.leases.get("k")
        return lease is not None and lease.available > 4

    wait_until(is_leased, "a lease", 60)
    return counters.leases["k"]


@pytest.mark.parametrize(
    ("policy", "allowed"), [("open", True), ("closed", False), ("local", True)]
)
def test_cut_off_it_spends_what_it_holds_and_then_the_policy_decides(
    own_server: Start, prefix: str, policy: str, allowed: bool
) -> None:
    server = own_server()
    with LeasedStore(
        RedisStore(
            server.url, prefix=prefix, on_failure=policy, deadline="60s", connect_timeout="60s"
        )
    ) as store:
        # A bucket that is half empty vouches for its leases for long.
        limit = "1000/second burst 4000"
        limiter = Limiter(limit, store=store)
        assert limiter.hit("k", cost=2000)
        lease = heat(store, limit)
        server.kill()
        held = lease.available
        assert time.clock_gettime_ns(time.CLOCK_BOOTTIME) < lease.deadline
        decisions = [limiter.hit("k") for _ in range(held + 20)]
        assert all(decisions[:held])
        assert not any(decision.degraded for decision in decisions[: held // 2])
        assert decisions[-1].degraded
        assert decisions[-1].allowed is allowed

        server.restart()

        def is_back() -> bool:
            for _ in range(20):
                decision = limiter.hit("k")
            return not decision.degraded and store.stats().held > 0

        wait_until(is_back, "it leases again", 60)


def test_a_lease_that_was_slept_over_is_not_spent(own_server: Start, prefix: str) -> None:
    server = own_server()
    with LeasedStore(
        RedisStore(
            server.url, prefix=prefix, on_failure="closed", deadline="60s", connect_timeout="60s"
        )
    ) as store:
        limit = "1000/second burst 4000"
        lease = heat(store, limit)
        thread = store._renewal._thread
        assert thread is not None
        store._renewal._closed = True
        store._renewal._wake.set()
        thread.join(60)  # an answer may be on its way
        assert not thread.is_alive()
        lease.deadline = 1  # long ago
        held, before = lease.available, store.stats().decided_directly
        assert Limiter(limit, store=store).hit("k")
        assert lease.available == held
        assert store.stats().decided_directly == before + 1


def test_a_process_ends_without_close_and_gives_back(own_server: Start, prefix: str) -> None:
    server = own_server()
    program = """
import sys, time
from penstock import Limiter
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore
redis = RedisStore(sys.argv[1], prefix=sys.argv[2], deadline="60s", connect_timeout="60s")
store = LeasedStore(redis)
limiter = Limiter("2000/hour", store=store)
while not store.stats().held:
    limiter.hit("k")
"""
    subprocess.run([sys.executable, "-c", program, server.url, prefix], check=True, timeout=120)
    with redis.Redis.from_url(server.url) as client:
        assert list(client.scan_iter(f"{prefix}:leases:*")) == []
