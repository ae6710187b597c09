"""How many cells a sliding window needs: its error against an exact log, and its size."""

from __future__ import annotations

from benchmarks import plots, traffic
from benchmarks.contenders import Contender, penstock_memory
from benchmarks.replay import replay
from benchmarks.report import OUT, Table
from benchmarks.traffic import SECOND, exact_log, worst_window

CELLS = (1, 2, 3, 5, 8, 10, 12, 15, 20, 30, 60)
AMOUNTS = (10, 100, 1000)
PERIOD = 60 * SECOND
KEYS = 100_000


def run(quick: bool = False) -> list[Table]:
    hits, seeds = (5_000, range(1)) if quick else (30_000, range(1, 5))
    tables = []
    worst_of: dict[str, dict[int, list[float]]] = {}
    for title, make in [("Poisson", traffic.poisson), ("bursty", traffic.bursty)]:
        worst_of[title] = {amount: [] for amount in AMOUNTS}
        columns = {"cells": ",", "bytes a key": ",.0f"}
        for amount in AMOUNTS:
            columns |= {f"{amount}/min: error %": "+.2f", f"worst of {amount}": ".2f"}
        table = Table(f"Cells of a sliding window: {title} traffic, 1.5 x the limit", columns)
        offered = {a: [make(a, PERIOD, hits + 30 * a, seed) for seed in seeds] for a in AMOUNTS}
        exact = {a: sum(len(exact_log(times, a, PERIOD)) for times in offered[a]) for a in AMOUNTS}
        for cells in CELLS:
            found: list[float] = []
            for amount in AMOUNTS:
                admitted = [admit(cells, amount, times) for times in offered[amount]]
                worst = max(worst_window(times, PERIOD) for times in admitted) / amount
                worst_of[title][amount].append(worst)
                found += [100 * (sum(map(len, admitted)) / exact[amount] - 1), worst]
            table.add(cells, bytes_a_key(cells), *found)
        tables.append(table)
    tables[-1].notes = [
        f"{len(seeds)} x {hits:,} + 30 x limit hits; worst: the most in any minute, 1 is the limit",
        f"bytes a key: as the table of MemoryStore counts them at {KEYS:,} keys",
    ]
    plots.cells(worst_of, CELLS, OUT / "cells.png")
    return tables


def admit(cells: int, amount: int, times: list[int]) -> list[int]:
    make = penstock_memory("sliding_window", cells=cells)
    window = Contender("Penstock", f"{cells} cells", make, "limiter.hit(key)")
    return replay(window, amount, "minute", times)


def bytes_a_key(cells: int) -> float | None:
    """None where the core is not compiled: a dict does not say."""
    from penstock import Limit, Limiter

    limiter = Limiter(Limit(100, "day", algorithm="sliding_window", cells=cells))
    limiter.hit_many(f"user:{number}" for number in range(KEYS))
    size = getattr(limiter.default, "bytes", None)
    return None if size is None else size / KEYS
