"""What a key costs in memory: how much the process grew, divided by the keys."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from benchmarks import child
from benchmarks.contenders import PEERS, PENSTOCK, PURE, SHARED, SHARED_SMALL, Contender, named
from benchmarks.loops import TOTAL, compiled
from benchmarks.report import Table
from benchmarks.settings import Setup, Unavailable

PAGE = os.sysconf("SC_PAGESIZE")
KEYS_FAST, KEYS_SLOW = 1_000_000, 100_000


def run(quick: bool = False) -> list[Table]:
    columns = {"": "", "keys": ",", "bytes a key, 1 hit": ",.0f", "bytes a key, 10 hits": ",.0f"}
    table = Table("Memory: growth of the process (100 a day)", columns)
    table.notes = [
        "each in a fresh process; keys such as 'user:000000000042', which the process does not"
        " keep itself",
        "10 hits: with a fifth of the keys",
        "shared memory: the pages of the file, which are there whatever the number of keys;"
        " bytes_per_key is 256 by default, and a set of 32 is full at 20",
    ]
    for contender in [*PENSTOCK, SHARED, SHARED_SMALL, PURE, *PEERS]:
        keys = (KEYS_FAST if contender.fast else KEYS_SLOW) // (10 if quick else 1)
        few = keys // 5
        try:
            table.add(contender.name, keys, ask(contender, keys, 1), ask(contender, few, 10))
        except Unavailable as reason:
            table.notes.append(f"{contender.name} left out: {reason}")
    return [table]


def ask(contender: Contender, keys: int, hits: int) -> float:
    target = "benchmarks.memory:measure"
    return float(child.ask(target, contender.name, keys, hits, pure=contender.pure))


def measure(name: str, keys: int, hits: int) -> float:
    """Bytes a key, in this process."""
    contender = named(name)
    names = contender.make(Setup(100, "day", max_keys=keys + 1))
    loop = compiled(TOTAL, contender, contender.typed("many"), names)
    loop(["the first call may load something"])
    gc.collect()
    before = resident()
    for _ in range(hits):
        loop(f"user:{number:012}" for number in range(keys))
    gc.collect()
    return (resident() - before) / keys


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
