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

    SLOT = struct.Struct("=qqq")  # calls, those that were admitted, the longest call in ns

    def __init__(self, path: Path, text: str, most: int) -> None:
        self.path, self.text = path, text
        self.tally = mmap.mmap(-1, self.SLOT.size * most)
        self.orders = mmap.mmap(-1, 2)  # begin, end: one byte each
        self.pids: dict[int, int] = {}  # and the slot of each
        self.started = 0

    def start(self) -> None:
        slot = self.started
        self.started += 1
        pid = os.fork()
        if pid:
            self.pids[pid] = slot
            return
        try:
            self._work(slot * self.SLOT.size)
            os._exit(0)
        finally:
            os._exit(1)  # only reached by an exception

    def _work(self, at: int) -> None:
        hit = Limiter(self.text, SharedMemoryStore(self.path, max_keys=1_000)).hit
        calls, admitted, longest = 0, 0, 0
        while not self.orders[0]:
            time.sleep(0.001)
        while not self.orders[1]:
            before = time.monotonic_ns()
            decision = hit("k")
            longest = max(longest, time.monotonic_ns() - before)
            calls += 1
            admitted += decision.allowed
            self.SLOT.pack_into(self.tally, at, calls, admitted, longest)

    def begin(self) -> None:
        self.orders[0] = 1

    def end(self) -> None:
        """Let each finish its call, and tell of it."""
        self.orders[1] = 1
        for pid in self.pids:
            _, status = os.waitpid(pid, 0)
            assert status == 0, "a worker has raised"
        self.pids.clear()

    def wait(self) -> None:
        """A moment, for the workers run on the real clock. None of them may have raised."""
        for pid in self.pids:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a worker ended by itself"
        time.sleep(0.002)

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        del self.pids[pid]
        assert os.WIFSIGNALED(status), "a worker ended by itself: it must have raised"

    def stop(self) -> None:
        for pid in list(self.pids):
            self.kill(pid)

    def at_work(self) -> list[int]:
        """Those who have hit it; on a busy machine, some may not have begun."""
        rows = [*self.SLOT.iter_unpack(self.tally)]
        return [pid for pid, slot in self.pids.items() if rows[slot][0]]

    @property
    def admitted_each(self) -> list[int]:
        return [row[1] for row in self.SLOT.iter_unpack(self.tally)]

    @property
    def admitted(self) -> int:
        return sum(self.admitted_each)

    @property
    def longest_call(self) -> float:
        return max(row[2] for row in self.SLOT.iter_unpack(self.tally)) / SECOND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shm = Path("/dev/shm")
    return (shm if os.access(shm, os.W_OK) else tmp_path) / f"penstock-{os.getpid()}.store"


@pytest.fixture(autouse=True)
def _clean(path: Path) -> Iterator[None]:
    yield
    path.unlink(missing_ok=True)


def test_four_processes_admit_exactly_the_limit(path: Path) -> None:
    """What came back since the beginning was admitted or is still there: nothing else.

    This holds however rarely the workers run. The bucket is so large that it is not full again
    before somebody hits it.
    """
    rate = 20_000 if _mode.COMPILED else 2_000
    text = f"{rate}/second burst {3600 * rate}"
    limiter = Limiter(text, SharedMemoryStore(path, max_keys=1_000))
    crew = Crew(path, text, 4)
    for _ in range(4):
        crew.start()
    before = time.monotonic_ns()
    assert limiter.hit("k", cost=3599 * rate)  # and the rest is what they compete for at first
    since = time.monotonic_ns()
    crew.begin()
    while crew.admitted < 3 * rate or min(crew.admitted_each) < rate // 20:
        crew.wait()
    crew.end()
    until = time.monotonic_ns()
    remaining = limiter.peek("k").remaining
    after = time.monotonic_ns()
    # We read the clock before and after the store does.
    assert crew.admitted + remaining <= rate + rate * (after - before) / SECOND
    assert crew.admitted + remaining + 1 > rate + rate * (until - since) / SECOND


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
    most_kills = 20 * kills
    crew = Crew(path, text, most_kills + 4)
    dice = random.Random(7)
    began = time.monotonic_ns()
    for _ in range(4):
        crew.start()
    crew.begin()
    killed = 0
    # The pure core spends its time elsewhere; here, a kill has to meet a decision.
    while killed < kills or (_mode.COMPILED and store.recoveries == 0 and killed < most_kills):
        time.sleep(dice.uniform(0.001, 0.03))  # for the workers, which run on the real clock
        while not crew.at_work():
            crew.wait()
        pid = dice.choice(crew.at_work())
        crew.kill(pid)
        killed += 1
        crew.start()
    crew.stop()
    passed = time.monotonic_ns() - began
    periods = passed / limit.period_ns
    # A window may have been open before, and another not have ended.
    most = limit.burst * (periods + (1 if limit.algorithm == "token_bucket" else 2))
    # Who is stuck behind a dead process raises after a second, which `kill` would have seen.
    print(
        f"{text}: {killed} killed, {store.recoveries} of them within a decision;"
        f" longest call {crew.longest_call * 1e3:.1f} ms"
    )
    if _mode.COMPILED:
        assert store.recoveries > 0, "no kill met a decision: this run has shown nothing"
    assert 0 < crew.admitted <= most
    limiter.reset("k")
    assert limiter.peek("k").remaining == limit.amount
