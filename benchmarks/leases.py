"""Leases: one process on one shared limit, against a limit of its own in memory.

Then many hot keys in one process, several processes on one key, and a simulated fleet.
"""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks import lease_keys, lease_processes, lease_scale, redis_server
from benchmarks.report import Table

LIMIT = "10000000/second"
OVERLOADED = "100000/second"
SLOW = "60000000/minute"
MANY = 10_000
# So many keys are asked for more seldom, a second's demand at a time.
FOR_MANY = {"horizon": "1s", "ttl": "10s"}


def run(quick: bool = False) -> list[Table]:
    table = Table(
        "Leases: a decision in one process, the limit in Redis",
        {
            "": "", "ns": ",.0f", "x MemoryStore": ".2f", "CPU ns": ",.0f", "decided here": ".2%",
            "calls per 1,000": ",.3f", "admitted": ".1%",
        },
    )  # fmt: skip
    ours, its = redis_server.cores()
    before = os.sched_getaffinity(0)
    seconds = 1.0 if quick else 4.0
    with redis_server.running(its) as server:
        os.sched_setaffinity(0, {ours})
        try:
            hot, many = ["key"], [f"user:{number}" for number in range(MANY)]
            url = f"redis://127.0.0.1:{server.port}/0"
            for name, keys, limit, options in (
                ("hot key", hot, LIMIT, {}),
                ("hot key, far above its limit", hot, OVERLOADED, {}),
                (f"{MANY:,} keys in turn", many, SLOW, FOR_MANY),
            ):
                _compare(table, url, name, keys, limit, options, seconds)
            table.notes = [
                f"{server.name()}; the loop around each call is included",
                "ns: the best of several rounds, in which the renewal may have been idle; CPU ns:"
                " of the process, its renewal included, over all rounds",
                f"{MANY:,} keys: all are leased, with a horizon of {FOR_MANY['horizon']}, at the"
                " pace of this loop",
            ]
            renewal = lease_keys.run(quick, server.database())
        finally:
            os.sched_setaffinity(0, before)
        together = lease_processes.run(quick, server.database())
        return [table, renewal, *together, *lease_scale.run(quick, server)]


def _compare(
    table: Table, url: str, name: str, keys: list[str], limit: str, options: dict[str, Any],
    seconds: float,
) -> None:  # fmt: skip
    from penstock import Limiter, MemoryStore
    from penstock.stores.leased import LeasedStore
    from penstock.stores.redis import RedisStore

    alone, cpu, admitted = _measure(Limiter(limit, store=MemoryStore()), keys, seconds)
    table.add(f"MemoryStore, {name}", alone, 1.0, cpu, None, None, admitted)
    with LeasedStore(RedisStore(url, deadline="5s"), **options) as store:
        limiter = Limiter(limit, store=store)
        lease_keys.heat(limiter, store, keys)
        first = store.stats()
        leased, cpu, admitted = _measure(limiter, keys, seconds)
        last = store.stats()
    here = last.decided_here - first.decided_here
    directly = last.decided_directly - first.decided_directly
    table.add(
        f"LeasedStore, {name}", leased, leased / alone, cpu, here / (here + directly),
        1000 * (last.calls - first.calls + directly) / (here + directly), admitted,
    )  # fmt: skip


def _measure(limiter: Any, keys: list[str], seconds: float) -> tuple[float, float, float]:
    """Nanoseconds a decision: in the best round, and of CPU time in all of them; and the part
    that was allowed."""
    round_keys = keys * max(1, 20_000 // len(keys))
    hit, best, admitted, decided, cpu = limiter.hit, float("inf"), 0, 0, 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start, cpu_start = time.perf_counter_ns(), time.process_time_ns()
        for key in round_keys:
            hit(key)
        cpu += time.process_time_ns() - cpu_start
        best = min(best, (time.perf_counter_ns() - start) / len(round_keys))
        # A whole round: single hits would meet the unit that came back between rounds.
        admitted += sum(map(bool, map(hit, round_keys)))
        decided += len(round_keys)
    return best, cpu / decided, admitted / decided
