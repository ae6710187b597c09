"""Four processes on one SharedMemoryStore: decisions a second, and nothing too much."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import child
from benchmarks.contenders import SHARED
from benchmarks.loops import COUNT, compiled
from benchmarks.report import Table
from benchmarks.settings import Setup, Unavailable, scratch_file

PROCESSES = 4
SPREAD = 100_000  # keys
BATCH = 500  # calls between two looks at the time
# For one key: far below what is offered, so that every unit is asked for.
RATE = 20_000


@dataclass(frozen=True)
class Race:
    speed: float  # decisions a second
    admitted: int
    may: float  # admitted at most
    evictions: int


def run(quick: bool = False) -> list[Table]:
    rounds, seconds = (1, 1.0) if quick else (3, 2.0)
    columns = {"": "", "processes": ",", "decisions/s": ",.0f", "admitted": ",", "may": ",.0f"}
    table = Table(
        "Processes: one SharedMemoryStore", {**columns, "admitted / may": ".5f", "evictions": ","}
    )
    table.notes = [
        f"one key: {RATE:,} a second, burst as much; spread: {SPREAD:,} keys, all allowed",
        "may: burst + rate * t, t from the first call to the last on the monotonic clock",
        f"decisions/s: best of {rounds} interleaved rounds; the rest: the round that admitted most"
        " of what it may",
        "the machine's cores bound what processes can add up to",
    ]
    ways = [("one key", 1), ("one key", PROCESSES), ("spread keys", 1), ("spread keys", PROCESSES)]
    races: dict[tuple[str, int], list[Race]] = {way: [] for way in ways}
    try:
        for _ in range(rounds):
            for title, processes in ways:
                races[title, processes].append(race(processes, title != "one key", seconds))
    except Unavailable as reason:
        table.notes.append(f"left out: {reason}")
        return [table]
    for (title, processes), held in races.items():
        most = max(held, key=lambda one: one.admitted / one.may)
        table.add(title, processes, max(one.speed for one in held), most.admitted, most.may,
                  most.admitted / most.may, most.evictions)  # fmt: skip
    return [table]


def race(processes: int, spread: bool, seconds: float) -> Race:
    path = scratch_file()
    store = SHARED.make(setup(spread, path))["limiter"].store  # made before they start
    start = time.monotonic_ns() + 1_000_000_000
    command = [sys.executable, "-m", "benchmarks.processes", path, str(int(spread)), str(start)]
    running = [
        subprocess.Popen(
            [*command, str(seconds), str(number)], env=child.environment(), stdout=subprocess.PIPE
        )
        for number in range(processes)
    ]
    answers = [json.loads(process.communicate()[0]) for process in running]
    offered = sum(answer["offered"] for answer in answers)
    first = min(answer["first"] for answer in answers)
    last = max(answer["last"] for answer in answers)
    lasted = (last - first) / 1e9
    found = Race(
        offered / lasted,
        sum(answer["admitted"] for answer in answers),
        offered if spread else RATE + RATE * lasted,
        store.evictions,
    )
    store.close()
    Path(path).unlink()
    return found


def setup(spread: bool, path: str) -> Setup:
    if spread:
        return Setup(10**9, "day", max_keys=SPREAD, path=path)
    return Setup(RATE, "second", max_keys=1000, path=path)


def work(path: str, spread: bool, start: int, seconds: float, number: int) -> dict[str, int]:
    """One of the processes: calls from ``start`` on, for so long."""
    names = SHARED.make(setup(spread, path))
    loop = compiled(COUNT, SHARED, SHARED.decides(), names)
    keys = [f"user:{key}" for key in range(SPREAD)] if spread else ["user:42"] * BATCH
    at = number * len(keys) // PROCESSES
    offered = admitted = 0
    while time.monotonic_ns() < start:
        pass
    first = last = time.monotonic_ns()
    while last < start + seconds * 1e9:
        batch = keys[at : at + BATCH] if spread else keys
        admitted += loop(batch)
        offered += len(batch)
        at = (at + BATCH) % len(keys)
        last = time.monotonic_ns()
    return {"offered": offered, "admitted": admitted, "first": first, "last": last}


if __name__ == "__main__":
    where, wide, begin, duration, which = sys.argv[1:]
    answer = work(where, bool(int(wide)), int(begin), float(duration), int(which))
    print(json.dumps(answer), flush=True)
