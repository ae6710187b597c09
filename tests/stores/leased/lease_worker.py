"""The processes of test_lease_faults.py: each offers hits at a rate, and notes each admission.

The notes are in a file, which outlives a kill: for every millisecond of each process the hits
that were admitted, and then as many numbers for those that were offered.
Processes are forked by one that has imported everything, so that a new one is there at once.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path

from penstock import Limiter
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore

MILLISECONDS = 1_000_000  # per process: a run of up to 16 minutes
ROW = 2 * (MILLISECONDS + 1)
# A hit that takes longer cannot be assigned to a moment. It is counted at the end of the row.
SLOW = 0.020
stopped: list[bool] = []


def row_bytes() -> int:
    return 8 * ROW


def main(url: str, prefix: str, limit: str, path: str, row: int, rate: float, base: float) -> None:
    store = LeasedStore(RedisStore(url, prefix=prefix, on_failure="closed", deadline="100ms"))
    limiter = Limiter(limit, store=store)
    with open(path, "r+b") as file:
        counts = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    first = row * ROW
    offers = first + MILLISECONDS + 1
    offered, start = 0, time.monotonic()
    while not stopped:
        due = int((time.monotonic() - start) * rate)
        # After a stop of the process, do not catch up.
        offered = max(offered, due - int(rate * 0.1))
        while offered < due:
            offered += 1
            before = time.monotonic()
            counts[offers + int((before - base) * 1000)] += 1
            if limiter.hit("key"):
                slow = time.monotonic() - before > SLOW
                at = MILLISECONDS if slow else int((before - base) * 1000)
                counts[first + at] += 1
        time.sleep(0.004)
    stats = store.stats()
    store.close()
    shown = {"local": stats.decided_here, "direct": stats.decided_directly, "held": stats.held}
    Path(f"{path}.{row}").write_text(json.dumps(shown))


def nursery() -> None:
    """Fork a process for each line, which has its arguments, and tell its number."""
    # Before they are forked: one may be told to stop before it has begun.
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                main(*json.loads(line))
            finally:
                os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    nursery()
