"""What the processes of test_redis_processes.py do. Each prints what it found, as JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from typing import Any

from penstock import AsyncLimiter, Limiter
from penstock.stores.redis import RedisStore

# For what is not about time: many processes share two cores.
WITHOUT_HURRY = {"deadline": "60s", "connect_timeout": "60s"}


def hammer(url: str, prefix: str, limits: dict[str, str]) -> None:
    """Say "ready", read a start and an end (monotonic), hit all keys as fast as one can."""
    admitted: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    first: dict[str, float] = {}  # when a key was asked for
    refused: dict[str, float] = {}  # when it was refused last
    degraded = 0

    async def work(store: RedisStore, end: float) -> None:
        nonlocal degraded
        limiter, names = AsyncLimiter(store=store), list(limits)
        while time.monotonic() < end:
            name = random.choice(names)  # one after another, each would be idle for a round
            begun = time.monotonic()
            first.setdefault(name, begun)
            decision = await limiter.hit(name, limits[name])
            if not decision:
                refused[name] = begun
            asked[name] += 1
            admitted[name] += decision.allowed
            degraded += decision.degraded

    async def main() -> None:
        async with RedisStore(url, prefix=prefix, on_failure="closed", **WITHOUT_HURRY) as store:
            print("ready", flush=True)
            start, end = json.loads(sys.stdin.readline())
            await asyncio.sleep(start - time.monotonic())
            await asyncio.gather(*(work(store, end) for _ in range(12)))

    asyncio.run(main())
    found = {"admitted": admitted, "asked": asked, "first": first, "refused": refused}
    print(json.dumps(found | {"degraded": degraded, "end": time.monotonic()}))


def alone(url: str, limit: str, share: float, keys: int) -> None:
    """What one process admits that never reaches its server."""
    with RedisStore(url, on_failure="local", share=share) as store:
        limiter = Limiter(limit, store=store)
        seen = [limiter.hit(f"k{n}") for n in range(keys) for _ in range(200)]
    assert all(decision.degraded for decision in seen)
    print(json.dumps(sum(map(bool, seen))))


# Forks -----------------------------------------------------------------------------


def use(store: RedisStore, who: str, first: int) -> None:
    """Forty keys, each with a limit of its own size: an answer to somebody else would show."""
    limiter, tasks = Limiter(store=store), AsyncLimiter(store=store)
    numbers = range(first, first + 20)

    async def main() -> None:
        seen = await asyncio.gather(*(tasks.hit(f"{who}-t{n}", f"{n}/year") for n in numbers))
        assert [decision.remaining for decision in seen] == [n - 1 for n in numbers], who
        assert not any(decision.degraded for decision in seen)
        await store.close_async()

    for number in numbers:
        decision = limiter.hit(f"{who}-{number}", f"{number}/year")
        assert (decision.remaining, decision.degraded) == (number - 1, False), (who, decision)
    asyncio.run(main())


def child(store: RedisStore, who: str, first: int) -> None:
    signal.alarm(20)  # a child that hangs is a failure, not a test run without end
    use(store, who, first)


def forks(url: str, prefix: str) -> None:
    """Fork while threads of the parent are in the middle of their decisions."""
    store, stop, wrong = RedisStore(url, prefix=prefix, **WITHOUT_HURRY), threading.Event(), []

    def go_on(name: str) -> None:
        limiter, left = Limiter("100000/year", store=store), 100_000
        while not stop.is_set():
            left -= 1
            decision = limiter.hit(name)
            if decision.degraded or decision.remaining != left:
                wrong.append(f"{decision}, not {left}")

    threads = [threading.Thread(target=go_on, args=(f"thread-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    codes = []
    for number in range(6):
        pid = os.fork()
        if not pid:
            try:
                child(store, f"fork-{number}", 100 + 30 * number)
            except BaseException as error:
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
            os._exit(0)
        use(store, f"parent-{number}", 500 + 30 * number)
        codes.append(os.waitpid(pid, 0)[1])
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=child, args=(store, f"mp-{n}", 900 + 30 * n)) for n in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        codes.append(worker.exitcode)
    stop.set()
    for thread in threads:
        thread.join(60)
    store.close()
    print(json.dumps({"codes": codes, "wrong": wrong[:3]}))


async def in_a_loop(url: str, prefix: str) -> dict[str, Any]:
    """Fork while an event loop runs, which the child must not touch."""
    async with RedisStore(url, prefix=prefix, **WITHOUT_HURRY) as store:
        limiter = AsyncLimiter("1000/year", store=store)
        before = await asyncio.gather(*(limiter.hit("k") for _ in range(50)))
        under_way = [asyncio.ensure_future(limiter.hit("k")) for _ in range(50)]
        await asyncio.sleep(0)
        process = multiprocessing.get_context("fork").Process(target=child, args=(store, "c", 100))
        process.start()
        after = await asyncio.gather(*under_way, *(limiter.hit("k") for _ in range(50)))
        await asyncio.to_thread(process.join, 20)
        left = [decision.remaining for decision in (*before, *after)]
        return {"codes": [process.exitcode], "right": left == [*range(999, 849, -1)]}


def fork_in_a_loop(url: str, prefix: str) -> None:
    print(json.dumps(asyncio.run(in_a_loop(url, prefix))))


def fork_and_drop(url: str, prefix: str) -> None:
    """The child lets go of the parent's store, which it shares sockets with."""
    held = [RedisStore(url, prefix=prefix, **WITHOUT_HURRY)]
    held[0].connect()
    assert not Limiter("1000/year", store=held[0]).hit("k").degraded
    pid = os.fork()
    if not pid:
        held.clear()
        gc.collect()
        time.sleep(0.2)  # what it starts may be a thread
        os._exit(0)
    code = os.waitpid(pid, 0)[1]
    limiter = Limiter("1000/year", store=held[0])
    left = [limiter.hit("k").remaining for _ in range(20)]
    right = left == [*range(998, 978, -1)]
    held[0].close()
    print(json.dumps({"codes": [code], "right": right, "wrong": "" if right else left}))


