"""Leases: what their renewal takes from a process with many hot keys."""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks.report import Table

LIMIT = "60000000/minute"  # a long burst: leases may become as long as the process needs
# Keys, and the horizon of their leases. To become leased, a key needs 10 direct hits within its
# horizon: one process cannot do that for 10,000 keys in 100 ms each, nor keep them all.
KEYS = ((1, "100ms"), (100, "100ms"), (1_000, "100ms"), (10_000, "1s"))
ATTEMPTS = 8


def run(quick: bool, url: str) -> Table:
    table = Table(
        "Leases: the renewal of many hot keys in one process",
        {
            "keys": ",", "leased": ",", "horizon": "", "leases x as long": ",",
            "messages/s": ",.0f", "CPU µs a message": ",.1f", "of a core": ".1%",
            "decided here": ".3%", "longest here, ms": ",.2f", "directly, ms": ",.2f",
        },
    )  # fmt: skip
    for count, horizon in KEYS:
        keys = [f"key:{count}:{number}" for number in range(count)]
        _measure(table, url, keys, horizon, quick)
    table.notes = [
        "one thread hits all keys in turn, as fast as it can",
        "CPU µs a message, of a core: of the renewal's thread",
        "longest: CPU time of the whole process while a hit lasts, so with what the renewal does"
        f" meanwhile; Python changes threads every {sys.getswitchinterval() * 1000:g} ms",
    ]
    return table


def _measure(table: Table, url: str, keys: list[str], horizon: str, quick: bool) -> None:
    from penstock import Limiter
    from penstock.stores.leased import LeasedStore
    from penstock.stores.redis import RedisStore

    with LeasedStore(RedisStore(url, deadline="5s"), horizon=horizon) as store:
        limiter = Limiter(LIMIT, store=store)
        heat(limiter, store, keys)
        turn(limiter, store, keys, 3.0)  # until leases are as long as they become
        clock = time.pthread_getcpuclockid(_thread(store))
        first, cpu, start = store.stats(), time.clock_gettime_ns(clock), time.perf_counter_ns()
        longest = turn(limiter, store, keys, 2.0 if quick else 5.0)
        took = time.perf_counter_ns() - start
        last, cpu = store.stats(), time.clock_gettime_ns(clock) - cpu
    messages = last.messages - first.messages
    here = last.decided_here - first.decided_here
    directly = last.decided_directly - first.decided_directly
    table.add(
        len(keys), last.leases, horizon, last.stretched, messages * 1e9 / took,
        cpu / 1000 / max(1, messages), cpu / took, here / (here + directly),
        longest[0] / 1e6, longest[1] / 1e6 if directly else None,
    )  # fmt: skip


def heat(limiter: Any, store: Any, keys: list[str]) -> None:
    """Hit until all keys are leased; those that are already, often enough to stay so."""
    for _ in range(ATTEMPTS):
        for start in range(0, len(keys), 100):
            limiter.hit_many(keys[start : start + 100] * 12)
            if store.stats().leases < start // 2:
                break  # a busy machine: they are lost faster than they are won
            for key in keys[:start] * 3:
                limiter.hit(key)
        else:
            turn(limiter, store, keys, 1.0)
            if store.stats().leases >= 0.99 * len(keys):
                return


def turn(limiter: Any, store: Any, keys: list[str], seconds: float) -> tuple[int, int]:
    """Hit all keys in turn for so long; nanoseconds of CPU time that the longest hit took, of
    those that were decided here and of those that were decided directly."""
    hit, cpu, (counters,), here, directly = limiter.hit, time.process_time_ns, store._leased, 0, 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        calls, before = counters.decided_directly, cpu()
        for key in keys:
            hit(key)
            took, now = cpu() - before, counters.decided_directly
            if now != calls:
                calls, directly = now, max(directly, took)
            elif took > here:
                here = took
            before = cpu()
    return here, directly


def _thread(store: Any) -> int:
    thread = store._renewal._thread
    assert thread is not None
    identity: int = thread.ident
    return identity
