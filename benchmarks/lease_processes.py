"""Leases: four processes that share one limit, and are asked for twice as much."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.report import Table

RATE = 10_000  # and as much burst
LIMIT = f"{RATE}/second"
SHARES = (0.70, 0.20, 0.08, 0.02)
OVERLOAD = 2
SETTLE = 2_000  # milliseconds until the burst is spent
AHEAD = 3.0  # seconds for the processes to start
# A hit that takes longer cannot be assigned to a moment.
SLOW = 0.020


def run(quick: bool, url: str) -> list[Table]:
    milliseconds = SETTLE + (4_000 if quick else 20_000)
    base = time.monotonic() + AHEAD
    offers = [OVERLOAD * RATE * share for share in SHARES]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps([url, base, milliseconds, rate])],
            stdout=subprocess.PIPE,
        )
        for rate in offers
    ]
    try:
        results = [json.loads(worker.communicate(timeout=120)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return _tables(results, milliseconds)


def _tables(results: list[dict[str, Any]], milliseconds: int) -> list[Table]:
    by_process = Table(
        "Leases: four processes, twice the limit",
        {
            "of the offers": "", "offered/s": ",.0f", "admitted/s": ",.0f", "admitted": ".2%",
            "decided here": ".2%", "Redis calls/s": ",.1f",
        },
    )  # fmt: skip
    seconds = (milliseconds - SETTLE) / 1000
    ratios = []
    for share, each in zip(SHARES, results, strict=True):
        offered, admitted = sum(each["offered"][SETTLE:]), sum(each["admitted"][SETTLE:])
        ratios.append(admitted / max(1, offered))
        here, directly = each["here"], each["directly"]
        by_process.add(
            f"{share:.0%}", offered / seconds, admitted / seconds, ratios[-1],
            here / (here + directly), (each["calls"] + directly) / milliseconds * 1000,
        )  # fmt: skip
    by_process.notes.append(f"{LIMIT}; after the first {SETTLE // 1000} s, in which the burst goes")

    offered = [sum(counts) for counts in zip(*(each["offered"] for each in results), strict=True)]
    admitted = [sum(counts) for counts in zip(*(each["admitted"] for each in results), strict=True)]
    ideal = sum(admitted_by_one_bucket(offered)[SETTLE:])
    whole = Table(
        "Leases: the four processes together", {"": "", "measured": ".2%", "at most": ".0%"}
    )
    whole.add("fullest interval, less rate x time, of the burst", fullest(admitted), 1.0)
    whole.add("unused, of what one bucket admits", 1 - sum(admitted[SETTLE:]) / ideal, 0.01)
    whole.add("between the highest and the lowest ratio", max(ratios) - min(ratios), None)
    slow = sum(each["slow"] for each in results)
    whole.notes.append(
        f"by the millisecond, {seconds:.0f} s; the bucket gets the same offers; hits of more than"
        f" {SLOW * 1000:.0f} ms, which are counted when they began: {slow:,}"
    )
    return [by_process, whole]


def fullest(admitted: list[int]) -> float:
    """The most that any interval has admitted beyond rate x time, as a part of the burst."""
    level = worst = 0.0
    for count in admitted:
        level = max(0.0, level) + count - RATE / 1000
        worst = max(worst, level)
    return worst / RATE


def admitted_by_one_bucket(offered: list[int]) -> list[float]:
    """In each millisecond, of the same offers."""
    level, admitted = float(RATE), []
    for offers in offered:
        level = min(RATE, level + RATE / 1000)
        admitted.append(min(offers, level))
        level -= admitted[-1]
    return admitted


def work(url: str, base: float, milliseconds: int, rate: float) -> None:
    """One process: offers at a rate, and says what became of them in each millisecond."""
    from penstock import Limiter
    from penstock.stores.leased import LeasedStore
    from penstock.stores.redis import RedisStore

    offered, admitted = [0] * milliseconds, [0] * milliseconds
    made = slow = 0
    with LeasedStore(RedisStore(url, on_failure="closed", deadline="1s")) as store:
        limiter = Limiter(LIMIT, store=store)
        time.sleep(max(0.0, base - time.monotonic()))
        while (elapsed := time.monotonic() - base) * 1000 < milliseconds:
            due = int(elapsed * rate)
            # What a busy machine did not let it offer is not made up for.
            made = max(made, due - int(rate * 0.1))
            while made < due:
                made += 1
                before = time.monotonic()
                moment = int((before - base) * 1000)
                if moment >= milliseconds:
                    break
                offered[moment] += 1
                if limiter.hit("key"):
                    admitted[moment] += 1
                    slow += time.monotonic() - before > SLOW
            time.sleep(0.002)
        stats = store.stats()
    result = {
        "offered": offered, "admitted": admitted, "slow": slow, "calls": stats.calls,
        "here": stats.decided_here, "directly": stats.decided_directly,
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    work(*json.loads(sys.argv[1]))
