"""Several processes on one file, and processes that are killed at any instant.

Real processes and the real clock are the point here. Every worker counts what it
was allowed in a piece of memory that outlives it.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Limiter, SharedMemoryStore, _mode

SECOND = 10**9
KILLS = int(os.environ.get("PENSTOCK_KILLS", "200"))


class Crew:
    """Forked workers that hit one key as fast as they can."""

    def __init__(self, path: Path, text: str, most: int) -> None:
        self.path, self.text = path, text
        self.tally = mmap.mmap(-1, 16 * most)
        self.pids: list[int] = []
        self.started = 0

    def start(self) -> None:
        slot = 16 * self.started
        self.started += 1
        pid = os.fork()
        if pid:
            self.pids.append(pid)
            return
        try:
            self._work(slot)
        finally:
            os._exit(1)  # only reached by an exception

    def _work(self, slot: int) -> None:
        hit = Limiter(self.text, SharedMemoryStore(self.path, max_keys=1_000)).hit
        count, longest = 0, 0
        while True:
            before = time.monotonic_ns()
            allowed = hit("k")
            longest = max(longest, time.monotonic_ns() - before)
            count += allowed.allowed
            struct.pack_into("=qq", self.tally, slot, count, longest)

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        self.pids.remove(pid)
        assert os.WIFSIGNALED(status), "a worker ended by itself: it must have raised"

    def stop(self) -> None:
        for pid in list(self.pids):
            self.kill(pid)

    @property
    def admitted(self) -> int:
        return sum(count for count, _ in struct.iter_unpack("=qq", self.tally))

    @property
    def longest_call(self) -> float:
        return max(longest for _, longest in struct.iter_unpack("=qq", self.tally)) / SECOND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shm = Path("/dev/shm")
    return (shm if os.access(shm, os.W_OK) else tmp_path) / f"penstock-{os.getpid()}.store"


@pytest.fixture(autouse=True)
def _clean(path: Path) -> Iterator[None]:
    yield
    path.unlink(missing_ok=True)


def test_four_processes_admit_exactly_the_limit(path: Path) -> None:
    # Workers that are stopped on a busy machine must not find the bucket full.
    text = "20000/second" if _mode.COMPILED else "2000/second"
    rate = Limiter(text).default.limit.amount  # type: ignore[union-attr]
    crew = Crew(path, text, 4)
    began = time.monotonic_ns()
    for _ in range(4):
        crew.start()
    while crew.admitted < rate:  # the burst, once all of them are at work
        time.sleep(0.01)  # for the workers, which run on the real clock
    time.sleep(2)  # long enough for the rate to show beside the burst
    crew.stop()
    passed = (time.monotonic_ns() - began) / SECOND
    assert crew.admitted <= rate * (1 + passed)
    assert crew.admitted >= rate * (1 + passed) * 0.97 - rate * 0.3  # they took a while to start


@pytest.mark.parametrize(
    "text",
    ["20000/second", "2000/100ms fixed_window", "2000/100ms sliding_window cells 4"],
)
def test_killed_processes_break_nothing(path: Path, text: str) -> None:
    """Workers die by kill -9 at random instants; the others go on within the limit."""
    store = SharedMemoryStore(path, max_keys=1_000)
    limiter = Limiter(text, store)
    limit = limiter.default.limit  # type: ignore[union-attr]
    kills = KILLS if _mode.COMPILED else KILLS // 4
    crew = Crew(path, text, kills + 4)
    dice = random.Random(7)
    began = time.monotonic_ns()
    for _ in range(4):
        crew.start()
    for _ in range(kills):
        time.sleep(dice.uniform(0.001, 0.03))  # for the workers, which run on the real clock
        crew.kill(dice.choice(crew.pids))
        crew.start()
    crew.stop()
    passed = time.monotonic_ns() - began
    periods = passed / limit.period_ns
    # A window may have been open before, and another not have ended.
    most = limit.burst * (periods + (1 if limit.algorithm == "token_bucket" else 2))
    print(
        f"{text}: {kills} killed, {store.recoveries} of them within a decision;"
        f" longest call {crew.longest_call * 1e3:.1f} ms"
    )
    if _mode.COMPILED:  # the pure one spends its time elsewhere
        assert store.recoveries > 0, "no kill met a decision: this run has shown nothing"
    assert 0 < crew.admitted <= most
    assert crew.longest_call < 0.9, "somebody was stuck behind a dead process"
    limiter.reset("k")
    assert limiter.peek("k").remaining == limit.amount
