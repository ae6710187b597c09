"""A contender in a process of its own, which runs a round whenever it is asked to.

Rounds of all contenders are interleaved, so that a busy second of the machine
hits all of them alike; processes of their own keep one's threads, garbage and
memory out of another's figures.
"""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.child import environment
from benchmarks.contenders import LOGS_HOLD, Contender, named
from benchmarks.loops import TOTAL, compiled
from benchmarks.settings import Setup, Unavailable

HOT_KEY = "user:42"
WARM_UP = 1_000
# A batch is timed as a whole. A round is several, of which the best counts: short
# ones, since on a busy machine a long one is always disturbed.
CALLS = 4_000
LEAST_BATCHES, ROUND_SECONDS = 3, 0.05
# A slow peer is filled with fewer keys, so that filling it takes seconds, not minutes.
KEYS_FAST, KEYS_SLOW = 1_000_000, 100_000


class Worker:
    """The parent's end."""

    def __init__(self, contender: Contender, scenario: str, quick: bool) -> None:
        self.contender = contender
        self.keys = 0
        command = [sys.executable, "-m", "benchmarks.worker", contender.name, scenario]
        self.process = subprocess.Popen(
            [*command, "quick"] if quick else command,
            env=environment(contender.pure),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Until it is set up and filled."""
        word, _, rest = self._read().partition(" ")
        if word == "unavailable":
            raise Unavailable(rest)
        self.keys = int(rest)

    def round(self) -> float:
        """Nanoseconds a call."""
        assert self.process.stdin is not None
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.contender.name} died in its process; see above")
        return line.strip()


def one_key(contender: Contender, scenario: str) -> tuple[Callable[[], float], int]:
    """A limiter that is fresh in every batch, and one key."""
    if scenario == "refused":
        setup = Setup(5, "hour")
    else:
        setup = Setup(LOGS_HOLD if contender.is_log else 10**9, "hour")
    keys = [HOT_KEY] * CALLS

    def batch() -> float:
        names = contender.make(setup)
        loop = compiled(TOTAL, contender, contender.typed(scenario), names)
        loop(keys[:WARM_UP])
        return float(loop(keys)) / CALLS

    return batch, 1


def many_keys(contender: Contender, quick: bool) -> tuple[Callable[[], float], int]:
    """All keys are known already; batches ask for them in random order.

    The keys of a batch are new strings: a caller has just made its key, so it does
    not wait for memory to deliver it. Their hashes are known, as those of the hot
    key's are.
    """
    count = (KEYS_FAST if contender.fast else KEYS_SLOW) // (10 if quick else 1)
    names = contender.make(Setup(100, "day", max_keys=count))
    loop = compiled(TOTAL, contender, contender.typed("many"), names)
    loop(f"user:{number}" for number in range(count))
    chance = random.Random(1)

    def batch() -> float:
        keys = [f"user:{number}" for number in chance.choices(range(count), k=CALLS)]
        for key in keys:
            hash(key)
        return float(loop(keys)) / CALLS

    return batch, count


def _main() -> None:
    name, scenario, *quick = sys.argv[1:]
    contender = named(name)
    gc.disable()
    try:
        if scenario == "many":
            batch, keys = many_keys(contender, bool(quick))
        else:
            batch, keys = one_key(contender, scenario)
            batch()
    except (Unavailable, ModuleNotFoundError) as reason:
        print("unavailable", reason, flush=True)
        return
    print("ready", keys, flush=True)
    for _ in sys.stdin:
        took: list[float] = []
        end = time.monotonic() + ROUND_SECONDS
        while len(took) < LEAST_BATCHES or time.monotonic() < end:
            took.append(batch())
        print(min(took), flush=True)
        gc.collect()


if __name__ == "__main__":
    _main()
