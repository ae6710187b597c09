"""What a decision costs, beside the peers and beside a call that does nothing."""

from __future__ import annotations

from benchmarks import floors, plots
from benchmarks.contenders import (
    CLOCK,
    EMPTY,
    LOOP,
    PEERS,
    PENSTOCK,
    PURE,
    SHARED,
    SHARED_SMALL,
    TOKEN_BUCKET,
)
from benchmarks.report import OUT, Table
from benchmarks.settings import Unavailable
from benchmarks.worker import CALLS, Worker

TITLES = {
    "hot": "Speed: one hot key, all allowed (1 000 000 000 an hour; logs 1 000 000 an hour)",
    "refused": "Speed: one hot key, mostly refused (5 an hour)",
    "many": "Speed: a million keys in random order (100 a day)",
}
NOTES = {
    "hot": ["logs start empty in every batch and hold one entry a call"],
    "refused": ["aiolimiter cannot refuse, it waits: measured is has_capacity()"],
    "many": [
        "keys: how many the limiter was filled with before; fewer for the slow peers, which"
        " flatters them",
        "pyrate-limiter and aiolimiter know no keys: one bucket a key in a dict, as they advise",
    ],
}
METHOD = (
    "the call as a user types it, in one plain for loop over a list of {calls:,} keys, the loop"
    " itself included for all of them; garbage collector off; best of {rounds} interleaved rounds"
    " of several such batches"
)


def run(quick: bool = False) -> list[Table]:
    floors.build()
    rounds = 3 if quick else 15
    tables, found = [], {}
    for scenario, title in TITLES.items():
        best, missing = measure(scenario, rounds, quick)
        found[scenario] = {name: took for name, (took, _) in best.items()}
        table = tabulate(title, best)
        table.notes = [METHOD.format(rounds=rounds, calls=CALLS), *NOTES[scenario], *missing]
        tables.append(table)
    plots.speed(found, OUT / "speed.png")
    return tables


def measure(
    scenario: str, rounds: int, quick: bool
) -> tuple[dict[str, tuple[float, int]], list[str]]:
    """Best nanoseconds and number of keys by contender; and who is missing, and why."""
    missing: list[str] = []
    started = [
        Worker(contender, scenario, quick)
        for contender in [LOOP, EMPTY, CLOCK, *PENSTOCK, SHARED, SHARED_SMALL, PURE, *PEERS]
    ]
    workers: list[Worker] = []
    try:
        for worker in started:
            try:
                worker.wait()
                workers.append(worker)
            except Unavailable as reason:
                missing.append(f"{worker.contender.name} left out: {reason}")
        took = {worker.contender.name: worker.round() for worker in workers}
        for _ in range(rounds - 1):
            for worker in workers:
                name = worker.contender.name
                took[name] = min(took[name], worker.round())
    finally:
        for worker in started:
            worker.close()
    keys = {worker.contender.name: worker.keys for worker in workers}
    return {name: (took[name], keys[name]) for name in took}, missing


def tabulate(title: str, best: dict[str, tuple[float, int]]) -> Table:
    columns = {"": "", "ns a call": ",.0f", "x empty call": ",.1f", "x token_bucket": ",.1f"}
    table = Table(title, {**columns, "keys": ","})
    empty, ours = best[EMPTY.name][0], best[TOKEN_BUCKET.name][0]
    for name, (took, keys) in best.items():
        table.add(name, took, took / empty, took / ours, keys)
    return table
