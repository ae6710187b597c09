"""A contender over Redis, in a process and on a core of its own, that runs rounds when asked to.

A round is many callers, tasks or threads, each of which asks again as soon as it is
answered. Every answer counts: a round whose answers cannot be right is no figure.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.child import environment
from benchmarks.contenders import Contender
from benchmarks.redis_contenders import EXTRA, named
from benchmarks.settings import Names, Setup, Unavailable

ALLOWED, REFUSED = 1_000_000, 1  # an hour: all of it, or after the first hit of a key nothing
LOGS_HOLD = 2_000  # the longest log that Penstock keeps in Redis
KEYS = 5_000
LIMIT, HITS = 10, 15  # of the check before
FILLERS = 64
TRIES = 20
PATIENCE = 10.0

ROUND = """
{define} loop(keys, took, end, {names}):
    admitted = 0
    for key in keys:
        start = clock()
        if start >= end:
            break
        if {decides}:
            admitted += 1
        took.append(clock() - start)
    return admitted
"""


@dataclass(frozen=True)
class Order:
    """What a worker is made for; ``loop`` is asyncio or uvloop."""

    name: str
    url: str
    core: int
    loop: str = "asyncio"
    refuses: bool = False


@dataclass(frozen=True)
class Round:
    decisions: int
    speed: float  # decisions a second
    p50: float  # microseconds
    p99: float


class Worker:
    """The parent's end."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.void: list[str] = []  # why rounds did not count
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.redis_worker", json.dumps(asdict(order))],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def round(self, callers: int, seconds: float) -> Round | None:
        """None if it does not count. It is not repeated: nobody gets more turns than others."""
        assert self._process.stdin is not None
        print(callers, seconds, file=self._process.stdin, flush=True)
        found = self._read()
        if "void" in found:
            self.void.append(found["void"])
            return None
        return Round(**found)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.order.name} died in its process; see above")
        answer: dict[str, Any] = json.loads(line)
        if "unavailable" in answer:
            raise Unavailable(answer["unavailable"])
        if "wrong" in answer:
            raise RuntimeError(f"{self.order.name} decides wrongly: {answer['wrong']}")
        return answer


# The child's end -----------------------------------------------------------------


class Course:
    """The contender, set up for one limit; its rounds are run by `run`."""

    def __init__(self, contender: Contender, names: Names) -> None:
        source = ROUND.format(
            define="async def" if contender.is_async else "def",
            names=", ".join(names),
            decides=contender.decides(),
        )
        found: dict[str, Any] = {"clock": time.perf_counter_ns}
        exec(source, found)
        self._loop: Callable[..., Any] = found["loop"]
        self._names = names
        self._is_async = contender.is_async
        self.degraded: list[Any] = names.get("degraded", [])
        self._store = names.get("store")

    async def run(self, keys: Any, callers: int, seconds: float) -> tuple[int, list[int], float]:
        """How many were admitted, what each took in nanoseconds, and all together in seconds."""
        took: list[int] = []
        self.degraded.clear()
        start = time.perf_counter_ns()
        args = keys, took, start + round(seconds * 1e9)
        if self._is_async:
            callings = [self._loop(*args, **self._names) for _ in range(callers)]
            admitted = sum(await asyncio.gather(*callings))
        else:
            admitted = self._in_threads(args, callers)
        return admitted, took, (time.perf_counter_ns() - start) / 1e9

    async def recover(self) -> None:
        """Let a store that lost its server find it again: between rounds the loop stands still."""
        end = time.monotonic() + PATIENCE
        while self._store is not None and self._store.state != "closed":
            if time.monotonic() > end:
                raise RuntimeError(f"{self._store!r} is still {self._store.state}")
            await asyncio.sleep(0.01)

    def _in_threads(self, args: tuple[Any, ...], callers: int) -> int:
        admitted: list[int] = []

        def work() -> None:
            admitted.append(self._loop(*args, **self._names))

        threads = [threading.Thread(target=work) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(admitted) != callers:
            raise RuntimeError("a thread died; see above")
        return sum(admitted)


async def set_up(contender: Contender, amount: int, order: Order) -> Course:
    names = contender.make(Setup(amount, "hour", max_keys=KEYS, url=order.url))
    if inspect.isawaitable(names):
        names = await names
    return Course(contender, names)


async def check(contender: Contender, order: Order) -> str | None:
    """What is wrong with its decisions, if something is."""
    course = await set_up(contender, LIMIT, order)
    for attempt in range(TRIES):
        await course.recover()
        admitted, took, _ = await course.run(iter([f"checked:{attempt}"] * HITS), 1, 60)
        if not course.degraded:
            break
    if course.degraded:
        raise Unavailable(f"could not be checked: {course.degraded[0]}")
    if (admitted, len(took)) != (LIMIT + EXTRA.get(contender.name, 0), HITS):
        return f"admitted {admitted} of {len(took)} at {LIMIT}/hour"
    return None


async def fill(course: Course, keys: list[str]) -> str | None:
    """All keys are known before anything is measured: what comes first is seldom typical."""
    for attempt in range(TRIES):
        await course.recover()
        admitted, took, _ = await course.run(iter(keys), FILLERS, 60)
        if attempt == 0 and admitted != len(keys):
            return f"admitted {admitted} of {len(took)} first hits"
        if not course.degraded:
            return None
    return None  # some are not known then: the rounds look at every answer anyway


async def measure(course: Course, keys: Any, order: Order, callers: int, seconds: float) -> Any:
    await course.recover()
    admitted, took, lasted = await course.run(keys, callers, seconds)
    if course.degraded:
        return {"void": f"{len(course.degraded)} not decided by the server: {course.degraded[0]}"}
    if order.refuses and admitted > len(took) / 100:
        return {"wrong": f"admitted {admitted} of {len(took)} when the limit was used up"}
    if not order.refuses and admitted != len(took):
        return {"wrong": f"admitted {admitted} of {len(took)} that fit"}
    ordered = sorted(took)
    p50, p99 = (ordered[int(share * len(ordered))] / 1000 for share in (0.5, 0.99))
    return asdict(Round(len(took), len(took) / lasted, p50, p99))


def serve(order: Order, run: Callable[[Any], Any]) -> None:
    """Answer each line of standard input with a round; ``run`` runs a coroutine."""
    contender = named(order.name)
    wrong = run(check(contender, order))
    amount = LOGS_HOLD if contender.is_log else ALLOWED
    course = run(set_up(contender, REFUSED if order.refuses else amount, order))
    keys = [f"user:{number}" for number in range(KEYS)]
    random.Random(1).shuffle(keys)
    wrong = wrong or run(fill(course, keys))
    if wrong:
        say({"wrong": wrong})
        return
    say({})
    forever = itertools.cycle(keys)
    for line in sys.stdin:
        callers, seconds = line.split()
        say(run(measure(course, forever, order, int(callers), float(seconds))))


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    os.sched_setaffinity(0, {order.core})
    try:
        factory = asyncio.new_event_loop
        if order.loop == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            serve(order, runner.run)
    except (Unavailable, ModuleNotFoundError) as reason:
        say({"unavailable": str(reason)})


if __name__ == "__main__":
    _main()