# Loops and collected stores -----------------------------------------------------------


def loops(url: str, prefix: str, tidy: bool) -> None:
    """One store in three event loops one after another, and in two threads' at once."""
    store = RedisStore(url, prefix=prefix, **WITHOUT_HURRY)
    limiter, left = AsyncLimiter("1000/year", store=store), []

    async def main(key: str) -> None:
        seen = await asyncio.gather(*(limiter.hit(key) for _ in range(50)))
        left.append([decision.remaining for decision in seen])
        if tidy:
            await store.close_async()

    for _ in range(3):
        asyncio.run(main("k"))
    threads = [threading.Thread(target=asyncio.run, args=(main(f"k{n}"),)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    before = connections(url)
    store.close()
    right = [[*range(999 - 50 * n, 949 - 50 * n, -1)] for n in (0, 1, 2, 0, 0)]
    print(json.dumps({"right": left == right, "before": before, "after": connections(url)}))


def collected(url: str, prefix: str, close: bool) -> None:
    """A store that nobody closed: its thread and its connection end with it."""
    store = RedisStore(url, prefix=prefix, **WITHOUT_HURRY)
    store.connect()
    assert Limiter("1/second", store=store).hit("k")
    before = names(), connections(url)
    if close:
        store.close()
    del store
    gc.collect()
    end = time.monotonic() + 60
    while (names() or connections(url)) and time.monotonic() < end:
        time.sleep(0.01)
    print(json.dumps({"before": before, "after": (names(), connections(url))}))


def names() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("penstock")]


def connections(url: str) -> int:
    """At the server, but for the one that asks."""
    import redis

    with redis.Redis.from_url(url) as client:
        return len(client.client_list()) - 1


if __name__ == "__main__":
    globals()[sys.argv[1]](*json.loads(sys.argv[2]))
