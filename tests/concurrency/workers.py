"""What the processes of test_slot_processes.py do. Lines go to a file or to stdout."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import threading
import time
from typing import Any

from penstock.concurrency import AsyncConcurrencyLimiter, ConcurrencyLimiter
from penstock.errors import NoSlot
from penstock.stores.redis import RedisStore

# Nobody is let in without the server: what is counted here is its doing. Many processes
# share two cores, so it may not answer in time: then they come again.
OPTIONS = {"waiting": 100, "on_failure": "closed"}


class Log:
    """One line a write: what is in the file has happened, also when the writer is killed."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, *words: Any) -> None:
        line = " ".join(map(str, (time.monotonic_ns(), os.getpid(), *words)))
        os.write(self._file, f"{line}\n".encode())


def run(log: Log, name: str, hold: Any) -> None:
    """What is logged lies within what is held, and ends when it is known to be lost."""
    if hold.lost:
        log("lost", name)
    else:
        log("out", name)


def by_threads(url: str, prefix: str, limit: int, lease: float, path: str, most: float) -> None:
    log = Log(path)
    store = RedisStore(url, prefix=prefix, connect_timeout="60s")
    limiter = ConcurrencyLimiter(limit, store=store, lease=lease, **OPTIONS)

    def work(number: int) -> None:
        for turn in range(1_000_000):
            name = f"{number}.{turn}"
            with contextlib.suppress(NoSlot), limiter.slot("k") as hold:
                log("in", name)
                time.sleep(random.random() * most)
                run(log, name, hold)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def by_tasks(url: str, prefix: str, limit: int, lease: float, path: str, most: float) -> None:
    log = Log(path)

    async def main() -> None:
        store = RedisStore(url, prefix=prefix, connect_timeout="60s")
        limiter = AsyncConcurrencyLimiter(limit, store=store, lease=lease, **OPTIONS)

        async def work(number: int) -> None:
            for turn in range(1_000_000):
                name = f"{number}.{turn}"
                with contextlib.suppress(NoSlot):
                    async with limiter.slot("k") as hold:
                        log("in", name)
                        await asyncio.sleep(random.random() * most)
                        run(log, name, hold)

        await asyncio.gather(*(work(number) for number in range(3)))

    asyncio.run(main())


def holder(url: str, prefix: str, limit: int, lease: float) -> None:
    """Hold one slot, and say when it is lost."""
    store = RedisStore(url, prefix=prefix, connect_timeout="60s")
    limiter = ConcurrencyLimiter(limit, store=store, lease=lease, **OPTIONS)
    events: list[Any] = []
    limiter.subscribe(events.append)
    while True:
        with contextlib.suppress(NoSlot), limiter.slot("k", timeout=30) as hold:
            print("in", flush=True)
            while not hold.lost:
                time.sleep(0.001)
            print("lost", flush=True)
            time.sleep(2 * lease / 3)
            print([type(event).__name__ for event in events].count("SlotLost"), flush=True)
            return


if __name__ == "__main__":
    globals()[sys.argv[1]](*json.loads(sys.argv[2]))
