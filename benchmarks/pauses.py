"""The longest call while a store grows, and what the machine itself explains of it."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Sequence

from benchmarks import child
from benchmarks.contenders import LIMITS, LOOP, PURE, THROTTLED, TOKEN_BUCKET, Contender, named
from benchmarks.loops import EACH, compiled
from benchmarks.report import Table
from benchmarks.settings import Setup, Unavailable

MANY, FEWER = 5_000_000, 500_000
BATCH = 50_000
LONG_NS = 2_000_000
SHARES = {"p50": 0.5, "p99": 0.99, "p99.99": 0.9999, "p99.999": 0.99999}

Summary = dict[str, float]


def run(quick: bool = False) -> list[Table]:
    many, fewer = (MANY // 10, FEWER // 10) if quick else (MANY, FEWER)
    columns = {"": "", "keys": ",", **dict.fromkeys(SHARES, ",.2f"), "max": ",.0f"}
    table = Table(
        "Pauses: one call while the store grows, microseconds", {**columns, "calls > 2 ms": ","}
    )
    table.notes = [
        "every call is a new key and is timed alone; garbage collector off",
        "nothing: the same loop without a call, in turns with it in the same process: what the"
        " clock and the scheduler take",
        "on the CPU: a second store, its calls timed by the thread's CPU clock, which stands still"
        " while the machine runs somebody else; reading it takes longer, so only its tail counts",
    ]
    for contender, keys in [
        (TOKEN_BUCKET, many),
        (TOKEN_BUCKET, fewer),
        (PURE, fewer),
        (LIMITS[0], fewer),
        (THROTTLED[0], fewer),
    ]:
        try:
            calls, idle, own = ask(contender, keys)
        except Unavailable as reason:
            table.notes.append(f"{contender.name} left out: {reason}")
            continue
        for name, summary in [
            (contender.name, calls),
            ("    on the CPU", own),
            ("    nothing, meanwhile", idle),
        ]:
            table.add(name, keys, *(value / 1000 for value in list(summary.values())[:-1]),
                      int(summary["long"]))  # fmt: skip
    return [table]


def ask(contender: Contender, keys: int) -> list[Summary]:
    answer: list[Summary] = child.ask(
        "benchmarks.pauses:measure", contender.name, keys, pure=contender.pure
    )
    return answer


def measure(name: str, keys: int) -> tuple[Summary, Summary, Summary]:
    """The calls, the loop that does nothing, and the calls on the CPU, in turns by batches."""
    contender = named(name)
    setup = Setup(100, "day", max_keys=2 * keys)
    typed = contender.typed("many")
    loops = [
        compiled(EACH, contender, typed, contender.make(setup)),
        compiled(EACH, LOOP, LOOP.call, {}),
        compiled(EACH, contender, typed, contender.make(setup), clock=time.thread_time_ns),
    ]
    all_took = [array("q") for _ in loops]
    gc.disable()
    for start in range(0, keys, BATCH):
        batch = [f"user:{number}" for number in range(start, start + BATCH)]
        for loop, so_far in zip(loops, all_took, strict=True):
            took = array("q", bytes(8 * BATCH))
            loop(batch, took)
            so_far.extend(took)
    calls, idle, own = map(summarize, all_took)
    return calls, idle, own


def summarize(took: Sequence[int]) -> Summary:
    """Nanoseconds at each share, the longest, and how many were long."""
    ordered = sorted(took)
    points = {name: float(ordered[int(share * len(ordered))]) for name, share in SHARES.items()}
    return {**points, "max": ordered[-1], "long": sum(1 for one in ordered if one > LONG_NS)}
