"""How many cells a sliding window needs, and which way it should round.

What it admits against an exact log, for each rounding: on Poisson and bursty traffic, for a
client that comes back exactly when it is told to, and for an adversary who knows where the
cells lie.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import plots, traffic
from benchmarks.contenders import Contender, penstock_memory
from benchmarks.replay import replay
from benchmarks.report import OUT, Table
from benchmarks.traffic import SECOND, START, exact_log, worst_window
from penstock import Limit, Limiter, MemoryStore
from penstock.limit_options import ROUNDINGS
from penstock.testing import FakeClock

CELLS = (1, 2, 5, 10, 20, 60)
AMOUNTS = (1, 2, 5, 10, 100, 1000)
DRAWN = (10, 100, 1000)  # in the picture
PERIOD = 60 * SECOND
KEYS = 100_000
WAITED = 100  # periods for which a client does as it is told


def run(quick: bool = False) -> list[Table]:
    hits, seeds = (3_000, range(1)) if quick else (20_000, range(1, 5))
    worst_of: dict[str, dict[int, list[float]]] = {}
    tables = [sizes()]
    for title, make in [("Poisson", traffic.poisson), ("bursty", traffic.bursty)]:
        table, worst_of[title] = against_the_log(title, make, hits, seeds)
        tables.append(table)
    tables[-1].notes = [
        f"{len(seeds)} x {hits:,} + 30 x limit hits; error: admitted against the exact log",
        "worst: the most in any minute, 1 is the limit",
    ]
    tables += [obedient(), adversary()]
    plots.cells(worst_of, CELLS, OUT / "cells.png")
    return tables


def sizes() -> Table:
    table = Table("Cells of a sliding window: size", {"cells": ",", "bytes a key": ",.0f"})
    for cells in CELLS:
        table.add(cells, bytes_a_key(cells))
    table.notes = [f"as the table of MemoryStore counts them at {KEYS:,} keys"]
    return table


def against_the_log(
    title: str, make: Callable[[int, int, int, int], list[int]], hits: int, seeds: range
) -> tuple[Table, dict[int, list[float]]]:
    """The table, and for the picture the worst minute as the default rounds."""
    columns = {"cells": ",", "rounding": ""}
    for amount in AMOUNTS:
        columns |= {f"{amount}/min: error %": "+.2f", f"worst of {amount}": ".2f"}
    table = Table(f"Cells and rounding: {title} traffic, 1.5 x the limit", columns)
    offered = {a: [make(a, PERIOD, hits + 30 * a, seed) for seed in seeds] for a in AMOUNTS}
    exact = {a: sum(len(exact_log(times, a, PERIOD)) for times in offered[a]) for a in AMOUNTS}
    drawn: dict[int, list[float]] = {amount: [] for amount in DRAWN}
    for cells in CELLS:
        for rounding in ROUNDINGS:
            found: list[float] = []
            for amount in AMOUNTS:
                admitted = [admit(cells, rounding, amount, times) for times in offered[amount]]
                worst = max(worst_window(times, PERIOD) for times in admitted) / amount
                found += [100 * (sum(map(len, admitted)) / exact[amount] - 1), worst]
                if amount in DRAWN and rounding == ROUNDINGS[0]:
                    drawn[amount].append(worst)
            table.add(cells, rounding, *found)
    return table, drawn


def admit(cells: int, rounding: str, amount: int, times: list[int]) -> list[int]:
    make = penstock_memory("sliding_window", cells=cells, rounding=rounding)
    window = Contender("Penstock", f"{cells} cells", make, "limiter.hit(key)")
    return replay(window, amount, "minute", times)


def obedient() -> Table:
    table = Table(
        f"Cells and rounding: a client that waits as it is told, {WAITED} minutes",
        {"cells": ",", "rounding": ""} | {f"{amount}/min: error %": "+.2f" for amount in AMOUNTS},
    )
    for cells in CELLS:
        for rounding in ROUNDINGS:
            found = []
            for amount in AMOUNTS:
                limiter, clock = make(cells, rounding, amount)
                taken = greedy(limiter, clock, START + WAITED * PERIOD)
                found.append(100 * (len(taken) / (WAITED * amount) - 1))
            table.add(cells, rounding, *found)
    return table


def adversary() -> Table:
    """All units at the end of a cell, then each as soon as it is to be had."""
    table = Table(
        "Cells and rounding: the most that an adversary gets within one minute",
        {"cells": ",", "rounding": ""} | {f"{amount}/min": "," for amount in AMOUNTS},
    )
    for cells in CELLS:
        for rounding in ROUNDINGS:
            found = []
            for amount in AMOUNTS:
                limiter, clock = make(cells, rounding, amount)
                limiter.reserve("k").cancel()  # opens the cells and leaves them empty
                clock.set(START + -(-PERIOD // cells) - 1)
                taken = greedy(limiter, clock, clock.now() + PERIOD)
                found.append(worst_window(taken, PERIOD))
            table.add(cells, rounding, *found)
    table.notes = [
        "at most the limit in any minute less one cell; an exact log never admits more than it"
    ]
    return table


def make(cells: int, rounding: str, amount: int) -> tuple[Limiter, FakeClock]:
    clock = FakeClock(START)
    limit = Limit(amount, "minute", algorithm="sliding_window", cells=cells, rounding=rounding)
    return Limiter(limit, store=MemoryStore(clock=clock)), clock


def greedy(limiter: Limiter, clock: FakeClock, until: int) -> list[int]:
    """When hits were admitted of a client that hits, and comes back when it is told to."""
    taken = []
    while clock.now() < until:
        decision = limiter.hit("k")
        if decision:
            taken.append(clock.now())
        else:
            assert decision.retry_after is not None
            clock.advance_ns(round(decision.retry_after * SECOND))
    return taken


def bytes_a_key(cells: int) -> float | None:
    """None where the core is not compiled: a dict does not say."""
    limiter = Limiter(Limit(100, "day", algorithm="sliding_window", cells=cells))
    limiter.hit_many(f"user:{number}" for number in range(KEYS))
    size = getattr(limiter.default, "bytes", None)
    return None if size is None else size / KEYS
