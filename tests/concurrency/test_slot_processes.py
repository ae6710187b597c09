"""Processes that share slots and are killed: never too many, and all slots come back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("redis")

import redis

from penstock.concurrency import ConcurrencyLimiter
from penstock.stores.redis import RedisStore
from stores.machine import Watched
from stores.redis_server import wait_until

pytestmark = pytest.mark.realtime
TESTS = Path(__file__).parents[1]
SECOND = 10**9
KILLS = int(os.environ.get("PENSTOCK_KILLS", "200")) // 28
LEASE = 1.0
# How late this machine may be, beyond what kept this process from running.
LATE = 1.0

Process = subprocess.Popen[str]
Start = Callable[..., Process]


@pytest.fixture
def machine() -> Iterator[Watched]:
    with Watched() as machine:
        yield machine


@pytest.fixture
def start() -> Iterator[Start]:
    """Processes that are gone at the end of the test, whatever became of it."""
    made: list[Process] = []

    def start(task: str, *args: Any) -> Process:
        made.append(
            subprocess.Popen(
                [sys.executable, "-m", "concurrency.workers", task, json.dumps(args)],
                cwd=TESTS, text=True, stdout=subprocess.PIPE,
            )
        )  # fmt: skip
        return made[-1]

    yield start
    for process in made:
        kill(process)
        assert process.stdout
        process.stdout.close()


def kill(process: Process) -> int:
    """When it was gone."""
    process.kill()
    process.wait()
    return time.monotonic_ns()


def test_processes_that_are_killed_at_random(
    start: Start, redis_url: str, prefix: str, tmp_path: Path, machine: Watched
) -> None:
    """Four of them with three who want a slot each; three slots; one is killed at a time."""
    path, slots, chance = tmp_path / "log", 3, random.Random(5)
    args = (redis_url, prefix, slots, LEASE, str(path), 0.1)
    tasks = ["by_threads", "by_tasks"]
    crew = [start(tasks[number % 2], *args) for number in range(4)]
    killed: dict[int, int] = {}
    wait_until(lambda: path.exists() and len(path.read_bytes()) > 1000, "they run", 60)
    for number in range(KILLS):
        time.sleep(0.2 + chance.random() * 0.4)
        busy = {int(pid) for pid, _ in inside(path)} if number % 3 else set()
        inner = [process for process in crew if process.pid in busy]
        victim = chance.choice(inner or crew)
        crew.remove(victim)
        assert victim.poll() is None, "it ended by itself"
        killed[victim.pid] = kill(victim)
        crew.append(start(tasks[number % 2], *args))
    time.sleep(LEASE / 2)
    for process in crew:
        assert process.poll() is None, "it ended by itself"
        killed[process.pid] = kill(process)

    spans: list[tuple[int, int]] = []
    cut = inside(path, spans)
    spans += [(begun, killed[int(pid)]) for (pid, _), begun in cut.items()]
    most = most_at_once(spans)
    print(f"\n{KILLS + 4} killed, {len(cut)} runs of {len(spans)} cut off, {most} at once")
    assert most == slots
    assert len(cut) >= 3, "hardly a kill has hit anybody inside"
    # No slot is lost: with all dead, all of them can be had within the lease.
    begun = time.monotonic()
    store = RedisStore(redis_url, prefix=prefix, connect_timeout="60s")
    with ConcurrencyLimiter(slots, waiting=9, store=store, lease=LEASE, on_failure="closed") as own:
        held = [own.slot("k", timeout=30) for _ in range(slots)]
        for slot in held:
            slot.__enter__()
        back = machine.took(begun)
        print(f"all {slots} slots were back after {back:.2f} s of a lease of {LEASE} s")
        assert back < LEASE + LATE
        for slot in held:
            slot.__exit__(None, None, None)


def inside(path: Path, spans: list[tuple[int, int]] | None = None) -> dict[tuple[str, str], int]:
    """Who has come in and not gone out, since when; the others' times are added to ``spans``."""
    found = {}
    for line in path.read_text().splitlines():
        when, pid, what, name = line.split()
        if what == "in":
            found[pid, name] = int(when)
        else:
            begun = found.pop((pid, name))
            if what == "out" and spans is not None:
                spans.append((begun, int(when)))
    return found


def most_at_once(spans: list[tuple[int, int]]) -> int:
    changes = sorted([(begun, 1) for begun, _ in spans] + [(end, -1) for _, end in spans])
    inside = most = 0
    for _, change in changes:
        inside += change
        most = max(most, inside)
    return most


def test_the_slots_of_the_dead_are_back_within_the_lease(
    start: Start, redis_url: str, prefix: str, machine: Watched
) -> None:
    args = (redis_url, prefix, 2, LEASE)
    dead = [start("holder", *args) for _ in range(2)]
    for process in dead:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
    waits = [start("holder", *args) for _ in range(2)]
    with redis.Redis.from_url(redis_url) as client:
        waiting = f"{prefix}:slots:{{k}}:seen"
        wait_until(lambda: client.zcard(waiting) == 2, "they stand in line", 60)
    time.sleep(0.6)  # the leases have been renewed since
    assert all(process.poll() is None for process in waits)
    killed = time.monotonic()
    for process in dead:
        kill(process)
    for process in waits:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        back = machine.took(killed)
        print(f"\nback after {back:.2f} s")
        assert back < LEASE + LATE


def test_a_holder_that_is_stopped_for_longer_than_its_lease_knows_that_it_lost_the_slot(
    start: Start, redis_url: str, prefix: str, machine: Watched
) -> None:
    args = (redis_url, prefix, 1, LEASE)
    stopped = start("holder", *args)
    assert stopped.stdout
    assert stopped.stdout.readline() == "in\n"
    os.kill(stopped.pid, signal.SIGSTOP)
    begun = time.monotonic()
    store = RedisStore(redis_url, prefix=prefix, connect_timeout="60s")
    with ConcurrencyLimiter(1, waiting=1, store=store, lease=LEASE, on_failure="closed") as other:
        slot = other.slot("k", timeout=30)
        slot.__enter__()
        assert machine.took(begun) < LEASE + LATE
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.stdout.readline() == "lost\n"
        assert stopped.stdout.readline() == "1\n", "and it was told as an event, once"
        stopped.wait(60)
        # What it gave back was its own, which it had no more.
        assert other.state("k").running == 1
        with store.client() as client:
            assert client.zcard(f"{prefix}:slots:{{k}}:held") == 1
        slot.__exit__(None, None, None)
