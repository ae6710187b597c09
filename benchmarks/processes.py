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
ALL = 10**9  # a rate that nobody reaches: every decision takes something


@dataclass(frozen=True)
class Course:
    title: str
    processes: int
    rate: int
    spread: bool = False
    lasts: int = 1  # times as long as a round


COURSES = [
    Course("one key", 1, RATE),
    Course("one key", PROCESSES, RATE),
    Course("one key, for longer", PROCESSES, RATE, lasts=5),
    Course("one key, all allowed", PROCESSES, ALL),
    Course("spread keys, all allowed", 1, ALL, spread=True),
    Course("spread keys, all allowed", PROCESSES, ALL, spread=True),
]


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
        f"one key: {RATE:,} a second, burst as much, or all allowed; spread: {SPREAD:,} keys",
        f"rounds of {seconds:.0f} s; for longer: one of {5 * seconds:.0f} s",
        "may: burst + rate * t, t from the first call to the last on the monotonic clock",
        f"decisions/s: best of {rounds} interleaved rounds; the rest: the round that admitted most"
        " of what it may",
        "the machine's cores bound what processes can add up to",
    ]
    races: dict[Course, list[Race]] = {course: [] for course in COURSES}
    try:
        for number in range(rounds):
            for course in COURSES:
                if number == 0 or course.lasts == 1:
                    races[course].append(race(course, seconds))
    except Unavailable as reason:
        table.notes.append(f"left out: {reason}")
        return [table]
    for course, held in races.items():
        most = max(held, key=lambda one: one.admitted / one.may)
        table.add(
            course.title,
            course.processes,
            max(one.speed for one in held),
            most.admitted,
            most.may,
            most.admitted / most.may,
            most.evictions,
        )
    return [table]


def race(course: Course, seconds: float) -> Race:
    path = scratch_file()
    store = SHARED.make(setup(course, path))["limiter"].store  # made before they start
    start = time.monotonic_ns() + 1_000_000_000
    at = str(COURSES.index(course))
    command = [sys.executable, "-m", "benchmarks.processes", path, at, str(start)]
    running = [
        subprocess.Popen(
            [*command, str(seconds * course.lasts), str(number)],
            env=child.environment(),
            stdout=subprocess.PIPE,
        )
        for number in range(course.processes)
    ]
    answers = [json.loads(process.communicate()[0]) for process in running]
    offered = sum(answer["offered"] for answer in answers)
    first = min(answer["first"] for answer in answers)
    last = max(answer["last"] for answer in answers)
    lasted = (last - first) / 1e9
    found = Race(
        offered / lasted,
        sum(answer["admitted"] for answer in answers),
        offered if course.rate == ALL else course.rate * (1 + lasted),
        store.evictions,
    )
    store.close()
    Path(path).unlink()
    return found


def setup(course: Course, path: str) -> Setup:
    max_keys = SPREAD if course.spread else 1000
    return Setup(course.rate, "second", max_keys=max_keys, path=path)


def work(path: str, course: Course, start: int, seconds: float, number: int) -> dict[str, int]:
    """One of the processes: calls from ``start`` on, for so long."""
    names = SHARED.make(setup(course, path))
    loop = compiled(COUNT, SHARED, SHARED.decides(), names)
    keys = [f"user:{key}" for key in range(SPREAD)] if course.spread else ["user:42"] * BATCH
    at = number * len(keys) // PROCESSES
    offered = admitted = 0
    while time.monotonic_ns() < start:
        pass
    first = last = time.monotonic_ns()
    while last < start + seconds * 1e9:
        batch = keys[at : at + BATCH] if course.spread else keys
        admitted += loop(batch)
        offered += len(batch)
        at = (at + BATCH) % len(keys)
        last = time.monotonic_ns()
    return {"offered": offered, "admitted": admitted, "first": first, "last": last}


if __name__ == "__main__":
    where, which_course, begin, duration, which = sys.argv[1:]
    answer = work(where, COURSES[int(which_course)], int(begin), float(duration), int(which))
    print(json.dumps(answer), flush=True)
