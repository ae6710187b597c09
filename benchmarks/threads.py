"""Eight threads on one key: how many decisions a second, and whether they stay exact."""

from __future__ import annotations

import sys
import threading
import time

from benchmarks import child
from benchmarks.contenders import (
    LIMITS,
    PENSTOCK,
    PURE,
    PYRATE,
    SHARED,
    THROTTLED,
    Contender,
    named,
)
from benchmarks.loops import COUNT, compiled
from benchmarks.report import Table
from benchmarks.settings import Setup, Unavailable

THREADS = 8
CALLS_FAST, CALLS_SLOW = 200_000, 5_000
LIMIT = 20_000
HURRY = 1e-5

Answer = tuple[float, int, list[str]]


def run(quick: bool = False) -> list[Table]:
    columns = {"": "", "decisions/s": ",.0f", "offered": ",", "limit": ",", "admitted": ","}
    table = Table(
        f"Threads: {THREADS} on one key",
        {**columns, "off by": "+,", "all fit: offered": ",", "all fit: admitted": ","},
    )
    table.notes = [
        "a day's limit, so that next to nothing comes back meanwhile; admitted should be the limit,"
        " and all where all fit",
        "decisions/s with Python's own switch interval of 5 ms, best of three; the counts with"
        f" one of {HURRY * 1e6:.0f} us, which makes races likely",
        "pyrate-limiter, asked not to block, takes a lock that is busy for a refusal",
    ]
    for contender in [*PENSTOCK, SHARED, PURE, *LIMITS, *THROTTLED, *PYRATE]:
        calls = (CALLS_FAST if contender.fast else CALLS_SLOW) // (4 if quick else 1)
        few = calls if not contender.fast else calls // 4
        limit = LIMIT // (4 if quick else 1)
        try:
            speed = max(ask(contender, calls, limit, False)[0] for _ in range(3))
            _, admitted, errors = ask(contender, few, limit, True)
            _, fitting, more = ask(contender, few, 2 * THREADS * few, True)
        except Unavailable as reason:
            table.notes.append(f"{contender.name} left out: {reason}")
            continue
        offered = THREADS * few
        table.add(contender.name, speed, offered, limit, admitted, admitted - limit, offered,
                  fitting)  # fmt: skip
        table.notes += [f"{contender.name} raised in a thread: {e}" for e in {*errors, *more}]
    return [table]


def ask(contender: Contender, calls: int, limit: int, hurry: bool) -> Answer:
    answer: Answer = child.ask(
        "benchmarks.threads:measure", contender.name, calls, limit, hurry, pure=contender.pure
    )
    return answer


def measure(name: str, calls: int, limit: int, hurry: bool) -> Answer:
    """Decisions a second of all threads together, how many were admitted, and what broke."""
    contender = named(name)
    names = contender.make(Setup(limit, "day"))
    loop = compiled(COUNT, contender, contender.decides(), names)
    keys = ["user:42"] * calls
    gate = threading.Barrier(THREADS + 1)
    admitted: list[int] = []

    errors: list[str] = []

    def work() -> None:
        gate.wait()
        try:
            admitted.append(loop(keys))
        except Exception as error:  # a peer may break: that is a result, too
            errors.append(repr(error))

    if hurry:
        sys.setswitchinterval(HURRY)
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return THREADS * calls / (time.perf_counter() - start), sum(admitted), errors
