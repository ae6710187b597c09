"""Four worker processes that share one limit through a memory-mapped file, without a server.

With a `MemoryStore`, each worker counts on its own, and together they can allow four
times the limit. With a `SharedMemoryStore`, they count together.

Run it: python examples/shared_workers.py
"""

import multiprocessing
import tempfile
import time
from pathlib import Path

from penstock import Limiter, MemoryStore, SharedMemoryStore

WORKERS = 4
REQUESTS = 150
LIMIT = "100/hour"


def serve(limiter: Limiter) -> int:
    """Returns how many requests of this worker were allowed."""
    admitted = 0
    for _ in range(REQUESTS):
        admitted += limiter.hit("customer:7").allowed
        time.sleep(0.0005)  # the work of a real worker
    return admitted


def count_alone(_: Path) -> int:
    return serve(Limiter(LIMIT, store=MemoryStore()))


def count_together(path: Path) -> int:
    with SharedMemoryStore(path, max_keys=1_000) as store:
        return serve(Limiter(LIMIT, store=store))


def main() -> None:
    # Spawned, so that the workers share nothing but the path.
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, processes.Pool(WORKERS) as pool:
        path = Path(folder) / "limits"
        print(f"The limit is {LIMIT}; {WORKERS} workers get {REQUESTS} requests each.")
        for work, name in ((count_alone, "MemoryStore"), (count_together, "SharedMemoryStore")):
            admitted = pool.map(work, [path] * WORKERS, chunksize=1)
            shares = " + ".join(map(str, admitted))
            print(f"  {name:<18} {shares} = {sum(admitted)} admitted")


if __name__ == "__main__":
    main()
